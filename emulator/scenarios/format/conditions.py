"""What a step of a scenario file may wait for."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from emulator.scenarios.actor_models.entries import HostCondition, TaskCondition, TopicsOwnedCondition
from emulator.scenarios.types import (
    AdminPath,
    ConsumerName,
    Deadline,
    ProducerName,
    ProgramName,
    Region,
    Subscription,
    exactly_one,
)


class PublishedCondition(Deadline):
    """A producer has received this number of receipts."""

    producer: ProducerName
    published: Annotated[int, Field(gt=0)] | None = None
    """In total."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        return exactly_one(self, "published", "published_more")

    @property
    def goal(self) -> int:
        return self.published or self.published_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.published_more is not None


class ReceivedCondition(Deadline):
    """A consumer has received this number of different messages."""

    consumer: ConsumerName
    received: Annotated[int, Field(gt=0)] | None = None
    """In total."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """The same, since this step began."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        return exactly_one(self, "received", "received_more")

    @property
    def goal(self) -> int:
        return self.received or self.received_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.received_more is not None


class ProgramCondition(Deadline):
    """Your program has recorded this number of operations, or has ended."""

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
    def _says_what(self) -> Self:
        if self.exit_code is not None and self.region is not None:
            raise ValueError("an exit code belongs to no region: omit `in`")
        return exactly_one(self, "published", "published_more", "received", "received_more", "exit_code")

    @property
    def counts_publishes(self) -> bool:
        return self.published is not None or self.published_more is not None

    @property
    def goal(self) -> int:
        return self.published or self.published_more or self.received or self.received_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.published_more is not None or self.received_more is not None


class SubscriptionExists(Deadline):
    """A region has the subscription: a replicated position has arrived there for the first time."""

    subscription: Subscription
    exists_in: Region


class AdminCondition(Deadline):
    """The admin API of a region returns this value."""

    region: Region
    get: AdminPath
    value: Any = Field(alias="is")
    """Expected response, as JSON. Of an object only the named fields are compared."""


_CONDITIONS = ("producer", "consumer", "program", "subscription", "host", "task", "topics", "get")


def _condition_kind(written: Any) -> str | None:
    keys = written if isinstance(written, dict) else type(written).model_fields
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
