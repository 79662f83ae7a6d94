"""The plan of a run, drawn from one seed: its topology, its programs, and its faults with their times.

A plan is a plain value. `generator` draws it from a seed, `runner` runs it, `shrink` removes parts of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from emulator.client import Batching
from emulator.config.topology import Topology
from emulator.simulation.durable_media import DiskFaults
from tests.swarm.faults import Fault

if TYPE_CHECKING:
    from tests.swarm.workload import Act


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """A producer that publishes to one topic of one region, in bursts."""

    name: str
    region: str
    topic: str
    messages: int
    place: str = ""
    """Network location of the program's host: a region name; empty: `region`."""
    burst: int = 5
    pause_seconds: float = 0.3
    batching: Batching | None = None
    payload_bytes: int = 64
    choosy: float = 0.0
    """Probability that the producer restricts a message to some regions (`replicate_to`)."""
    repeats: float = 0.0
    """Probability that the producer sends a message twice in a row with the same sequence id."""
    key: str | None = None
    """Key of each message; not for batches."""
    keeps_outbox: bool = True
    """Whether the producer resends, after a restart, every publish without a response with its former sequence id.
    Otherwise it continues with new messages after the last sequence id that the region returns."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """A consumer of one subscription of one topic, in one region after the other."""

    name: str
    subscription: str
    topic: str
    region: str
    type: str = "EXCLUSIVE"
    replicated: bool = False
    moves: tuple[tuple[float, str], ...] = ()
    """(time in seconds, region) of each move to another region."""
    cumulative: bool = False
    confirmed: float = 0.5
    """Probability that the consumer waits for the response to an acknowledgement."""
    refuses: float = 0.0
    """Probability of a negative acknowledgement."""
    holds: int = 0
    """Number of messages whose individual acknowledgements the consumer delays and sends out of order."""
    think_seconds: float = 0.01
    queue: int = 20
    key_ranges: tuple[tuple[int, int], ...] = ()
    """KEY_SHARED: ranges (first, last) of hashes; empty: the region assigns the ranges."""
    out_of_order: bool = False
    """KEY_SHARED: allow delivery of a key before its former consumer has acknowledged the key's messages."""
    consumer_name: str = ""
    """The consumer name in the subscribe request; empty: `name`. Several consumers may have the same."""


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """A reader of one topic of one region, from the earliest message."""

    name: str
    region: str
    topic: str
    queue: int = 20


@dataclass(frozen=True, slots=True)
class ClaimantPlan:
    """A producer that requests exclusive access to a topic of a region, publishes, closes and requests it again."""

    name: str
    region: str
    topic: str
    mode: str
    """Access mode until the world heals; afterwards WAIT_FOR_EXCLUSIVE."""
    priority: int = 0
    place: str = ""
    """Network location of the program's host: a region name; empty: `region`."""
    messages: int = 40
    """Number of messages until the world heals; after them the claimant holds the topic without publishing."""
    burst: int = 2
    pause_seconds: float = 0.1
    holds_seconds: float = 1.0
    """Mean time for which the claimant holds the topic before it closes the producer."""
    gives_up_seconds: float | None = None
    """Mean time that the claimant waits for access before it gives up; None: without limit."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """A program that consumes an inbox and publishes results in transactions, under a key that programs share."""

    name: str
    region: str
    key: str
    """Transaction key; also the name of the subscription and part of the name of the outbox."""
    inbox: str
    place: str = ""
    """Network location of the program's host: a region name; empty: `region`."""
    begins_seconds: float = 0.0
    type: str = "SHARED"
    cumulative: bool = False
    at_once: int = 3
    """Largest number of messages in one transaction."""
    think_seconds: float = 0.05
    """Longest delay between the last operation of a transaction and its end."""
    fails: float = 0.2
    """Probability that the program aborts a transaction or leaves it open."""
    rest_seconds: float = 1.0
    """Mean time for which the program waits before it connects again after it failed or was fenced."""
    timeout_seconds: float = 30.0
    """Timeout of the program's transactions."""
    queue: int = 20
    keeps_clients: bool = False
    """Whether this program of the key continues to the end of the run; the others end after healing."""


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
    """Operations of workloads, each performed once: see `tests.swarm.workload`."""
    faults: tuple[Fault, ...] = ()
    disks: tuple[tuple[str, DiskFaults], ...] = ()
    """(region, faults of its disk until the world heals). RemoteFaults: the region has a remote log."""
    clocks: tuple[tuple[str, float, float], ...] = ()
    """(region, offset in ms, drift in parts per million) of each wrong wall clock."""
    break_seconds: float = 15.0
    """Duration of the break phase, in which faults occur."""
    heal_seconds_max: float = 180.0
    """Deadline for convergence after the end of the break phase."""
    restarts_at_the_end: bool = False
    """Whether every region is killed and started once more after all messages are consumed."""
    variation: int = 0
    """Part of the seed of the run's random sources. A drawn plan has 0; the shrinker tries other values."""

    @property
    def regions(self) -> tuple[str, ...]:
        return self.topology.region_names

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all programs of the plan."""
        parts: tuple[ProducerPlan | ConsumerPlan | ReaderPlan | ClaimantPlan | WorkerPlan, ...]
        parts = (*self.producers, *self.consumers, *self.readers, *self.claimants, *self.workers)
        return tuple(one.name for one in parts)


def with_settings(topology: Topology, **settings: Any) -> Topology:
    """Return the topology with these settings in every region."""
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


def with_programs(random: Random, plan: Plan, draw: Callable[[Random, Plan], Act]) -> Plan:
    """Add one to three programs, each with two regions; none if the plan has a single region."""
    if len(plan.regions) < 2:
        return plan
    return replace(plan, acts=(*plan.acts, *(draw(random, plan) for _ in range(random.randint(1, 3)))))
