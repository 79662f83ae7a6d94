"""The contract of runtimes, which run the regions of a topology: processes, containers and the simulation.

Every verb returns when its effect is complete (a started region accepts publishes; a cut link drops all traffic), or
raises RuntimeFailure with a message that says what to do. Verbs are idempotent: killing a killed region is no error.
For names that are not in the run, verbs raise Refused and change nothing; so do `up`, `start` and `lose` in a run that
has ended.

The state of a run is stored only in its run directory, so that any process may continue where another
one stopped:

    run.json                  the run record: version, topology, runtime, ports, process ids, links, clocks, disks
    topology.json             the validated topology, which does not change during the run
    made_by.json              the command that created the run, and the scenario of the run
    regions/<name>/           region.json, log.sqlite, metadata.jsonl, output.log, ready.json
    configuration/<cluster>/  the cluster's configuration store, if its regions are processes
    history/<actor>.jsonl     requests of clients and their responses
    report/                   report.html, report.json
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from emulator.config.topology import Topology
from emulator.model.machine import HEALTHY, RIGHT_CLOCK, ClockOffset, DiskCondition
from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.run.record import LinkStatus

Link = tuple[str, str]
"""(source, target) of one direction: two regions, or a region and `clients`."""
BREAKS = ("reset", "half_open")
"""Ways to break the open connections of a link."""
RegionState = Literal["starting", "running", "paused", "stopped", "killed", "lost"]


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """One region, as `status --json` shows it."""

    name: str
    cluster: str
    state: RegionState
    """starting: the process runs, and does not respond or was not ready since its start. running: it responds and was
    ready since its start, even if a link is down now. stopped: it ended gracefully or was never started. killed: it
    ended otherwise. lost: `lose` killed it."""
    service_url: str
    """`pulsar://host:port`, for clients outside of the run's network; `pulsar+ssl://` if the region has TLS."""
    admin_url: str
    """`http://host:port` of the admin API; `https://` if the region has TLS."""
    pid: int | None
    waiting_for: str = ""
    """What the region waits for until it is ready, as a sentence; empty if nothing."""
    disk: DiskCondition = HEALTHY
    """State of the region's disk."""
    clock: ClockOffset = RIGHT_CLOCK
    """Offset of the region's wall clock."""
    tls: Certificates | None = None
    """Files with which programs of this machine connect to the two URLs; None: without TLS."""
    plain_service_url: str = ""
    """The same without TLS, of a region with TLS; empty if the port is closed, or the region has no TLS."""
    plain_admin_url: str = ""
    credentials: Credentials | None = None
    """Files of the credentials that clients of geoemu present; None: none."""
    control: str = ""
    """File of the credential with which geoemu controls the region over HTTP; empty: none is required."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run at one moment."""

    run_dir: Path
    runtime: str
    regions: tuple[RegionStatus, ...]
    links: tuple[LinkStatus, ...]
    ended: bool = False
    """`down` was called: no region can be started any more."""


class Runtime(Protocol):
    """Runs the regions of one run, and injects faults into them and their links."""

    @property
    def topology(self) -> Topology: ...

    @property
    def run_dir(self) -> Path: ...

    async def up(self) -> None:
        """Start every region and wait until all are ready: every link is established, every namespace is known.
        If that fails or is cancelled, the run is taken down before the error is raised."""
        ...

    async def down(self) -> None:
        """Stop every region gracefully and end the run. The run directory stays. Raises RuntimeFailure if a region had
        to be killed."""
        ...

    async def start(self, region: str) -> None:
        """Start a stopped or killed region with its log, its ports and the current state of its links. Wait until it is
        ready and linked with its peers; peers that are down or cut off are not waited for."""
        ...

    async def stop(self, region: str) -> None:
        """Stop a region gracefully. Raises RuntimeFailure if it had to be killed."""
        ...

    async def kill(self, region: str) -> None:
        """Kill a region with SIGKILL."""
        ...

    async def lose(self, region: str) -> None:
        """Kill a region with SIGKILL permanently: the run no longer waits for it, and messages that only it stored are
        lost. Other regions wait for it until it is removed from `replication_clusters`. Its log stays as evidence, in
        the run directory or in its Kafka, and `start` starts the region with that log. When all regions of a cluster
        are lost, the run announces the loss to the other clusters."""
        ...

    async def lose_store(self, cluster: str) -> None:
        """Lose the configuration store of a cluster none of whose regions runs. Its regions start with an empty store
        and receive the metadata of other clusters. The lost store stays as evidence. Raises Refused if a region of the
        cluster runs."""
        ...

    async def restart(self, region: str) -> None:
        """Stop a region, then start it."""
        ...

    async def pause(self, region: str) -> None:
        """Freeze a region (SIGSTOP, or `docker pause`): its connections stay open, and it sends no responses."""
        ...

    async def resume(self, region: str) -> None:
        """Resume a paused region and wait until it is ready, as after `start`. It receives the state of its links
        before other requests."""
        ...

    async def change_links(self, links: Sequence[Link], changes: Mapping[str, Any]) -> None:
        """Change fields of `config.link_shape.LinkShape` of these directions of links, for data sent from now on."""
        ...

    async def break_connections(self, links: Sequence[Link], how: str) -> None:
        """Break the open connections of these links, in both directions. `how` is one of `BREAKS`. reset: both sides
        lose them by a TCP reset. half_open: they carry nothing any more until `heal` resets them; new ones work."""
        ...

    async def skew(self, region: str, ahead_ms: int, drift_ppm: float = 0.0) -> None:
        """Offset a region's wall clock from the true time by `ahead_ms` (negative: behind), and let it gain `drift_ppm`
        microseconds per second from now on. Timers are unaffected. A region that is down gets both when it starts.
        Raises Refused if the region is paused, or the drift is out of range."""
        ...

    async def disk(self, region: str, state: str, delay_ms: float | None = None) -> None:
        """Make a region's disk `healthy`, `slow`, `full` or `failing` (`model.machine.DiskCondition`). `delay_ms`: by
        which writes to a slow disk take longer; None: the default. A region that is down gets the state when it starts,
        after it has recorded its start. Raises Refused if the region is paused, or the state or the delay is
        invalid."""
        ...

    async def power_loss(self, region: str) -> None:
        """Kill a region as a power loss of its machine does: what no completed sync covers is dropped from its disk. A
        log in Kafka stays as it is. Raises Refused if the region is paused."""
        ...

    async def heal(self, links: Sequence[Link] | None = None) -> None:
        """Restore these directions, or all links, as the topology declares them, with state `up`; reset half-open
        connections. Waits until running regions are linked again."""
        ...

    async def status(self) -> RunStatus:
        """Return the current state of the run; regions and links are queried on every call."""
        ...

    def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        """Yield the lines of a region's output; with `follow`, also new lines until cancelled."""
        ...
