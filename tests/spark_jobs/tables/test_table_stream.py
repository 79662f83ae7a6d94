"""The stream of a public table: each step yields the rows that the run gained, and no row twice."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.sources.growing import RunVanished
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.tables.filters import EVERY_ROW, Condition, RowFilter
from spark_jobs.tables.readers import EvidenceUnreadable
from spark_jobs.tables.table_stream import STREAMED, TableStream

from ..live.growing_run import GrowingSample
from ..sample_run import SampleRun
from .test_readers import read_table

EAST, WEST = "us-east", "us-west"


@pytest.fixture
def growing(tmp_path: Path) -> GrowingSample:
    return GrowingSample(tmp_path / "run", SampleRun())


class Steps:
    """The steps of one stream. Offsets pass through JSON, and parts through pickle, as in Spark."""

    def __init__(self, run: Path, name: str, only: RowFilter = EVERY_ROW) -> None:
        self.stream = TableStream.of(open_run_folder(run), name, only, "fail")
        self.offset: dict[str, Any] = {}

    def step(self) -> list[dict[str, Any]]:
        until = json.loads(json.dumps(self.stream.latest(self.offset)))
        parts = pickle.loads(pickle.dumps([*self.stream.parts(self.offset, until)]))
        self.offset = until
        stream: TableStream = pickle.loads(pickle.dumps(self.stream))
        return [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", [name for name in STREAMED if name != "metadata_events"])
def test_steps_together_have_the_rows_of_the_table(growing: GrowingSample, name: str) -> None:
    steps = Steps(growing.path, name)
    assert steps.step() == []
    rows = []
    for number in range(3):
        growing.sample.publish(EAST, number, 1.0 + number)
        growing.sample.fact(1.5 + number, "kill", region=WEST)
        growing.grow()
        gained = steps.step()
        assert gained or name == "markers"
        rows += gained
        assert steps.step() == []
    assert sorted(map(str, rows)) == sorted(map(str, read_table(growing.path, name)))


def test_a_complete_run_is_one_step(drill_template: Path) -> None:
    for name in STREAMED:
        rows = Steps(drill_template, name).step()
        assert sorted(map(str, rows)) == sorted(map(str, read_table(drill_template, name)))


def test_a_condition_leaves_out_parts_and_rows(drill_template: Path) -> None:
    only = RowFilter((Condition("region", "in", (WEST,)), Condition("entry_id", "<", 5)))
    steps = Steps(drill_template, "entries", only)
    until = steps.stream.latest({})
    assert [part.log.region for part in steps.stream.parts({}, until)] == [WEST]
    assert {(row["region"], row["entry_id"]) for row in steps.step()} == {(WEST, one) for one in range(5)}
    only = RowFilter((Condition("history_file", "in", ("scenario",)),))
    lines = Steps(drill_template, "history", only)
    assert {row["history_file"] for row in lines.step()} == {"scenario"}


def test_a_half_written_line_is_read_when_it_is_complete(growing: GrowingSample) -> None:
    growing.sample.publish(EAST, 0, 1.0)
    growing.grow()
    steps = Steps(growing.path, "history")
    whole = len(steps.step())
    file = next((growing.path / "history").glob("*.jsonl"))
    line = file.read_text().splitlines(keepends=True)[1]
    with file.open("a") as stream:
        stream.write(line[:20])
        stream.flush()
        assert steps.step() == []
        stream.write(line[20:])
    assert len(steps.step()) == 1 <= whole


def test_a_damaged_log_fails_the_step_that_reads_it(drill_template: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(drill_template, tmp_path / "run"))
    stream = TableStream.of(open_run_folder(run), "messages", EVERY_ROW, "fail")
    parts = stream.parts({}, stream.latest({}))
    (run / "regions" / WEST / "log.sqlite").unlink()
    with pytest.raises(EvidenceUnreadable, match=r"regions/us-west/log.sqlite is missing"):
        [batch for part in parts for batch in stream.read(part)]


def test_a_run_that_vanished_is_one_sentence(growing: GrowingSample) -> None:
    steps = Steps(growing.path, "messages")
    shutil.rmtree(growing.path)
    with pytest.raises(RunVanished, match="no longer exists"):
        steps.step()
