"""The actors of a scenario: their specifications, their counts, and the commands that the runner sends them.

An actor uses the real `pulsar-client` or geoemu's own client in a separate process (`processes.py`), is a program of
the user (`program.py`), uses geoemu's client in virtual time, or no client in tests. The runner uses all actors except
programs through this module alone.

Standard library only: every actor process imports this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

ConsumerType = Literal["exclusive", "shared", "failover", "key_shared"]
AcknowledgeMode = Literal["individual", "cumulative"]
AccessWord = Literal["shared", "exclusive", "wait", "fencing"]
"""Access mode of a producer (PIP-68)."""


def logs_of(topic: str, partitions: int) -> tuple[str, ...]:
    """Return the topics that store the messages of a topic: its partitions, or the topic itself if it has none."""
    return tuple(f"{topic}-partition-{index}" for index in range(partitions)) or (topic,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnOneTopic:
    """What works on one topic, or on all its partitions, in one region at a time."""

    name: str
    region: str
    topic: str
    partitions: int = 0
    """Number of partitions of the topic; 0: it is not partitioned."""

    @property
    def topics(self) -> tuple[str, ...]:
        return logs_of(self.topic, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec(_OnOneTopic):
    """One producer. `format.entries.ProducerEntry` documents the fields and their defaults."""

    rate_per_second: float | None
    """Publish rate in messages per second. None: as fast as the region accepts them."""
    messages: int | None
    """Number of messages to publish. None: unlimited, until the step `finish`."""
    message_bytes: int
    batching: bool
    batching_delay_ms: int
    send_timeout_ms: int
    """Time after which a publish fails in the client. 0: never."""
    max_pending: int
    keyed: bool = False
    access: AccessWord = "shared"
    priority: int = 0
    """Priority in the wait queue, with `access` "wait" (PIP-440)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec(_OnOneTopic):
    """One consumer. `format.entries.ConsumerEntry` documents the fields and their defaults."""

    subscription: str
    type: ConsumerType
    replicated: bool
    acknowledge: AcknowledgeMode
    receiver_queue: int
    leaves_unacknowledged: int = 0

    @property
    def read(self) -> tuple[str, ...]:
        """Topics whose messages the actor acknowledges."""
        return self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec(_OnOneTopic):
    """The user's own program. `format.entries.ProgramEntry` documents the fields and their defaults."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    subscriptions: tuple[str, ...]
    restarts: bool
    stop_seconds: float
    tapped: bool = False
    """Whether a tap records the program's connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A host that owns topics and waits for others. `format.entries.HostEntry` documents the fields."""

    name: str
    region: str
    group: str
    """Name of the scenario's entry that declares the host."""
    topics: tuple[str, ...]
    own: tuple[str, ...]
    """Topics that the host claims when it begins."""
    priorities: tuple[int, ...]
    """Priority in the wait queue of each topic; parallel to `topics`."""
    heartbeats_per_second: float
    rebuilds: bool
    """Whether the host, as a new owner, reads a topic from the beginning before it writes to it."""
    reports_to: str | None = None
    """Full name of a topic to which the host reports in transactions; None: it does not report."""

    @property
    def topic(self) -> str:
        return self.topics[0]

    def priority_of(self, topic: str) -> int:
        return self.priorities[self.topics.index(topic)]

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the host of a dictionary that `dataclasses.asdict` and JSON produced."""
        spelled: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**spelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A consume-process-produce program with transactions. `format.entries.TaskEntry` documents the fields."""

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
        """The input topic and the output topic."""
        return (self.topic, self.to)

    @property
    def read(self) -> tuple[str, ...]:
        """Topics whose messages the actor acknowledges."""
        return (self.topic,)


ActorSpec = ProducerSpec | ConsumerSpec | ProgramSpec | HostSpec | TaskSpec

HostVerb = Literal["kill", "stop", "start", "pause", "resume"]
"""Verbs of steps that change a host or a task."""
ProgramVerb = Literal["kill", "stop", "start", "restart", "pause", "resume"]
"""Verbs of steps that change a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counters of one actor so far. Fields that do not apply to a kind of actor stay at their defaults."""

    region: str
    """Region to which the actor is connected, or tries to connect."""
    connected: bool = False
    """Whether the actor's client is connected; for a host: whether it owns or waits for a topic; for a program: whether
    it runs."""
    asked: int = 0
    """Number of publish requests. Invariant: asked >= ok + failed + unknown."""
    ok: int = 0
    failed: int = 0
    unknown: int = 0
    publishing: bool = False
    """Whether the actor will publish further messages."""
    received: int = 0
    """Number of different messages received."""
    repeated: int = 0
    """Number of deliveries of messages that the actor had received before."""
    holds: tuple[str, ...] = ()
    """Topics that a host owns and has published its introduction to."""
    waits: int = 0
    """Number of topics in whose wait queue the actor is."""
    processed: int = 0
    """Number of messages in transactions for which a task received the response that they are committed."""
    fenced: bool = False
    """Whether a newer task has taken the task's transaction key over."""

    def and_then(self, later: Counts) -> Counts:
        """Return the sum of these counters and those after a restart (`later`), with all other fields of `later`."""
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
        """Return the counts of a dead or paused actor, which has no connection and no topics and waits in no queue."""
        return replace(self, connected=False, publishing=False, holds=(), waits=0)

    def ended(self) -> Counts:
        """Return the counts of a dead actor, whose pending publishes are unknown."""
        return replace(self.at_rest(), unknown=self.unknown + self.pending)

    @property
    def pending(self) -> int:
        """Number of publishes without an outcome."""
        return self.asked - self.ok - self.failed - self.unknown


class ActorFailure(Exception):
    """An actor did not complete a command; the message contains the reason."""


class Actor(Protocol):
    """A running actor.

    `begin`, `move` and `finish` return when the operation is complete, raise ActorFailure when it cannot complete, and
    have no deadline: the caller sets one. After cancellation only `leave` may be called.
    """

    @property
    def part(self) -> ActorSpec: ...

    @property
    def counts(self) -> Counts:
        """The latest counts that the actor reported."""
        ...

    @property
    def problem(self) -> str | None:
        """Why the actor ended although no command ended it; None if it did not."""
        ...

    async def begin(self, service_url: str) -> None:
        """Connect to the region of `part` and begin to work. Returns when the producer or subscription is open."""
        ...

    async def move(self, region: str, service_url: str) -> None:
        """Continue in another region, with the same producer name or subscription. The former region may be dead."""
        ...

    async def finish(self) -> None:
        """Stop: a producer stops publishing and waits until every publish has an outcome, a consumer stops receiving
        and closes."""
        ...

    async def leave(self) -> None:
        """End within a few seconds, in any state. Never raises; a second call has no effect."""
        ...


class RestartableActor(Actor, Protocol):
    """A running host or task, which the scenario can kill, stop, pause and start."""

    async def change(self, verb: HostVerb) -> None:
        """Apply a verb to the actor. Raises ActorFailure if it is impossible in the actor's state."""
        ...


class HostActor(RestartableActor, Protocol):
    """A running host. `begin` returns when it owns, or waits for, each of its own topics."""

    async def join_queues(self) -> None:
        """Claim all topics that are not the host's own. Returns when the host is in each wait queue."""
        ...


CreateActor = Callable[[ActorSpec], Actor]
"""Creates the actor of a specification. The actor does nothing before `begin`."""
