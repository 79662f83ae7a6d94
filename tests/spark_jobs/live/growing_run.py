"""A run directory that grows step by step: regions append to their logs, and programs to their histories."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from emulator.run.history import HistoryWriter
from emulator.storage.sqlite.store import open_sqlite
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import DataFrame, use_engine
from spark_jobs.live.follower import RunFollower
from spark_jobs.live.progress import RunProgress
from spark_jobs.sources.growing import GrowingRun, Offset

from ..sample_run import TOPIC, SampleRun


class GrowingSample:
    """Writes what `sample` gained since the last call of `grow`. Histories stay open until `close`."""

    def __init__(self, path: Path, sample: SampleRun) -> None:
        self.path, self.sample = path, sample
        self._stored = dict.fromkeys(sample.regions, 0)
        self._events = 0
        self._clock_ms = 0.0
        self._writers: dict[str, HistoryWriter] = {}
        logs, sample.logs = sample.logs, {region: [] for region in sample.regions}
        events, sample.events = sample.events, []
        sample.write(path)
        sample.logs, sample.events = logs, events
        (path / "history" / "scenario.jsonl").unlink(missing_ok=True)

    def grow(self, *regions: str) -> None:
        """Write new events, and the new entries of these regions, or else of all."""
        for actor, at_ms, op, outcome, fields in self.sample.events[self._events :]:
            self._clock_ms = at_ms
            self.writer(actor).write(op, outcome, **fields)  # type: ignore[arg-type]
        self._events = len(self.sample.events)
        for region in regions or self.sample.regions:
            entries = self.sample.logs[region]
            self.append(region, entries[self._stored[region] :])
            self._stored[region] = len(entries)

    def writer(self, actor: str) -> HistoryWriter:
        if actor not in self._writers:
            path = self.path / "history" / f"{actor}.jsonl"
            self._writers[actor] = HistoryWriter(path, actor, lambda: self._clock_ms)
        return self._writers[actor]

    def append(self, region: str, entries: Sequence[bytes]) -> None:
        async def append() -> None:
            store = await open_sqlite(self.path / "regions" / region / "log.sqlite", region)
            log = await store.open_log(TOPIC)
            assert log is not None
            await log.append(entries)
            await store.close()

        if entries:
            asyncio.run(append())

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class Stepper:
    """Follows a run in steps that the test requests, with the embedded engine."""

    def __init__(self, engine: QueryEngine, path: Path, **options: int) -> None:
        self._engine, self._source = engine, GrowingRun(path)
        self.offset = self._source.start()
        self.reported: list[str] = []
        """Names of checks, in the order in which their violations were reported."""
        with use_engine(engine):
            self.follower = RunFollower(
                path,
                on_violation=lambda violation: self.reported.append(violation.result.name),
                **options,  # type: ignore[arg-type]
            )

    def step(self, times: int = 1) -> RunProgress:
        """Read the new evidence. The second step after a receipt uses it."""
        for _ in range(times):
            self._step()
        return self.follower.progress(has_ended=True)

    def _step(self) -> None:
        waits = iter((True,))
        source = _After(self._source, self.offset)

        def add(engine: QueryEngine, rows: DataFrame | None) -> None:
            if rows is not None:
                with use_engine(engine):
                    self.follower.step(rows)

        self._engine.follow(source, add, lambda: next(waits))
        if source.until == self.offset:
            with use_engine(self._engine):
                self.follower.step(None)
        self.offset = source.until


class _After:
    """The source, from an offset on. `until`: the latest offset."""

    def __init__(self, source: GrowingRun, since: Offset) -> None:
        self.schema, self.parts, self.read = source.schema, source.parts, source.read
        self.folder = source.folder
        self._source = source
        self.until = since

    def start(self) -> Offset:
        return self.until

    def latest(self, since: Offset) -> Offset:
        self.until = self._source.latest(since)
        return self.until


def names_of(progress: RunProgress) -> dict[str, str]:
    """Return the sentence of each violation by its invariant."""
    return {one.result.invariant: one.result.sentence for one in progress.violations}
