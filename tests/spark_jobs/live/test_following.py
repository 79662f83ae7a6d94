"""Following as a program: when it ends, and what it prints."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from emulator.run.processes import identify
from spark_jobs.live.following import StopSignal, follow_run, has_ended
from spark_jobs.sources.growing import GrowingRun
from spark_jobs.sources.run_folder import open_run_folder

from ..sample_run import SampleRun
from .growing_run import GrowingSample

EAST, WEST = "us-east", "us-west"
HOME = Path(__file__).resolve().parents[3]
DEADLINE_S = 300


class FollowingProgram:
    """The verifier with `--follow --json`, as a process."""

    def __init__(self, run: Path) -> None:
        command = [sys.executable, "-m", "spark_jobs.verify", str(run), "--follow", "--json"]
        self.process = subprocess.Popen(
            [*command, "--engine", "embedded"],
            cwd=HOME,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._events: Queue[dict[str, object]] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))

    def until(self, name: str) -> dict[str, object]:
        """Return the next event with this name."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                event = self._events.get(timeout=max(deadline - time.monotonic(), 0.01))
            except Empty:
                raise AssertionError(f"no event {name!r} within {DEADLINE_S} s") from None
            if event["event"] == name:
                return event


@pytest.fixture
def growing(tmp_path: Path) -> GrowingSample:
    """A run whose owner, this process, is running."""
    growing = GrowingSample(tmp_path / "run", SampleRun())
    owner = identify(os.getpid())
    assert owner is not None
    write_record(growing.path, {"pid": owner.pid, "started": owner.started})
    return growing


def write_record(run: Path, owner: dict[str, object], *, ended: bool = False) -> None:
    record = {"runtime": "process", "ended": ended, "owner": owner, "regions": {}, "created_at": ""}
    (run / "run.json").write_text(json.dumps(record))


@pytest.fixture
def program(growing: GrowingSample) -> Iterator[FollowingProgram]:
    program = FollowingProgram(growing.path)
    yield program
    program.process.kill()
    program.process.wait()


class RecordingEngine:
    """Records the calls before the first row."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def tune(self, evidence_bytes: int) -> None:
        self.calls.append(f"tune {evidence_bytes}")

    def follow(self, *_: object) -> None:
        self.calls.append("follow")


class NoOutput:
    def started(self, run: str, engine: str) -> None: ...
    def progress(self, progress: object) -> None: ...
    def violation(self, violation: object) -> None: ...
    def ended(self, why: str) -> None: ...


def test_an_engine_is_tuned_to_the_evidence_before_it_follows(growing: GrowingSample) -> None:
    """Spark's default settings are for large evidence: a step took six times as long with them."""
    growing.sample.publish(EAST, 0, 1.0)
    growing.grow()
    engine: Any = RecordingEngine()
    follow_run(engine, growing.path, NoOutput(), StopSignal())
    assert engine.calls == [f"tune {open_run_folder(growing.path).size_bytes}", "follow"]


@pytest.mark.long
def test_a_violation_is_reported_while_the_run_is_running_and_ctrl_c_prints_the_verdict(
    growing: GrowingSample, program: FollowingProgram
) -> None:
    program.until("progress")
    growing.sample.publish(EAST, 0, 1.0)
    growing.sample.logs[WEST].append(growing.sample.logs[WEST][0])
    growing.grow()
    violation = program.until("violation")
    assert violation["invariant"] == "INV-2"
    program.process.send_signal(signal.SIGINT)
    assert program.until("ended")["why"] == "interrupted"
    report = program.until("verdict")["report"]
    assert isinstance(report, dict)
    assert report["verdict"] == "invalid"
    assert program.process.wait(DEADLINE_S) == 1


@pytest.mark.long
def test_a_run_that_ends_has_the_verdict_of_all_its_evidence(
    growing: GrowingSample, program: FollowingProgram
) -> None:
    growing.sample.publish(EAST, 0, 1.0)
    growing.grow()
    program.until("progress")
    growing.sample.publish(EAST, 1, 2.0)
    growing.grow()
    growing.close()
    write_record(growing.path, {"pid": 1, "started": ""}, ended=True)
    assert program.until("ended")["why"] == "the run has ended"
    report = program.until("verdict")["report"]
    assert isinstance(report, dict)
    assert (report["verdict"], report["figures"]["published"]["acknowledged"]) == ("valid", 2)
    assert program.process.wait(DEADLINE_S) == 0


