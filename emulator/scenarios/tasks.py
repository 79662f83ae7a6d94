"""What a scenario file may say of tasks: programs that read a topic, process what they read and write another topic,
all of it in transactions (PIP-31), with a transaction key or without."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from emulator.model.transaction_names import check_key
from emulator.scenarios.model_base import Deadline, Written, exactly_one
from emulator.scenarios.types import NewActorName, Region, Seconds, TaskName, TimeSpan, Topic, lasting, rule
from emulator.scenarios.workload import AcknowledgeMode, ConsumerType, TaskPart


class TaskEntry(Written):
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

    def part(self, default_topic: str) -> TaskPart:
        return TaskPart(
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


class TaskDid(Deadline):
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
