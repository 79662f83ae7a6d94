"""The cast of a scenario file: who publishes, who receives, and which programs of your own take part."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import (
    Field,
    model_validator,
)

from emulator.scenarios.hosts import HostEntry
from emulator.scenarios.tasks import TaskEntry
from emulator.scenarios.words import (
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
from emulator.scenarios.written import Written


class ProducerEntry(Written):
    """Somebody who publishes."""

    name: NewActorName
    """Name of the actor, of its history file and of the Pulsar producer."""
    region: Region
    """Region that it publishes in."""
    topic: Topic | None = None
    """Topic that it publishes to; the scenario's when left out."""
    rate_per_second: Rate = 100.0
    """Messages per second; `unlimited`: as fast as the region takes them."""
    messages: Annotated[int, Field(gt=0)] | None = None
    """It stops by itself after this many; when left out, it goes on until `finish`."""
    message_bytes: Annotated[int, Field(ge=0)] = 200
    """Size of a message. It is never smaller than what says whose message it is (about 100 bytes)."""
    batching: bool = True
    """Whether the client puts messages together into batches."""
    batching_delay: Seconds = lasting("10ms")
    """How long the client waits to fill a batch."""
    send_timeout: Seconds = lasting("30s")
    """After this the client gives a publish up, and its outcome is unknown. `0s`: never."""
    max_pending: Annotated[int, Field(gt=0)] = 10_000
    """Publishes without an outcome after which the producer waits before it publishes more."""
    keyed: bool = False
    """Whether each message has a key of its own: `<name>-<number>`."""
    access: AccessWord = "shared"
    """How it shares its topic (PIP-68): `exclusive` is refused while there is another producer, `wait` waits until
    there is none, `fencing` throws out who is there."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    """Its priority in the line of those who wait, highest first (PIP-440)."""

    @model_validator(mode="after")
    def _priority_counts(self) -> Self:
        if self.priority and self.access != "wait":
            raise rule("a priority counts for `access: wait` only")
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
    """Somebody who receives and acknowledges, from the earliest message on."""

    name: NewActorName
    """Name of the actor, of its history file and of the Pulsar consumer."""
    region: Region
    """Region that it begins in."""
    topic: Topic | None = None
    """Topic that it receives from; the scenario's when left out."""
    subscription: Annotated[str, Field(min_length=1)]
    """Subscription that it belongs to."""
    type: ConsumerType = "exclusive"
    """How the subscription shares messages among its consumers."""
    replicated: bool = False
    """Whether the subscription's position follows to the other regions (PIP-33)."""
    acknowledge: AcknowledgeMode = "individual"
    """Each message by itself, or all up to it."""
    receiver_queue: Annotated[int, Field(gt=0)] = 1000
    """Messages that the client fetches ahead."""

    @model_validator(mode="after")
    def _acknowledgement_fits_type(self) -> Self:
        if self.acknowledge == "cumulative" and self.type in ("shared", "key_shared"):
            raise rule(f"a {self.type} subscription is acknowledged one by one, not cumulatively")
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
    """A program of your own, which is told by its environment where it is (docs/OWN_SERVICE.md)."""

    name: NewActorName
    """Name of the actor and of its history file."""
    region: Region
    """Region that it begins in."""
    command: Annotated[tuple[str, ...], LIST, NOT_EMPTY, Field(json_schema_extra={"minItems": 1})]
    """What to start, in the folder that geoemu was started in: a program and its arguments, without a shell. `python`:
    the one that geoemu runs with."""
    environment: dict[str, str] = {}  # noqa: RUF012 (pydantic copies it)
    """Further variables."""
    topic: Topic | None = None
    """Topic of its subscriptions; the scenario's when left out."""
    subscriptions: Annotated[tuple[str, ...], LIST] = ()
    """Subscriptions of its that a step may wait for."""
    tap: bool = False
    """Whether it is recorded on the wire, for it does not record itself: it is told other service URLs."""
    restarts: bool = False
    """Whether it is started again when it ends by itself with an exit code other than 0, as a supervisor would."""
    stop_within: Seconds = lasting("5s")
    """How long it may take to end when it is told to (SIGTERM); then it is killed."""

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
    """Who takes part."""

    producers: Annotated[tuple[ProducerEntry, ...], LIST] = ()
    consumers: Annotated[tuple[ConsumerEntry, ...], LIST] = ()
    programs: Annotated[tuple[ProgramEntry, ...], LIST] = ()
    hosts: Annotated[tuple[HostEntry, ...], LIST] = ()
    tasks: Annotated[tuple[TaskEntry, ...], LIST] = ()
