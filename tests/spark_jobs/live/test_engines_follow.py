"""Both engines follow a run that grows while they read it: Spark by Structured Streaming, DuckDB by polling."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.live.following import ENDED, StopSignal, follow_run
from spark_jobs.live.progress import LiveViolation, RunProgress

from ..sample_run import SampleRun
from .growing_run import GrowingSample

EAST, WEST = "us-east", "us-west"
STEPS_MAX = 500


class GrowingOutput:
    """Lets the run grow after the first progress, and ends it after the first violation."""

    def __init__(self, growing: GrowingSample) -> None:
        self._growing = growing
        self.events: list[str] = []
        self.latest: RunProgress | None = None

    def started(self, run: str, engine: str) -> None:
        self.events.append("started")

    def progress(self, progress: RunProgress) -> None:
        self.events.append("progress")
        assert len(self.events) < STEPS_MAX, "the violation was not found"
        if self.latest is None:
            self._growing.sample.publish(EAST, 2, 3.0)
            self._growing.sample.logs[WEST].append(self._growing.sample.logs[WEST][0])
            self._growing.grow()
        self.latest = progress

    def violation(self, violation: LiveViolation) -> None:
        self.events.append(f"violation {violation.result.invariant}")
        self._growing.close()

    def ended(self, why: str) -> None:
        self.events.append(why)


def test_a_run_grows_while_it_is_followed(engine: QueryEngine, tmp_path: Path) -> None:
    growing = GrowingSample(tmp_path / "run", SampleRun())
    for number in (0, 1):
        growing.sample.publish(EAST, number, 1.0 + number)
    growing.grow()
    output = GrowingOutput(growing)
    follow_run(engine, growing.path, output, StopSignal(), interval_s=0.1)
    found = [event for event in output.events if event not in ("started", "progress")]
    assert found == ["violation INV-2", ENDED]
    assert output.latest is not None
    assert output.latest.has_converged
    assert sum(link.acknowledged for link in output.latest.links) == 6
