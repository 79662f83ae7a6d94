"""Names of transactions, and what may become of one.

         ┌──▶ COMMITTING ──▶ COMMITTED
    OPEN ┤
         └──▶ ABORTING ────▶ ABORTED

COMMITTING and ABORTING are decisions: once durable, nothing turns them round. COMMITTED and ABORTED say that every
participant was told.
"""

from __future__ import annotations

from enum import IntEnum

from emulator.model.transaction_names import TxnId

__all__ = ["FOLLOWS", "TransactionStatus", "TxnId"]


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
        """Every participant was told."""
        return self in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


FOLLOWS: dict[TransactionStatus, TransactionStatus] = {
    TransactionStatus.COMMITTING: TransactionStatus.COMMITTED,
    TransactionStatus.ABORTING: TransactionStatus.ABORTED,
}
"""What a decision becomes once every participant was told."""
