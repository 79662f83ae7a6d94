"""What a step of a scenario file may wait for."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from emulator.scenarios.hosts import HostDid, TopicsOwned
from emulator.scenarios.tasks import TaskDid
from emulator.scenarios.words import (
    AdminPath,
    ConsumerName,
    ProducerName,
    ProgramName,
    Region,
    Subscription,
)
from emulator.scenarios.written import Deadline, exactly_one


class Published(Deadline):
    """A producer has been told that so many messages are stored."""

    producer: ProducerName
    published: Annotated[int, Field(gt=0)] | None = None
    """In all."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        return exactly_one(self, "published", "published_more")

    @property
    def goal(self) -> int:
        return self.published or self.published_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.published_more is not None


class Received(Deadline):
    """A consumer has received so many different messages."""

    consumer: ConsumerName
    received: Annotated[int, Field(gt=0)] | None = None
    """In all."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        return exactly_one(self, "received", "received_more")

    @property
    def goal(self) -> int:
        return self.received or self.received_more or 0

    @property
    def counts_from_now(self) -> bool:
        return self.received_more is not None


class ProgramDid(Deadline):
    """A program of your own has written down so much, or has ended by itself."""

    program: ProgramName
    published: Annotated[int, Field(gt=0)] | None = None
    """So many messages that it was told are stored, in all."""
    published_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""
    received: Annotated[int, Field(gt=0)] | None = None
    """Deliveries from so many different places, in all."""
    received_more: Annotated[int, Field(gt=0)] | None = None
    """Since this step began."""
    region: Region | None = Field(default=None, alias="in")
    """Only what it did in this region, for a program that changes regions by itself."""
    exit_code: int | None = None
    """It has ended with this."""

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if self.exit_code is not None and self.region is not None:
            raise ValueError("a program does not end in a region: leave out `in`")
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
    """A region knows a subscription: the position of a replicated one has arrived there."""

    subscription: Subscription
    exists_in: Region


class RegionSays(Deadline):
    """A region answers a GET on its admin port with this."""

    region: Region
    get: AdminPath
    value: Any = Field(alias="is")
    """The whole answer, as JSON. Of an object these fields are enough."""


_CONDITIONS = ("producer", "consumer", "program", "subscription", "host", "task", "topics", "get")


def _condition_kind(written: Any) -> str | None:
    keys = written if isinstance(written, dict) else type(written).model_fields
    return next((f"<{kind}>" for kind in _CONDITIONS if kind in keys), None)


Condition = Annotated[
    Annotated[Published, Tag("<producer>")]
    | Annotated[Received, Tag("<consumer>")]
    | Annotated[ProgramDid, Tag("<program>")]
    | Annotated[SubscriptionExists, Tag("<subscription>")]
    | Annotated[HostDid, Tag("<host>")]
    | Annotated[TaskDid, Tag("<task>")]
    | Annotated[TopicsOwned, Tag("<topics>")]
    | Annotated[RegionSays, Tag("<get>")],
    Discriminator(
        _condition_kind,
        custom_error_type="rule",
        custom_error_message="must name what it waits for: a producer, consumer, program, subscription, host, task,"
        " topics or what to get",
    ),
]
