"""Types of the client: ids, modes, settings, errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from emulator.errors import GeoemuError, ServerError


class MessageId(NamedTuple):
    """The position of a message in one region's log, meaningless in other regions."""

    ledger: int
    entry: int
    batch_index: int = -1
    """Index in the batch; -1: not part of a batch."""
    partition: int = -1
    """The number of the partition; -1: the topic has no partitions."""
    batch_size: int = 0

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.batch_index}"


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(2**63 - 1, 2**63 - 1)


class ConsumerType(Enum):
    """Subscription types, with the protocol's numbers."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(Enum):
    """Initial positions of a new subscription, with the protocol's numbers."""

    LATEST = 0
    EARLIEST = 1


class ProducerState(Enum):
    """The state of a producer's registration with its region, on each attempt to open it."""

    REQUESTING = "it is connecting or reconnecting"
    WAITING = "it is in the wait queue for exclusive access"
    OPEN = "it may publish; `topic_epoch` is the epoch that the region returned"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times and intervals of a client."""

    operation_timeout_seconds: float = 30.0
    """Timeout of opening a producer or consumer, and of requests of transactions, including retries."""
    connect_timeout_seconds: float = 5.0
    request_timeout_seconds: float = 10.0
    """Timeout of one attempt of a request, after which the connection is closed."""
    keep_alive_interval_seconds: float = 30.0
    backoff_seconds: float = 0.1
    backoff_seconds_max: float = 5.0
    send_timeout_seconds: float | None = 30.0
    """Timeout of the wait for a receipt; None: no timeout."""
    priority_delay_seconds: float = 0.5
    """Delay before a WAIT_FOR_EXCLUSIVE producer of the lowest priority requests exclusive access again after it lost
    its connection; higher priorities wait less (PIP-440). 0: no delay."""
    asks_for_partitions: bool = True
    """Whether the client requests a topic's number of partitions before using it. False: topics have none."""
    partitions_interval_seconds: float = 60.0
    """Interval at which the client checks whether a partitioned topic has grown."""
    topics_interval_seconds: float = 60.0
    """Interval at which the client lists the topics that match a pattern; the broker also sends each change."""


class ClientError(GeoemuError):
    """An operation that did not succeed."""

    def __init__(self, message: str, *, definite: bool, code: ServerError | None = None) -> None:
        self.definite = definite
        """True: the operation certainly did not happen. False: it may have happened."""
        self.code = code
        """The error code of the broker's response, if there was one."""
        super().__init__(message)


class ExpiredTransaction(ClientError):
    """The transaction was aborted, because a newer client has its transaction key or the key was deleted; it cannot be
    used any more."""


FINAL_ERRORS = frozenset(
    {
        ServerError.ProducerBusy,
        ServerError.ConsumerBusy,
        ServerError.NotAllowedError,
        ServerError.IncompatibleSchema,
        ServerError.AuthorizationError,
        ServerError.AuthenticationError,
        ServerError.TopicNotFound,
        ServerError.InvalidTopicName,
        ServerError.ProducerFenced,
        ServerError.TopicTerminatedError,
        ServerError.SubscriptionNotFound,
        ServerError.ConsumerAssignError,
        ServerError.InvalidTxnStatus,
        ServerError.TransactionConflict,
        ServerError.TransactionNotFound,
    }
)
"""Errors with which a repeated request would fail again; requests with other errors are retried."""


PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1
_HALF_WAY: Final = 10
"""Priority whose delay is half the delay of priority 0."""


def checked_priority(priority: int) -> int:
    """Return the priority; ValueError unless it is an int32."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ValueError(f"priority {priority!r} must be an integer")
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise ValueError(f"priority {priority} must be from {PRIORITY_MIN} to {PRIORITY_MAX} (int32)")
    return priority


def return_delay_seconds(priority: int, longest_seconds: float) -> float:
    """Return the delay before a producer of this priority reconnects: the lower the priority, the longer."""
    return longest_seconds * (1 - priority / (_HALF_WAY + abs(priority))) / 2
