"""Common part of the runtimes whose runs are recorded in a run directory: its path, its topology, and the operations on
links, which are sent to the admin ports of both ends of a link."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.run.directory import RunDirectory
from emulator.runtimes.regions import LinkedRegions


class RecordedRun:
    """The part of the runtime contract that is the same for processes and containers."""

    def __init__(self, directory: RunDirectory, linked: LinkedRegions) -> None:
        self._directory = directory
        self._linked = linked

    @property
    def run_dir(self) -> Path:
        return self._directory.path

    @cached_property
    def topology(self) -> Topology:
        try:
            return Topology.from_json((self.run_dir / "topology.json").read_text())
        except (OSError, ValueError) as problem:
            raise Refused(
                f"{self.run_dir}/topology.json cannot be read ({problem}): start a new run"
            ) from problem

    async def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        await self._linked.change_link(source, target, one_way, state="cut")

    async def hold(self, source: str, target: str, *, one_way: bool = False) -> None:
        await self._linked.change_link(source, target, one_way, state="held")

    async def latency(
        self,
        source: str,
        target: str,
        latency_ms: float,
        *,
        jitter_ms: float | None = None,
        one_way: bool = False,
    ) -> None:
        jitter = {} if jitter_ms is None else {"jitter_ms": jitter_ms}
        await self._linked.change_link(source, target, one_way, latency_ms=latency_ms, **jitter)

    async def skew(self, region: str, ahead_ms: int) -> None:
        await self._linked.skew(region, ahead_ms)

    async def heal(self, source: str | None = None, target: str | None = None) -> None:
        await self._linked.heal(self.topology, source, target)
