"""Conditions that a step of a scenario file may wait for."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from emulator.config.yaml_errors import rule
from emulator.model.protocol_events import COUNT_MAX, MORE, PROTOCOL_EVENTS, ProtocolState
from emulator.scenarios.format.types import (
    AdminPath,
    ConsumerName,
    Deadline,
    HostName,
    ProducerName,
    ProgramName,
    Region,
    Subscription,
    TaskName,
    TimeSpan,
    Topic,
    exactly_one,
    lasting,
)


class CountCondition(Deadline):
    counters: ClassVar[tuple[str, ...]]
    """Names of counters. Each has two fields: `<counter>` in total, and `<counter>_more` since the step began."""
    alternatives: ClassVar[tuple[str, ...]] = ()
    """Names of fields that a step may wait for instead of a counter."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        counts = (field for counter in self.counters for field in (counter, f"{counter}_more"))
        return exactly_one(self, *counts, *self.alternatives)

    @property
    def counter(self) -> str | None:
        """The counter that the step waits for; None if it waits for one of the alternatives."""
        return next(
            (one for one in self.counters if getattr(self, one) or getattr(self, f"{one}_more")), None
        )

    @property
    def goal(self) -> int:
        counter = self.counter
        return 0 if counter is None else getattr(self, counter) or getattr(self, f"{counter}_more")

    @property
    def counts_from_now(self) -> bool:
        return any(getattr(self, f"{counter}_more") is not None for counter in self.counters)


class PublishedCondition(CountCondition):
    """A producer has received this number of receipts."""

    counters = ("published",)
    producer: ProducerName
    published: Annotated[int, Field(gt=0)] | None = None
    """In total."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""


class ReceivedCondition(CountCondition):
    """A consumer has received this number of different messages."""

    counters = ("received",)
    consumer: ConsumerName
    received: Annotated[int, Field(gt=0)] | None = None
    """In total."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""


class ProgramCondition(CountCondition):
    """Your program has recorded this number of operations, or has ended."""

    counters = ("published", "received")
    alternatives = ("exit_code",)
    program: ProgramName
    published: Annotated[int, Field(gt=0)] | None = None
    """Number of acknowledged publishes, in total."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""
    received: Annotated[int, Field(gt=0)] | None = None
    """Number of different positions of recorded deliveries, in total."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""
    region: Region | None = Field(default=None, alias="in")
    """Count operations in this region only, for a program that changes regions by itself."""
    exit_code: int | None = None
    """It has ended with this exit code."""

    @model_validator(mode="after")
    def _in_no_region(self) -> Self:
        if self.exit_code is not None and self.region is not None:
            raise ValueError("an exit code belongs to no region: omit `in`")
        return self


class SubscriptionExists(Deadline):
    """A region has the subscription: a replicated position has arrived there for the first time."""

    subscription: Subscription
    exists_in: Region


class HostCondition(Deadline):
    """A host owns this number of topics."""

    host: HostName
    owns: Annotated[int, Field(ge=0)]
    """Exact number of topics."""


class TopicsOwnedCondition(Deadline):
    """Every topic of the hosts has a running owner that has published its introduction."""

    topics: Literal["owned"]


class TaskCondition(CountCondition):
    """A task has received or processed a number of messages, or is fenced."""

    counters = ("received", "processed")
    alternatives = ("fenced",)
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
    def _must_be_true(cls, fenced: bool | None) -> bool | None:
        if fenced is False:
            raise rule("must be true: a step waits until the task is fenced")
        return fenced


class AdminCondition(Deadline):
    """The admin API of a region returns this value."""

    region: Region
    get: AdminPath
    value: Any = Field(alias="is")
    """Expected response, as JSON. Of an object, at any depth, only the named fields are compared."""


EventCount = Annotated[int, Field(ge=1, le=COUNT_MAX)] | None


