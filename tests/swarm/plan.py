"""The plan of a run, drawn from one seed: its topology, its programs, and its faults with their times.

A plan is a plain value. `draw` creates one from a seed, `swarm` runs it, `shrink` removes parts of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from emulator.client import Batching
from emulator.config.topology import Topology
from emulator.simulation.durable_media import DiskFaults
from tests.swarm.faults import Fault

if TYPE_CHECKING:
    from tests.swarm.workload import Act


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """Publishes to one topic of one region, in bursts."""

    name: str
    region: str
    topic: str
    messages: int
    place: str = ""
    """Where it runs; empty: in its region."""
    burst: int = 5
    pause_seconds: float = 0.3
    batching: Batching | None = None
    payload_bytes: int = 64
    choosy: float = 0.0
    """Probability that it restricts a message to some regions."""
    repeats: float = 0.0
    """Probability that it sends a message twice at once, with the same sequence id."""
    key: str | None = None
    """Of each of its messages; not for batches."""
    keeps_outbox: bool = True
    """After a restart it resends, with the same sequence ids, every publish without a response. Otherwise it continues
    after the last sequence id that the region knows, with other messages."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """Consumes one subscription of one topic, in one region after the other."""

    name: str
    subscription: str
    topic: str
    region: str
    type: str = "EXCLUSIVE"
    replicated: bool = False
    moves: tuple[tuple[float, str], ...] = ()
    """(second, region): it leaves and goes on there."""
    cumulative: bool = False
    confirmed: float = 0.5
    """Probability that it waits until its acknowledgement is durable."""
    refuses: float = 0.0
    """Probability of a negative acknowledgement."""
    holds: int = 0
    """Individual acknowledgements it keeps back, giving them out of order."""
    think_seconds: float = 0.01
    queue: int = 20
    key_ranges: tuple[tuple[int, int], ...] = ()
    """KEY_SHARED: of hashes, first and last; none: the region divides them."""
    out_of_order: bool = False
    """KEY_SHARED: it may receive a key before the former consumer of that key has acknowledged its messages."""
    consumer_name: str = ""
    """The consumer name that it sends; empty: `name`. Other consumers may have the same."""


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """Reads one topic of one region from its beginning."""

    name: str
    region: str
    topic: str
    queue: int = 20


@dataclass(frozen=True, slots=True)
class ClaimantPlan:
    """Wants one topic of one region for itself, publishes while it has it, leaves it and wants it again."""

    name: str
    region: str
    topic: str
    mode: str
    """Of access, until the world is healed; from then on it waits for its turn."""
    priority: int = 0
    place: str = ""
    """Where it runs; empty: in its region."""
    messages: int = 40
    """So many it publishes while things go wrong; then it keeps the topic in silence."""
    burst: int = 2
    pause_seconds: float = 0.1
    holds_seconds: float = 1.0
    """About how long it keeps the topic before it leaves it."""
    gives_up_seconds: float | None = None
    """About how long it waits in line before it gives up. None: for ever."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Reads an inbox, processes, and writes results in transactions under a key, which it shares with others."""

    name: str
    region: str
    key: str
    """Also the name of its subscription, and part of the name of the topic for its results."""
    inbox: str
    place: str = ""
    """Where it runs; empty: in its region."""
    begins_seconds: float = 0.0
    type: str = "SHARED"
    cumulative: bool = False
    at_once: int = 3
    """So many messages it takes in one transaction at most."""
    think_seconds: float = 0.05
    """About how long it leaves a transaction open when everything is in it."""
    fails: float = 0.2
    """How often it aborts a transaction, or forgets it."""
    rest_seconds: float = 1.0
    """About how long it leaves the key to others, when it lost it."""
    timeout_seconds: float = 30.0
    """Of its transactions."""
    queue: int = 20
    keeps_clients: bool = False
    """Of those with the key, it works to the end once everything is repaired."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    kind: str
    topology: Topology
    topics: tuple[str, ...]
    producers: tuple[ProducerPlan, ...]
    consumers: tuple[ConsumerPlan, ...]
    readers: tuple[ReaderPlan, ...] = ()
    claimants: tuple[ClaimantPlan, ...] = ()
    workers: tuple[WorkerPlan, ...] = ()
    acts: tuple[Act, ...] = ()
    """What else is done, each once, by whom and when: see `tests.swarm.workload`."""
    faults: tuple[Fault, ...] = ()
    disks: tuple[tuple[str, DiskFaults], ...] = ()
    """Faults of each region's disk until the repair. RemoteFaults: the region has a remote log."""
    clocks: tuple[tuple[str, float, float], ...] = ()
    """(region, offset in ms, drift in parts per million)."""
    break_seconds: float = 15.0
    """How long things go wrong."""
    heal_seconds_max: float = 180.0
    """Everything must have converged within this time after the repair."""
    restarts_at_the_end: bool = False
    """When all is repaired and consumed, every region is killed and started once more."""
    variation: int = 0
    """The same plan with other luck. A seed's own is 0; the shrinker tries others."""

    @property
    def regions(self) -> tuple[str, ...]:
        return self.topology.region_names

    @property
    def clients(self) -> tuple[str, ...]:
        """Their names."""
        parts: tuple[ProducerPlan | ConsumerPlan | ReaderPlan | ClaimantPlan | WorkerPlan, ...]
        parts = (*self.producers, *self.consumers, *self.readers, *self.claimants, *self.workers)
        return tuple(one.name for one in parts)


def with_settings(topology: Topology, **settings: Any) -> Topology:
    """The same with these settings in every region."""
    clusters = tuple(
        replace(
            cluster,
            regions=tuple(
                replace(one, settings=replace(one.settings, **settings)) for one in cluster.regions
            ),
        )
        for cluster in topology.clusters
    )
    return replace(topology, clusters=clusters)
