"""Names and states of transactions, and names of transaction keys, shared by clients and coordinators.

         ┌──▶ COMMITTING ──▶ COMMITTED
    OPEN ┤
         └──▶ ABORTING ────▶ ABORTED

COMMITTING and ABORTING are decisions, which are final once they are durable. COMMITTED and ABORTED mean that every
participant has stored the outcome.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from emulator.model.hashing import murmur3

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"
"""Partitioned topic by which clients find the transaction coordinators, one per partition."""
SEPARATOR: Final = "&"
"""Separator of owner and key in one text."""
KEY_CHARACTERS_MAX: Final = 255


class TxnId(NamedTuple):
    """The id of a transaction on the wire: two u64."""

    most: int
    """Number of the transaction's coordinator."""
    least: int
    """Number of the transaction within its coordinator: 0, 1, 2 …; never reused."""

    @property
    def text(self) -> str:
        """The id as people and Pulsar's tools write it."""
        return f"({self.most},{self.least})"


def coordinator_of(key: str, coordinators: int) -> int:
    """Return the number of the coordinator of a key. Clients compute it, too, and do not know the role under which the
    broker authenticates them, so the owner of the key is not hashed."""
    return (murmur3(key.encode()) & 0x7FFF_FFFF) % coordinators


def check_key(key: str) -> str:
    """Return a valid key unchanged. Raises ValueError, naming the rule, for an invalid one."""
    if SEPARATOR in key:
        raise ValueError(
            f"transaction key {key!r} must not contain {SEPARATOR!r}: it separates owner and key"
        )
    if not key or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise ValueError(
            f"transaction key {key[:40]!r} must be 1 to {KEY_CHARACTERS_MAX} printable characters"
        )
    return key


def full_text(owner: str, key: str) -> str:
    """Return `owner&key`, or the key alone for an empty owner (the client has no role)."""
    return f"{owner}{SEPARATOR}{key}" if owner else key


class TransactionStatus(IntEnum):
    """The status of a transaction; numbers are those of Pulsar's transaction log."""

    OPEN = 0
    COMMITTING = 1
    COMMITTED = 2
    ABORTING = 3
    ABORTED = 4

    @property
    def is_committed(self) -> bool:
        """Whether the outcome is, or will be, a commit."""
        # The numbers of COMMITTING and COMMITTED: access to a member costs ten times as much.
        return 1 <= self <= 2

    @property
    def is_decided(self) -> bool:
        return self is not TransactionStatus.OPEN

    @property
    def is_over(self) -> bool:
        """Whether every participant has stored the outcome."""
        return self in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


FOLLOWS: dict[TransactionStatus, TransactionStatus] = {
    TransactionStatus.COMMITTING: TransactionStatus.COMMITTED,
    TransactionStatus.ABORTING: TransactionStatus.ABORTED,
}
"""Decision -> status once every participant has stored the outcome."""
