"""The cast of a scenario file: who publishes, who receives, and which programs of your own take part."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from emulator.model.transaction_names import check_key
from emulator.scenarios.actor_models.specs import (
    AccessWord,
    AcknowledgeMode,
    ConsumerSpec,
    ConsumerType,
    HostSpec,
    ProducerSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.actor_models.topic_assignment import hosts_named, own_topics, priorities, topics_named
from emulator.scenarios.types import (
    LIST,
    NOT_EMPTY,
    Deadline,
    FormatModel,
    HostName,
    NewActorName,
    Rate,
    Region,
    Seconds,
    TaskName,
    TimeSpan,
    Topic,
    exactly_one,
    lasting,
    rule,
)


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
    def _priority_counts(self) -> Self:
        if self.priority and self.access != "wait":
            raise rule("a priority requires `access: wait`")
        return self

    def part(self, default_topic: str) -> ProducerSpec:
        return ProducerSpec(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            rate_per_second=None if math.isinf(self.rate_per_second) else self.rate_per_second,
            messages=self.messages,
            message_bytes=self.message_bytes,
            batching=self.batching,
            batching_delay_ms=round(self.batching_delay * 1000),
            send_timeout_ms=round(self.send_timeout * 1000),
            max_pending=self.max_pending,
            keyed=self.keyed,
            access=self.access,
            priority=self.priority,
        )


class ConsumerEntry(FormatModel):
    """A consumer. It starts at the earliest message and acknowledges every message."""

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

    @model_validator(mode="after")
    def _acknowledgement_fits_type(self) -> Self:
        if self.acknowledge == "cumulative" and self.type in ("shared", "key_shared"):
            raise rule(f"a {self.type} subscription allows individual acknowledgements only")
        return self

    def part(self, default_topic: str) -> ConsumerSpec:
        return ConsumerSpec(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            subscription=self.subscription,
            type=self.type,
            replicated=self.replicated,
            acknowledge=self.acknowledge,
            receiver_queue=self.receiver_queue,
        )


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

    def part(self, default_topic: str) -> ProgramSpec:
        return ProgramSpec(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            command=self.command,
            environment=tuple(self.environment.items()),
            subscriptions=self.subscriptions,
            restarts=self.restarts,
            stop_seconds=self.stop_within,
            tapped=self.tap,
        )


class Actors(FormatModel):
    """The actors of a scenario."""

    producers: Annotated[tuple[ProducerEntry, ...], LIST] = ()
    consumers: Annotated[tuple[ConsumerEntry, ...], LIST] = ()
    programs: Annotated[tuple[ProgramEntry, ...], LIST] = ()
    hosts: Annotated[tuple[HostEntry, ...], LIST] = ()
    tasks: Annotated[tuple[TaskEntry, ...], LIST] = ()


Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class HostEntry(FormatModel):
    """Hosts that own topics: each topic has one owner, and all other hosts wait for it."""

    name: NewActorName
    """Name of the host, of its history file and of its Pulsar producers; with `count`: `<name>-1`, `<name>-2`, …"""
    count: Annotated[int, Field(gt=1)] | None = None
    """Number of hosts; default: one, whose name has no number."""
    region: Region
    """Their region."""
    topic: Topic | None = None
    """Topic; default: the scenario's topic."""
    topics: Annotated[int, Field(gt=0)] | None = None
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
        return hosts_named(self.name, self.count)

    def parts(self, default_topic: str) -> tuple[HostSpec, ...]:
        topics = topics_named(self.topic or default_topic, self.topics)
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


class HostCondition(Deadline):
    """A host owns this number of topics."""

    host: HostName
    owns: Annotated[int, Field(ge=0)]
    """Exact number of topics."""


class TopicsOwnedCondition(Deadline):
    """Every topic of the hosts has a running owner that has published its introduction."""

    topics: Literal["owned"]


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
    def _may_be_one(cls, key: str | None) -> str | None:
        try:
            return key if key is None else check_key(key)
        except ValueError as problem:
            raise rule(str(problem)) from None

    @model_validator(mode="after")
    def _acknowledgement_fits_type(self) -> Self:
        if self.acknowledge == "cumulative" and self.type in ("shared", "key_shared"):
            raise rule(f"a {self.type} subscription requires `acknowledge: individual`")
        return self

    def part(self, default_topic: str) -> TaskSpec:
        return TaskSpec(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            to=self.to,
            subscription=self.subscription,
            type=self.type,
            replicated=self.replicated,
            acknowledge=self.acknowledge,
            transaction_key=self.transaction_key,
            timeout_seconds=self.transaction_timeout,
            messages_per_transaction=self.messages_per_transaction,
            commit_seconds=self.commit_after,
            message_seconds=self.message_time,
        )


class TaskCondition(Deadline):
    """A task has received or processed a number of messages, or is fenced."""

    task: TaskName
    received: Annotated[int, Field(gt=0)] | None = None
    """Number of different messages, in total."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""
    processed: Annotated[int, Field(gt=0)] | None = None
    """Number of messages in transactions that it knows to be committed, in total."""
    processed_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""
    fenced: bool | None = None
    """A newer task with its transaction key has fenced it, and it has ended."""

    @field_validator("fenced")
    @classmethod
    def _comes_true(cls, fenced: bool | None) -> bool | None:
        if fenced is False:
            raise rule("must be true: a step waits until the task is fenced")
        return fenced

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        return exactly_one(self, "received", "received_more", "processed", "processed_more", "fenced")

    @property
    def counts_processed(self) -> bool:
        return self.processed is not None or self.processed_more is not None

    @property
    def counts_from_now(self) -> bool:
        return self.received_more is not None or self.processed_more is not None

    @property
    def goal(self) -> int:
        return self.received or self.received_more or self.processed or self.processed_more or 0
