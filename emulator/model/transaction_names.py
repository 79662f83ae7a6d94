"""Names and states of transactions, and names of transaction keys, shared by clients and coordinators.

         ┌──▶ COMMITTING ──▶ COMMITTED
    OPEN ┤
         └──▶ ABORTING ────▶ ABORTED

COMMITTING and ABORTING are decisions: once durable, they are final. COMMITTED and ABORTED mean that every participant
has the outcome.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from emulator.model.hashing import murmur3

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"
"""Where clients with transactions enabled look for the transaction coordinators, each of them a partition."""
SEPARATOR: Final = "&"
"""Between owner and key where both are written as one text."""
KEY_CHARACTERS_MAX: Final = 255


class TxnId(NamedTuple):
    """What a transaction is called on the wire: two u64."""

    most: int
    """Number of its coordinator."""
    least: int
    """Its number there: 0, 1, 2 …; never used twice."""

    @property
    def text(self) -> str:
        """As people and Pulsar's tools write it."""
        return f"({self.most},{self.least})"


def coordinator_of(key: str, coordinators: int) -> int:
    """Number of the coordinator that has a key. Clients compute it too; they do not know what their owner is called
    here, so the key alone counts."""
    return (murmur3(key.encode()) & 0x7FFF_FFFF) % coordinators


def check_key(key: str) -> str:
    """The key, if it may be one. ValueError with the rule otherwise."""
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
    """`owner&key`; the key alone where its client has no role, which is an empty owner."""
    return f"{owner}{SEPARATOR}{key}" if owner else key


class TransactionStatus(IntEnum):
    """Numbers are those of Pulsar's transaction log."""

    OPEN = 0
    COMMITTING = 1
    COMMITTED = 2
    ABORTING = 3
    ABORTED = 4

    @property
    def is_committed(self) -> bool:
        """Its messages count, or will."""
        return self in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)

    @property
    def is_decided(self) -> bool:
        return self is not TransactionStatus.OPEN

    @property
    def is_over(self) -> bool:
        """Whether every participant has the outcome."""
        return self in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


FOLLOWS: dict[TransactionStatus, TransactionStatus] = {
    TransactionStatus.COMMITTING: TransactionStatus.COMMITTED,
    TransactionStatus.ABORTING: TransactionStatus.ABORTED,
}
"""What a decision becomes once every participant has the outcome."""
