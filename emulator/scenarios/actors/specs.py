"""The actors of a scenario: their specifications, their counts, and the commands that the runner gives them.

An actor works with the real `pulsar-client` in a process of its own (`processes.py`), with geoemu's client in virtual
time, or with no client in the runner's own tests. The runner knows actors only by this module.

Standard library only: every actor process imports this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

ConsumerType = Literal["exclusive", "shared", "failover", "key_shared"]
AcknowledgeMode = Literal["individual", "cumulative"]
AccessWord = Literal["shared", "exclusive", "wait", "fencing"]
"""How a producer shares its topic (PIP-68)."""


def logs_of(topic: str, partitions: int) -> tuple[str, ...]:
    """The topics that its messages are in: itself, or its partitions."""
    return tuple(f"{topic}-partition-{index}" for index in range(partitions)) or (topic,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """One producer: fields are explained, and have their defaults, in `scenario.ProducerEntry`."""

    name: str
    region: str
    topic: str
    rate_per_second: float | None
    """None: as fast as the region takes them."""
    messages: int | None
    """None: until the scenario finishes it."""
    message_bytes: int
    batching: bool
    batching_delay_ms: int
    send_timeout_ms: int
    """0: never."""
    max_pending: int
    keyed: bool = False
    access: AccessWord = "shared"
    priority: int = 0
    """Of one that waits (PIP-440)."""
    partitions: int = 0
    """Of its topic; 0: it has none."""

    @property
    def topics(self) -> tuple[str, ...]:
        return logs_of(self.topic, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer: fields are explained, and have their defaults, in `scenario.ConsumerEntry`."""

    name: str
    region: str
    topic: str
    subscription: str
    type: ConsumerType
    replicated: bool
    acknowledge: AcknowledgeMode
    receiver_queue: int
    partitions: int = 0
    """Of its topic; 0: it has none."""

    @property
    def topics(self) -> tuple[str, ...]:
        return logs_of(self.topic, self.partitions)

    @property
    def read(self) -> tuple[str, ...]:
        """Those that it acknowledges messages of."""
        return self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec:
    """The user's own program: fields are explained, and have their defaults, in `scenario.ProgramEntry`."""

    name: str
    region: str
    topic: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    subscriptions: tuple[str, ...]
    restarts: bool
    stop_seconds: float
    tapped: bool = False
    """Whether it is recorded on the wire."""
    partitions: int = 0
    """Of its topic; 0: it has none."""

    @property
    def topics(self) -> tuple[str, ...]:
        return logs_of(self.topic, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A host that owns topics and waits for others: `scenario.HostEntry`."""

    name: str
    region: str
    group: str
    """The entry of the scenario that it belongs to."""
    topics: tuple[str, ...]
    own: tuple[str, ...]
    """Those that it asks for first."""
    priorities: tuple[int, ...]
    """For each of `topics`."""
    heartbeats_per_second: float
    rebuilds: bool
    """Whether it reads a topic that it gets before it writes to it."""
    reports_to: str | None = None
    """Full name of a topic to which it reports in transactions; None: it does not report."""

    @property
    def topic(self) -> str:
        return self.topics[0]

    def priority_of(self, topic: str) -> int:
        return self.priorities[self.topics.index(topic)]

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """What `dataclasses.asdict` and JSON made of it."""
        spelled: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**spelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A consume-process-produce program with transactions: `tasks.TaskEntry`."""

    name: str
    region: str
    topic: str
    to: str
    subscription: str
    type: ConsumerType
    replicated: bool
    acknowledge: AcknowledgeMode
    transaction_key: str | None
    timeout_seconds: float
    messages_per_transaction: int
    commit_seconds: float
    message_seconds: float

    @property
    def topics(self) -> tuple[str, ...]:
        """The first one it reads, the second it writes."""
        return (self.topic, self.to)

    @property
    def read(self) -> tuple[str, ...]:
        """Those that it acknowledges messages of."""
        return (self.topic,)


ActorSpec = ProducerSpec | ConsumerSpec | ProgramSpec | HostSpec | TaskSpec

HostVerb = Literal["kill", "stop", "start", "pause", "resume"]
"""What can be done to a host, or a task."""
ProgramVerb = Literal["kill", "stop", "start", "restart", "pause", "resume"]
"""What can be done to a program, as to a region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counters of one actor so far. A producer leaves a consumer's fields at 0, and vice versa."""

    region: str
    """Where it is now, or is trying to be."""
    connected: bool = False
    """Whether its client reports a connection."""
    asked: int = 0
    """Publishes begun. Invariant: asked >= ok + failed + unknown."""
    ok: int = 0
    failed: int = 0
    unknown: int = 0
    publishing: bool = False
    """Whether it goes on to publish more."""
    received: int = 0
    """Different messages received."""
    repeated: int = 0
    """Deliveries of a message that it had received before."""
    holds: tuple[str, ...] = ()
    """Topics that a host owns, and wrote its introduction to."""
    waits: int = 0
    """Topics in whose wait queue it is."""
    processed: int = 0
    """Messages that a task processed in transactions that it knows to be committed."""
    fenced: bool = False
    """A newer task has its transaction key."""

    def and_then(self, later: Counts) -> Counts:
        """The sums of two lives; where it is, and what it has, is the later one's."""
        return replace(
            later,
            asked=self.asked + later.asked,
            ok=self.ok + later.ok,
            failed=self.failed + later.failed,
            unknown=self.unknown + later.unknown,
            received=self.received + later.received,
            repeated=self.repeated + later.repeated,
            processed=self.processed + later.processed,
        )

    def at_rest(self) -> Counts:
        """The counts of a dead or frozen actor: it has no connection, topic or place in a queue."""
        return replace(self, connected=False, publishing=False, holds=(), waits=0)

    def ended(self) -> Counts:
        """The counts of a dead actor: its pending publishes stay unknown."""
        return replace(self.at_rest(), unknown=self.unknown + self.pending)

    @property
    def pending(self) -> int:
        """Publishes whose outcome is still awaited."""
        return self.asked - self.ok - self.failed - self.unknown


class ActorFailure(Exception):
    """An actor did not carry out a command; the message contains the reason."""


class Actor(Protocol):
    """One producer or consumer at work.

    `begin`, `move` and `finish` return when the operation is complete, raise ActorFailure when it cannot complete, and
    have no deadline: the caller sets one. After cancellation only `leave` may be called.
    """

    @property
    def part(self) -> ActorSpec: ...

    @property
    def counts(self) -> Counts:
        """The latest that is known."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it ended without having been asked to; None while all is well."""
        ...

    async def begin(self, service_url: str) -> None:
        """Connect in the part's region: the producer is accepted, the subscription exists. Then work."""
        ...

    async def move(self, region: str, service_url: str) -> None:
        """Go on in another region, under the same name or subscription. The region it leaves may be dead."""
        ...

    async def finish(self) -> None:
        """A producer publishes no more and waits until every publish has its outcome. A consumer receives no
        more and closes."""
        ...

    async def leave(self) -> None:
        """End, whatever state it is in, within a few seconds. Never raises; a second call does nothing."""
        ...


class RestartableActor(Actor, Protocol):
    """A host or a task at work."""

    async def change(self, verb: HostVerb) -> None:
        """Do it to the actor. ActorFailure when it is not possible as things are."""
        ...


class HostActor(RestartableActor, Protocol):
    """A host at work. `begin` ends when it has its share, or waits for it."""

    async def join_queues(self) -> None:
        """Wait for all the topics that are not its own. Ends when it has a place in each line."""
        ...


CreateActor = Callable[[ActorSpec], Actor]
"""Finds an actor for a part. It does nothing before `begin`."""
