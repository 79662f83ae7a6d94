"""Ids of transactions and their states.

         ┌──▶ COMMITTING ──▶ COMMITTED
    OPEN ┤
         └──▶ ABORTING ────▶ ABORTED

COMMITTING and ABORTING are decisions: once durable, they are final. COMMITTED and ABORTED mean that every participant
has the outcome.
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
        """Whether every participant has the outcome."""
        return self in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


FOLLOWS: dict[TransactionStatus, TransactionStatus] = {
    TransactionStatus.COMMITTING: TransactionStatus.COMMITTED,
    TransactionStatus.ABORTING: TransactionStatus.ABORTED,
}
"""What a decision becomes once every participant has the outcome."""