@pytest.mark.long
def test_without_its_directory_following_ends_with_one_sentence(
    growing: GrowingSample, program: FollowingProgram
) -> None:
    program.until("progress")
    shutil.rmtree(growing.path)
    assert program.process.wait(DEADLINE_S) == 2
    assert program.process.stderr is not None
    complaint = program.process.stderr.read()
    assert complaint == f"the run directory {growing.path} no longer exists\n"


def test_a_line_counts_when_it_is_complete(growing: GrowingSample) -> None:
    growing.sample.publish(EAST, 0, 1.0)
    growing.grow()
    source = GrowingRun(growing.path)
    before = source.latest(source.start())
    file = growing.path / "history" / "orders-us-east.jsonl"
    line = file.read_bytes().splitlines(keepends=True)[-1]
    with file.open("ab") as stream:
        stream.write(line[:20])
        stream.flush()
        assert source.latest(before) == before
        stream.write(line[20:])
    after = source.latest(before)
    assert after["lines"][file.name] == {
        "bytes": before["lines"][file.name]["bytes"] + len(line),
        "lines": before["lines"][file.name]["lines"] + 1,
    }
    (part,) = source.parts(before, after)
    (batch,) = source.read(part)
    (row,) = batch.to_pylist()
    assert row["entry"] is None
    assert (row["line"]["op"], row["line"]["damage"]) == ("publish", None)


def test_parts_cover_each_entry_and_line_once(
    growing: GrowingSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a log has many parts."""
    monkeypatch.setattr("spark_jobs.sources.growing.PART_ENTRIES", 3)
    monkeypatch.setattr("spark_jobs.sources.growing.SLICE_BYTES", 200)
    source, since, rows = GrowingRun(growing.path), GrowingRun(growing.path).start(), []
    for number in range(10):
        growing.sample.publish(EAST, number, 1.0 + number)
        if number % 4 == 3 or number == 9:
            growing.grow()
            until = source.latest(since)
            parts = source.parts(since, until)
            rows += [row for part in parts for batch in source.read(part) for row in batch.to_pylist()]
            since = until
    entries = [(row["entry"]["region"], row["entry"]["entry_id"]) for row in rows if row["entry"]]
    assert sorted(entries) == sorted((region, n) for region in growing.sample.regions for n in range(10))
    requests = [
        row["line"]["sequence_id"] for row in rows if row["line"] and row["line"]["outcome"] == "asked"
    ]
    assert sorted(requests) == [*range(10)]
    assert all(row["line"]["damage"] is None for row in rows if row["line"])


def test_when_a_run_has_ended(growing: GrowingSample) -> None:
    assert not has_ended(growing.path)
    write_record(growing.path, {"pid": os.getpid(), "started": "another process"})
    assert has_ended(growing.path)
    write_record(growing.path, {"pid": 1, "started": ""}, ended=True)
    assert has_ended(growing.path)
    (growing.path / "run.json").write_text("{")
    growing.sample.fact(0.0, "note", detail="open")
    growing.grow()
    assert not has_ended(growing.path)
    growing.close()
    assert has_ended(growing.path)


@pytest.mark.long
def test_a_reader_that_ends_ends_following_without_a_stack_trace(growing: GrowingSample) -> None:
    command = [sys.executable, "-m", "spark_jobs.verify", str(growing.path), "--follow", "--json"]
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*command, "--engine", "embedded"], cwd=HOME, stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    with open(reader) as output:
        assert json.loads(output.readline())["event"] == "started"
    growing.sample.publish(EAST, 0, 1.0)
    growing.grow()
    _, complaint = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, complaint) == (2, "")


@pytest.mark.long
def test_an_error_of_the_verifier_is_no_invalid_verdict(tmp_path: Path) -> None:
    growing = GrowingSample(tmp_path / "run", SampleRun())
    program = (
        "import sys, spark_jobs.verify as v\n"
        "def fail(*_, **__): raise ZeroDivisionError\n"
        "v.follow_run = fail\n"
        "sys.exit(v.main([sys.argv[1], '--follow', '--engine', 'embedded']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(growing.path)],
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr
