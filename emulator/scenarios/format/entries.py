"""The actors of a scenario file: producers, consumers, programs of the user, hosts and tasks."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from emulator.config.yaml_errors import rule
from emulator.model.transaction_names import check_key
from emulator.scenarios.actors.specs import (
    AccessWord,
    AcknowledgeMode,
    ConsumerSpec,
    ConsumerType,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.types import (
    LIST,
    NOT_EMPTY,
    FormatModel,
    NewActorName,
    Rate,
    Region,
    Seconds,
    TimeSpan,
    Topic,
    lasting,
)

S = TypeVar("S", ProducerSpec, ConsumerSpec, ProgramSpec, TaskSpec)


def _spec(entry: FormatModel, kind: type[S], **fields: Any) -> tuple[S]:
    """Return the actor of an entry, from the entry's fields of the same names and `fields`."""
    same = {one.name for one in dataclasses.fields(kind)} & type(entry).model_fields.keys() - fields.keys()
    return (kind(**{name: getattr(entry, name) for name in same}, **fields),)


class ProducerEntry(FormatModel):
    """A producer."""

    name: NewActorName
    """Name of the actor, of its history file and of the Pulsar producer."""
    region: Region
    """Region that it publishes in, until a step moves it."""
    topic: Topic | None = None
    """Topic that it publishes to; default: the scenario's topic."""
    rate_per_second: Rate = 100.0
    """Messages per second; `unlimited`: as fast as the region accepts them."""
    messages: Annotated[int, Field(gt=0)] | None = None
    """Number of messages after which it stops; default: it publishes until the step `finish`."""
    message_bytes: Annotated[int, Field(ge=0)] = 200
    """Size of a message in bytes; at least the text that identifies it (about 100 bytes)."""
    batching: bool = True
    """Whether the client batches messages."""
    batching_delay: Seconds = lasting("10ms")
    """Maximum delay of a batch."""
    send_timeout: Seconds = lasting("30s")
    """Time after which a publish fails in the client; its outcome is unknown. `0s`: never."""
    max_pending: Annotated[int, Field(gt=0)] = 10_000
    """Maximum number of pending publishes."""
    keyed: bool = False
    """Whether each message has its own key, `<name>-<number>`."""
    access: AccessWord = "shared"
    """Access mode (PIP-68): `exclusive` fails while the topic has another producer, `wait` waits until it has none,
    `fencing` fences the other producers."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    """Priority in the wait queue, highest first (PIP-440)."""

    @model_validator(mode="after")
    def _priority_requires_wait(self) -> Self:
        if self.priority and self.access != "wait":
            raise rule("a priority requires `access: wait`")
        return self

    def parts(self, default_topic: str) -> tuple[ProducerSpec, ...]:
        return _spec(
            self,
            ProducerSpec,
            topic=self.topic or default_topic,
            rate_per_second=None if math.isinf(self.rate_per_second) else self.rate_per_second,
            batching_delay_ms=round(self.batching_delay * 1000),
            send_timeout_ms=round(self.send_timeout * 1000),
        )


class ConsumerEntry(FormatModel):
    """A consumer. It starts at the earliest message, and acknowledges every message but `leaves_unacknowledged`."""

    name: NewActorName
    """Name of the actor, of its history file and of the Pulsar consumer."""
    region: Region
    """Region that it starts in."""
    topic: Topic | None = None
    """Topic that it consumes; default: the scenario's topic."""
    subscription: Annotated[str, Field(min_length=1)]
    """Name of its subscription."""
    type: ConsumerType = "exclusive"
    """Subscription type."""
    replicated: bool = False
    """Whether the subscription is replicated (PIP-33)."""
    acknowledge: AcknowledgeMode = "individual"
    """Acknowledge each message, or all messages up to it."""
    receiver_queue: Annotated[int, Field(gt=0)] = 1000
    """Messages that the client prefetches."""
    leaves_unacknowledged: Annotated[int, Field(ge=0)] = 0
    """Number of a message, counted from 1 in the order of first deliveries, that it acknowledges only when it is
    delivered again; 0: none."""

    @model_validator(mode="after")
    def _acknowledgement_fits_type(self) -> Self:
        if self.acknowledge == "cumulative" and self.type in ("shared", "key_shared"):
            raise rule(f"a {self.type} subscription allows individual acknowledgements only")
        if self.acknowledge == "cumulative" and self.leaves_unacknowledged:
            raise rule("leaves_unacknowledged requires `acknowledge: individual`")
        return self

    def parts(self, default_topic: str) -> tuple[ConsumerSpec, ...]:
        return _spec(self, ConsumerSpec, topic=self.topic or default_topic)


class ProgramEntry(FormatModel):
    """Your own program. Environment variables contain its region and the service URLs (docs/OWN_SERVICE.md)."""

    name: NewActorName
    """Name of the actor and of its history file."""
    region: Region
    """Region that it starts in."""
    command: Annotated[tuple[str, ...], LIST, NOT_EMPTY, Field(json_schema_extra={"minItems": 1})]
    """Command and arguments, run without a shell in geoemu's working directory. `python` is geoemu's interpreter."""
    environment: dict[str, str] = {}  # noqa: RUF012 (pydantic copies it)
    """Additional environment variables."""
    topic: Topic | None = None
    """Topic of its subscriptions; default: the scenario's topic."""
    subscriptions: Annotated[tuple[str, ...], LIST] = ()
    """Its subscriptions, for steps that wait for one."""
    tap: bool = False
    """Whether a tap records it: it receives the service URLs of the tap."""
    restarts: bool = False
    """Whether it is started again when it ends by itself with an exit code other than 0, as a supervisor would."""
    stop_within: Seconds = lasting("5s")
    """Time to end after SIGTERM; then it is killed."""

    def parts(self, default_topic: str) -> tuple[ProgramSpec, ...]:
        return _spec(
            self,
            ProgramSpec,
            topic=self.topic or default_topic,
            environment=tuple(self.environment.items()),
            stop_seconds=self.stop_within,
            tapped=self.tap,
        )


Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]


HOSTS_MAX = 1_000
"""Maximum number of hosts of one entry, and of their topics."""


class HostEntry(FormatModel):
    """Hosts that own topics: each topic has one owner, and all other hosts wait for it."""

    name: NewActorName
    """Name of the host, of its history file and of its Pulsar producers; with `count`: `<name>-1`, `<name>-2`, …"""
    count: Annotated[int, Field(gt=1, le=HOSTS_MAX)] | None = None
    """Number of hosts; default: one, whose name has no number."""
    region: Region
    """Their region."""
    topic: Topic | None = None
    """Topic; default: the scenario's topic."""
    topics: Annotated[int, Field(gt=0, le=HOSTS_MAX)] | None = None
    """Number of topics: `<topic>-1`, `<topic>-2`, …; default: the topic alone."""
    priority: Priority | Literal["balanced", "random"] = 0
    """A number for all topics. `balanced`: the topics of a host go to each of the others in turn. `random`: a
    reproducible random number per host and topic."""
    standby: bool = False
    """Whether they own no topic at the start and only wait."""
    heartbeats_per_second: Annotated[float, Field(gt=0, strict=False)] = 2.0
    """Heartbeats per second of an owner on each of its topics."""
    rebuilds: bool = False
    """Whether a new owner first reads the topic from its beginning and continues from that state."""
    reports_to: Topic | None = None
    """A topic to which an owner publishes a report with each heartbeat, both in one transaction."""

    @property
    def names(self) -> tuple[str, ...]:
        return numbered(self.name, self.count)

    def parts(self, default_topic: str) -> tuple[HostSpec, ...]:
        topics = numbered(self.topic or default_topic, self.topics)
        count = self.count or 1
        return tuple(
            HostSpec(
                name=name,
                region=self.region,
                group=self.name,
                topics=topics,
                own=() if self.standby else own_topics(topics, index, count),
                priorities=priorities(self.priority, name, index, count, topics),
                heartbeats_per_second=self.heartbeats_per_second,
                rebuilds=self.rebuilds,
                reports_to=self.reports_to,
            )
            for index, name in enumerate(self.names)
        )


