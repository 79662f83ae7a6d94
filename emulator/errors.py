"""The error tree.

    GeoemuError
    ├── ConfigurationError      a file, option or request is invalid; nothing was done
    ├── ProtocolError           a request of a client or peer is rejected; contains the ServerError of the response
    ├── StorageError            a read or write of a store failed; `definite`: it certainly had no effect
    │   ├── GoneMeanwhile       the topic was deleted or reloaded during the operation
    │   ├── StorageFenced       a newer owner has the log; this process must stop
    │   ├── StorageDamaged      stored data cannot be decoded
    │   │   └── CheckpointDamaged   the data can be rebuilt from a log
    │   └── StorageFull         no space is left; nothing was written
    └── RuntimeFailure          a region, container or engine failed to do its task
        └── Refused             a request is invalid for this run or folder; nothing was done

Modules define further subclasses. A bug of geoemu raises AssertionError and never one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class ServerError(IntEnum):
    """Error codes of Pulsar's protocol; numbers are the protocol's."""

    UnknownError = 0
    MetadataError = 1
    PersistenceError = 2
    AuthenticationError = 3
    AuthorizationError = 4
    ConsumerBusy = 5
    ServiceNotReady = 6
    ProducerBlockedQuotaExceededError = 7
    ProducerBlockedQuotaExceededException = 8
    ChecksumError = 9
    UnsupportedVersionError = 10
    TopicNotFound = 11
    SubscriptionNotFound = 12
    ConsumerNotFound = 13
    TooManyRequests = 14
    TopicTerminatedError = 15
    ProducerBusy = 16
    InvalidTopicName = 17
    IncompatibleSchema = 18
    ConsumerAssignError = 19
    TransactionCoordinatorNotFound = 20
    InvalidTxnStatus = 21
    NotAllowedError = 22
    TransactionConflict = 23
    TransactionNotFound = 24
    ProducerFenced = 25


MEANINGS: Final[Mapping[ServerError, str]] = {
    ServerError.UnknownError: "the client breaks a rule of the protocol; the connection is closed",
    ServerError.MetadataError: "a consumer unsubscribes while its subscription has other consumers",
    ServerError.PersistenceError: "the log or the cursor could not be written or read; the outcome may be unknown",
    ServerError.AuthenticationError: "a peer cannot prove that it is the region that it claims to be",
    ServerError.AuthorizationError: "the client's role lacks a permission, or the command is for other regions only",
    ServerError.ConsumerBusy: "the subscription has another consumer, or a limit of consumers is reached",
    ServerError.ServiceNotReady: "the topic is being loaded, unloaded or deleted; the client retries",
    ServerError.ProducerBlockedQuotaExceededError: "the quota `producer_request_hold` is exceeded; clients retry",
    ServerError.ProducerBlockedQuotaExceededException: "the quota `producer_exception` is exceeded; clients fail",
    ServerError.ChecksumError: "the checksum of a message is wrong",
    ServerError.UnsupportedVersionError: "never",
    ServerError.TopicNotFound: "the topic, namespace or tenant does not exist and may not be created",
    ServerError.SubscriptionNotFound: "the subscription does not exist",
    ServerError.ConsumerNotFound: "the connection has no such consumer",
    ServerError.TooManyRequests: "the coordinator has the maximum of open transactions",
    ServerError.TopicTerminatedError: "the topic is terminated",
    ServerError.ProducerBusy: "another producer has the name or owns the topic, or a limit of producers is reached",
    ServerError.InvalidTopicName: "the name of a topic is malformed",
    ServerError.IncompatibleSchema: "a schema does not follow the compatibility strategy",
    ServerError.ConsumerAssignError: "Key_Shared consumers have different modes, or sticky ranges are wrong or overlap",
    ServerError.TransactionCoordinatorNotFound: "the coordinator does not exist or is being loaded; clients retry",
    ServerError.InvalidTxnStatus: "the transaction is not open, or already has the other outcome",
    ServerError.NotAllowedError: "a rule forbids the request, such as a forged claim or an expired transaction",
    ServerError.TransactionConflict: "another open transaction has acknowledged the message",
    ServerError.TransactionNotFound: "the transaction is unknown, or its outcome is forgotten",
    ServerError.ProducerFenced: "the producer lost the topic to another one (PIP-68), for good",
}
"""Code -> condition under which a region sends it."""

EXPIRED_TRANSACTION = "expired transaction"
"""First words of the message of the NotAllowedError for a transaction whose key has a newer connection. The protocol
has no code for it, so clients that support transaction keys compare these words."""


class GeoemuError(Exception):
    """Base of all errors that geoemu raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a user's input."""

    file: str
    line: int | None
    """Line number from 1 on; None for input without lines (an option, a request)."""
    key_path: str
    """Path of the key, for example `links[0].latency_ms`; empty for the file as a whole."""
    value: str
    rule: str
    """The violated rule, as a sentence."""
    suggestion: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        path = f" {self.key_path}:" if self.key_path else ""
        value = f" {self.value}:" if self.value else ""
        meant = " or ".join(map(repr, (self.suggestion or "").split(" or ")))
        hint = f" (did you mean {meant}?)" if self.suggestion else ""
        return f"{place}:{path}{value} {self.rule}{hint}"


class ConfigurationError(GeoemuError):
    """A user's input is invalid. Contains every problem found, not just the first."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class ProtocolError(GeoemuError):
    """A request of a client or peer is rejected: it is invalid, not permitted, or cannot be served now."""

    def __init__(
        self,
        code: ServerError,
        message: str,
        *,
        closes_connection: bool = False,
        is_repeated: bool = False,
    ) -> None:
        """`is_repeated`: the same problem of the same peer, which keeps trying, was logged before."""
        self.code = code
        self.closes_connection = closes_connection
        self.is_repeated = is_repeated
        # The message may quote lone surrogates, which JSON allows and no response can encode.
        super().__init__(message.encode(errors="backslashreplace").decode())


class StorageError(GeoemuError):
    """A storage operation failed."""

    def __init__(self, message: str, *, definite: bool) -> None:
        self.definite = definite
        """Whether the operation certainly had no effect; False: it may have had one."""
        super().__init__(message)


class GoneMeanwhile(StorageError):
    """The topic or object was deleted or reloaded during the operation; the store works. The operation may have taken
    effect."""

    def __init__(self, message: str) -> None:
        super().__init__(message, definite=False)


class StorageFenced(StorageError):
    """A newer owner opened this log. The write was not stored, and no later write of this process will be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, definite=True)


class StorageDamaged(StorageError):
    """Stored data cannot be decoded. A retry fails, too, until an operator repairs the data."""

    def __init__(self, message: str) -> None:
        super().__init__(message, definite=True)


class CheckpointDamaged(StorageDamaged):
    """Damaged data that can be rebuilt from a log."""


class StorageFull(StorageError):
    """No space is left; no entry of the group was stored."""

    def __init__(self, message: str) -> None:
        super().__init__(message, definite=True)


class RuntimeFailure(GeoemuError):
    """A region, container or engine failed to do its task. The message names the next step."""


class Refused(RuntimeFailure):
    """The request is invalid for this run or folder; nothing was done. The message names the next step."""
