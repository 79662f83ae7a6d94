"""The cast of a scenario file: who publishes, who receives, and which programs of your own take part."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import (
    Field,
    model_validator,
)

from emulator.scenarios.hosts import HostEntry
from emulator.scenarios.model_base import Written
from emulator.scenarios.tasks import TaskEntry
from emulator.scenarios.types import (
    LIST,
    NOT_EMPTY,
    NewActorName,
    Rate,
    Region,
    Seconds,
    Topic,
    lasting,
    rule,
)
from emulator.scenarios.workload import (
    AccessWord,
    AcknowledgeMode,
    ConsumerPart,
    ConsumerType,
    ProducerPart,
    ProgramPart,
)


class ProducerEntry(Written):
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

    def part(self, default_topic: str) -> ProducerPart:
        return ProducerPart(
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


class ConsumerEntry(Written):
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

    def part(self, default_topic: str) -> ConsumerPart:
        return ConsumerPart(
            name=self.name,
            region=self.region,
            topic=self.topic or default_topic,
            subscription=self.subscription,
            type=self.type,
            replicated=self.replicated,
            acknowledge=self.acknowledge,
            receiver_queue=self.receiver_queue,
        )


class ProgramEntry(Written):
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

    def part(self, default_topic: str) -> ProgramPart:
        return ProgramPart(
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


class Cast(Written):
    """The actors of a scenario."""

    producers: Annotated[tuple[ProducerEntry, ...], LIST] = ()
    consumers: Annotated[tuple[ConsumerEntry, ...], LIST] = ()
    programs: Annotated[tuple[ProgramEntry, ...], LIST] = ()
    hosts: Annotated[tuple[HostEntry, ...], LIST] = ()
    tasks: Annotated[tuple[TaskEntry, ...], LIST] = ()