class TaskEntry(FormatModel):
    """A task: it consumes a topic, publishes to another one and acknowledges, all in transactions."""

    name: NewActorName
    """Name of the task, of its history file, of its Pulsar producer and consumer."""
    region: Region
    """Its region."""
    topic: Topic | None = None
    """Input topic; default: the scenario's topic."""
    to: Topic
    """Output topic: one message per input message, with the same key."""
    subscription: Annotated[str, Field(min_length=1)]
    """Name of its subscription."""
    type: ConsumerType = "failover"
    """Subscription type."""
    replicated: bool = False
    """Whether the subscription is replicated (PIP-33)."""
    acknowledge: AcknowledgeMode = "cumulative"
    """Acknowledge all messages of the transaction at once, or each one."""
    transaction_key: str | None = None
    """Only the newest task with this key continues; the open transaction of its predecessor is aborted at once."""
    transaction_timeout: TimeSpan = lasting("60s")
    """Time after which the region aborts an open transaction."""
    messages_per_transaction: Annotated[int, Field(gt=0, le=10_000)] = 100
    """Number of messages after which it commits a transaction."""
    commit_after: Seconds = lasting("1s")
    """Time after the first message of a transaction when it commits it."""
    message_time: Seconds = lasting("0ms")
    """Processing time per message."""

    @field_validator("transaction_key")
    @classmethod
    def _check_transaction_key(cls, key: str | None) -> str | None:
        try:
            return key if key is None else check_key(key)
        except ValueError as problem:
            raise rule(str(problem)) from None

    @model_validator(mode="after")
    def _acknowledgement_fits_type(self) -> Self:
        if self.acknowledge == "cumulative" and self.type in ("shared", "key_shared"):
            raise rule(f"a {self.type} subscription requires `acknowledge: individual`")
        return self

    def parts(self, default_topic: str) -> tuple[TaskSpec, ...]:
        return _spec(
            self,
            TaskSpec,
            topic=self.topic or default_topic,
            timeout_seconds=self.transaction_timeout,
            commit_seconds=self.commit_after,
            message_seconds=self.message_time,
        )


ActorEntry = ProducerEntry | ConsumerEntry | ProgramEntry | HostEntry | TaskEntry


class Actors(FormatModel):
    """The actors of a scenario."""

    producers: Annotated[tuple[ProducerEntry, ...], LIST] = ()
    consumers: Annotated[tuple[ConsumerEntry, ...], LIST] = ()
    programs: Annotated[tuple[ProgramEntry, ...], LIST] = ()
    hosts: Annotated[tuple[HostEntry, ...], LIST] = ()
    tasks: Annotated[tuple[TaskEntry, ...], LIST] = ()


PriorityRule = int | Literal["balanced", "random"]
RANDOM_PRIORITY_MAX = 1_000_000


def numbered(base: str, count: int | None) -> tuple[str, ...]:
    """Return names of topics or hosts: `orders`, or `orders-1` to `orders-<count>`."""
    return (base,) if count is None else tuple(f"{base}-{number}" for number in range(1, count + 1))


def own_topics(topics: Sequence[str], host_index: int, host_count: int) -> tuple[str, ...]:
    """Return the topics that a host owns at the start: every `host_count`-th topic."""
    return tuple(topics[host_index::host_count])


def priorities(
    rule: PriorityRule, host: str, host_index: int, host_count: int, topics: Sequence[str]
) -> tuple[int, ...]:
    """Return a host's priority for each topic.

    M hosts share N topics (the uptime checkers of PIP-440). Host i of M begins with every Mth topic, and waits for all
    others. The rule decides which host takes over a topic when its owner dies:

        a number    the same for each topic; 0 for all: the host that waited longest takes over every topic
        balanced    the topics of a host go to each of the others in turn
        random      each host has a number for each topic (rendezvous hashing of both names: always the same)
    """
    if rule == "balanced":
        return tuple(_balanced(host_index, host_count, index) for index in range(len(topics)))
    if rule == "random":
        return tuple(_random_priority(host, topic) for topic in topics)
    return tuple(rule for _ in topics)


def _balanced(host_index: int, host_count: int, topic_index: int) -> int:
    """Return the priority of a host for a topic. A topic's own host has the highest priority. The other hosts follow in
    ring order, which begins one host later for each further topic of the same host."""
    distance = (host_index - topic_index) % host_count
    if distance == 0:
        return host_count
    turn = topic_index // host_count
    return host_count - 1 - (distance - 1 - turn) % (host_count - 1)


def _random_priority(host: str, topic: str) -> int:
    digest = hashlib.blake2b(f"{host}\n{topic}".encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % RANDOM_PRIORITY_MAX
