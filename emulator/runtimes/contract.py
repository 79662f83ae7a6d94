"""Where regions run. One contract for processes, containers and the simulation.

Every verb returns only when what it says has happened (a started region accepts publishes; a cut link passes
nothing), or raises RuntimeFailure saying what to do. Verbs are idempotent: killing a killed region is no
error. Names that are not in the run, and a run that cannot be acted upon, are Refused: then nothing was done.

State of a run lives in its run directory and nowhere else, so that any process may continue where another
one stopped:

    run.json                  who runs what: version, topology, runtime, ports, process ids, links
    topology.json             the checked topology, frozen
    made_by.json              the command that made the run, and the scenario of the run
    regions/<name>/           region.json, log.sqlite, metadata.jsonl, output.log, ready.json
    configuration/<cluster>/  the cluster's configuration store, if its regions are processes
    history/<actor>.jsonl     requests of clients and their responses
    report/                   report.html, report.json
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from emulator.config.topology import Topology
from emulator.run.directory import LinkStatus

RegionState = Literal["starting", "running", "paused", "stopped", "killed", "lost"]


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """One region, as `status --json` shows it."""

    name: str
    cluster: str
    state: RegionState
    """starting: the process lives, but does not answer or was never ready since its start. running: was ready since
    then, even if a link is down at this moment. killed: ended without having been stopped. lost: killed, and not
    expected back."""
    service_url: str
    """`pulsar://host:port`, for clients outside."""
    admin_url: str
    """`http://host:port`."""
    pid: int | None
    waiting_for: str = ""
    """What it still lacks, as a sentence; empty when it lacks nothing."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run at one moment."""

    run_dir: Path
    runtime: str
    regions: tuple[RegionStatus, ...]
    links: tuple[LinkStatus, ...]
    ended: bool = False
    """`down` was called: nothing starts in it any more."""


class Runtime(Protocol):
    """What a place to run regions can do."""

    @property
    def topology(self) -> Topology: ...

    @property
    def run_dir(self) -> Path: ...

    async def up(self) -> None:
        """Start every region and wait until all are ready: every link established, every namespace known.
        If that fails or is cancelled, everything is taken down again first."""
        ...

    async def down(self) -> None:
        """Stop every region in an orderly way and end the run. The run directory stays."""
        ...

    async def start(self, region: str) -> None:
        """Start a stopped or killed region on the log it left, same ports, links as they are now; wait until it
        is ready and its peers are linked to it again. Peers that are down or cut off are not waited for."""
        ...

    async def stop(self, region: str) -> None:
        """End a region in an orderly way."""
        ...

    async def kill(self, region: str) -> None:
        """kill -9."""
        ...

    async def lose(self, region: str) -> None:
        """Kill a region with SIGKILL, for good. The run no longer waits for it; what only it had is the cost of the
        loss. Other regions wait for it until `replication_clusters` leaves it out. What it stored stays as evidence,
        in the run directory or in its Kafka, and `start` brings the region back on it. Once all regions of a cluster
        are lost, the run announces it to the other clusters."""
        ...

    async def lose_store(self, cluster: str) -> None:
        """Lose the configuration store of a cluster none of whose regions runs: they start on a new one, and receive
        the metadata of other clusters. What it held stays as evidence. Refused where that cannot be done."""
        ...

    async def restart(self, region: str) -> None:
        """`stop`, then `start`."""
        ...

    async def pause(self, region: str) -> None:
        """Freeze a region (SIGSTOP): it holds its connections and answers nothing."""
        ...

    async def resume(self, region: str) -> None:
        """Thaw a paused region and wait until it is ready, as after `start`. What happened to its links in the
        meantime is the first thing it hears."""
        ...

    async def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Let nothing pass from `source` to `target`, nor back unless `one_way`."""
        ...

    async def hold(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Keep what is sent; `heal` delivers it in order."""
        ...

    async def latency(
        self,
        source: str,
        target: str,
        latency_ms: float,
        *,
        jitter_ms: float | None = None,
        one_way: bool = False,
    ) -> None:
        """Set the one-way latency for data sent from now on; it varies by up to `jitter_ms` (None: unchanged)."""
        ...

    async def skew(self, region: str, ahead_ms: int) -> None:
        """Offset a region's wall clock by `ahead_ms` (behind if negative); 0: the true time. Timers are unaffected. A
        region that is down has the offset when it starts; a paused one is Refused."""
        ...

    async def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo `cut`, `hold` and `latency` between two regions (both directions), or everywhere: links are as the
        topology declares them, and up. Waits until regions that run are linked again."""
        ...

    async def status(self) -> RunStatus:
        """What is so now, asked afresh."""
        ...

    def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        """What the region printed, line by line; with `follow`, goes on until cancelled."""
        ...
