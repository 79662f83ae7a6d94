"""The rows of the regions' logs."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.sources import region_log
from spark_jobs.sources.policies import Lifetime
from spark_jobs.sources.region_log import read_region_logs, read_trimmed
from spark_jobs.sources.run_folder import open_run_folder
from tests.spark_jobs.sample_run import TOPIC, SampleRun, place


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sample = SampleRun()
    for number in range(3):
        sample.publish("us-east", number, 1 + number)
    sample.store(
        "us-west",
        build_entry(
            pb.MessageMetadata(producer_name="m", sequence_id=1, publish_time=1, marker_type=10), b""
        ),
    )
    return sample.write(tmp_path / "run")


def test_every_message_of_every_region_is_a_row(engine: QueryEngine, run: Path) -> None:
    rows = read_region_logs(open_run_folder(run))
    places = {
        (
            row["region"],
            row["topic"],
            row["entry_id"],
            row["origin_region"],
            row["sequence_id"],
            row["marker_type"],
        )
        for row in rows.collect()
    }
    regions = ("us-east", "us-west", "eu-central")
    messages = {(region, TOPIC, number, "us-east", number, None) for region in regions for number in range(3)}
    assert places == messages | {("us-west", TOPIC, 3, "us-west", 1, 10)}


def test_a_long_log_is_read_on_by_whichever_thread_takes_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_log, "BATCH_ROWS", 2)
    sample = SampleRun()
    for number in range(60):
        sample.publish("us-east", number, number)
    with use_engine(EmbeddedEngine()):
        rows = read_region_logs(open_run_folder(sample.write(tmp_path / "run"))).collect()
    assert {row["damage"] for row in rows} == {None}
    assert len(rows) == 180


def test_what_cannot_be_read_is_a_row_too(engine: QueryEngine, run: Path) -> None:
    shutil.rmtree(run / "regions" / "us-east")
    (run / "regions/us-west/log.sqlite").write_bytes(b"garbage")
    rows = read_region_logs(open_run_folder(run)).collect()
    assert {row["region"]: row["damage"] for row in rows if row["damage"]} == {
        "us-west": "regions/us-west/log.sqlite cannot be read: file is not a database"
    }
    assert sum(row["region"] == "eu-central" for row in rows) == 3


def test_a_log_may_come_in_many_batches(
    engine: QueryEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.sources.region_log.BATCH_ROWS", 50)
    sample = SampleRun()
    for number in range(1000):
        sample.publish("us-east", number, 1 + number / 100)
    rows = read_region_logs(open_run_folder(sample.write(tmp_path / "run"))).collect()
    assert {row["damage"] for row in rows} == {None}
    assert len(rows) == 3000


@pytest.mark.parametrize("backend", ["memory", "cassette"])
def test_a_backend_that_leaves_nothing_to_read_is_a_damage(
    engine: QueryEngine, run: Path, backend: str
) -> None:
    config = run / "regions/us-west/region.json"
    config.write_text(config.read_text().replace('"backend": "sqlite"', f'"backend": "{backend}"'))
    damages = {
        row["damage"]
        for row in read_region_logs(open_run_folder(run)).collect()
        if row["region"] == "us-west"
    }
    assert damages == {f"the log of us-west cannot be read: its backend is {backend}"}


def test_an_empty_folder_has_no_rows(engine: QueryEngine, tmp_path: Path) -> None:
    assert read_region_logs(open_run_folder(tmp_path)).collect() == []


@pytest.mark.parametrize(("trims", "below"), [(True, 2), (False, None)])
def test_entries_are_trimmed_only_where_a_policy_trims(
    engine: QueryEngine, run: Path, trims: bool, below: int | None
) -> None:
    """Topics have the same names as in the history."""
    with sqlite3.connect(run / "regions/us-east/log.sqlite") as database:
        database.execute("UPDATE logs SET name = name || '-partition-2', first_entry_id = 2")
    folder = open_run_folder(run)
    namespaces = {
        name: replace(each, lifetime=Lifetime(trims=trims)) for name, each in folder.namespaces.items()
    }
    trimmed, damages = read_trimmed(replace(folder, namespaces=namespaces), {TOPIC})
    expected = (
        []
        if below is None
        else [{"region": "us-east", "topic": TOPIC, "below": {place("us-east", 0).ledger: below}}]
    )
    assert [row.asDict() for row in trimmed.collect()] == expected
    assert damages == []