class Barrier(CountCondition):
    """The step begins as soon as a region has reached this state of a protocol: exactly one of the counters. Each
    counts events since the region was started; with `_more`, since the step before completed."""

    counters = tuple(PROTOCOL_EVENTS)
    region: Region
    """The region that counts the events. While it is down, the step waits for its return."""
    topic: Topic | None = None
    """Count events of this topic only, or of all its partitions; not for transactions and metadata events."""
    within: TimeSpan = lasting("30s")
    """Time after which the step fails."""
    snapshot_started: EventCount = None
    """Snapshots of subscriptions whose request it stored."""
    snapshot_started_more: EventCount = None
    snapshot_response: EventCount = None
    """Responses of other regions to its snapshots that it stored: one for each region and round."""
    snapshot_response_more: EventCount = None
    snapshot_round: EventCount = None
    """Snapshots that it completed and stored."""
    snapshot_round_more: EventCount = None
    update_sent: EventCount = None
    """Updates of subscriptions that it stored for the other regions."""
    update_sent_more: EventCount = None
    update_applied: EventCount = None
    """Updates of other regions that it stored and applied to a subscription."""
    update_applied_more: EventCount = None
    takeover: EventCount = None
    """Topic epochs that it granted to a new exclusive producer."""
    takeover_more: EventCount = None
    transaction_opened: EventCount = None
    """Transactions whose begin it stored."""
    transaction_opened_more: EventCount = None
    transaction_committing: EventCount = None
    """Decisions to commit that it stored; topics and subscriptions receive the outcome afterwards."""
    transaction_committing_more: EventCount = None
    transaction_aborting: EventCount = None
    """The same for decisions to abort."""
    transaction_aborting_more: EventCount = None
    transaction_ended: EventCount = None
    """Transactions whose outcome every topic and subscription has confirmed, which it stored."""
    transaction_ended_more: EventCount = None
    metadata_event_published: EventCount = None
    """Metadata events that it published to other clusters; only the sync leader of a cluster publishes."""
    metadata_event_published_more: EventCount = None
    metadata_event_applied: EventCount = None
    """Metadata events of other clusters that it applied; only the sync leader of a cluster applies."""
    metadata_event_applied_more: EventCount = None
    frame_fault: EventCount = None
    """Commands, receipts and markers on which `drop`, `delay`, `duplicate` or `reorder` acted, on connections that the
    region or its clients opened: us counts messages and markers on `us->eu`, eu counts receipts and other responses."""
    frame_fault_more: EventCount = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        named = [
            counter for counter in self.counters for suffix in ("", MORE) if getattr(self, counter + suffix)
        ]
        if len(named) != 1:
            raise rule(f"must have exactly one of {', '.join(self.counters)}, each also with {MORE}")
        return self

    @model_validator(mode="after")
    def _topic_fits_event(self) -> Self:
        if self.topic is not None and not PROTOCOL_EVENTS[self.state.event].is_of_topics:
            raise rule(f"{self.counter} belongs to no topic: omit `topic`")
        return self

    @property
    def state(self) -> ProtocolState:
        return ProtocolState(self.counter or "", self.goal, self.counts_from_now, self.topic)


_CONDITIONS = ("producer", "consumer", "program", "subscription", "host", "task", "topics", "get")


def _condition_kind(written: Any) -> str | None:
    keys = written if isinstance(written, dict) else getattr(type(written), "model_fields", ())
    return next((f"<{kind}>" for kind in _CONDITIONS if kind in keys), None)


Condition = Annotated[
    Annotated[PublishedCondition, Tag("<producer>")]
    | Annotated[ReceivedCondition, Tag("<consumer>")]
    | Annotated[ProgramCondition, Tag("<program>")]
    | Annotated[SubscriptionExists, Tag("<subscription>")]
    | Annotated[HostCondition, Tag("<host>")]
    | Annotated[TaskCondition, Tag("<task>")]
    | Annotated[TopicsOwnedCondition, Tag("<topics>")]
    | Annotated[AdminCondition, Tag("<get>")],
    Discriminator(
        _condition_kind,
        custom_error_type="rule",
        custom_error_message="must name what to wait for: a producer, consumer, program, subscription, host, task,"
        " topics or get",
    ),
]
