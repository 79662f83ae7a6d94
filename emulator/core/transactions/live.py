"""The transactions of a coordinator as values: live ones, outcomes of those that are over, and the deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from emulator.core.transactions.journal_format import Holder
from emulator.model.transaction_names import TransactionStatus, TxnId

DEADLINES_SPARE: Final = 1_000
"""Number of deadlines, besides two per live transaction, from which on those of ended transactions are removed."""


class TransactionOutcome(NamedTuple):
    """The outcome of a transaction that is over."""

    status: TransactionStatus
    why: str
    until_ms: float
    """Time from which on the outcome is forgotten, when the next transaction ends; earlier beyond `outcomes_max`."""
    holder: Holder | None
    """The key under which the transaction began; None: it had no key."""


class KeyTransaction(NamedTuple):
    """A transaction that began under a key, and its status."""

    txn: TxnId
    epoch: int
    """Epoch of the connection that began the transaction."""
    status: TransactionStatus
    why: str
    """Reason of the decision; empty while the transaction is open."""


@dataclass(slots=True)
class LiveTransaction:
    """A transaction that is not over."""

    txn: TxnId
    timeout_ms: int
    opened_at_ms: int
    """Wall-clock time of the region, for information only."""
    holder: Holder | None
    deadline_ms: float
    owner: str = ""
    """Role of the client that began it; empty: it had none, and every client may use the transaction."""
    status: TransactionStatus = TransactionStatus.OPEN
    why: str = ""
    topics: dict[str, bool] = field(default_factory=dict)
    """Full name of the topic -> whether its addition is durable in the log (TP1)."""
    subscriptions: dict[tuple[str, str], bool] = field(default_factory=dict)
    """(full name of the topic, name of the subscription) -> whether its addition is durable in the log (TP1)."""
    participants_bytes: int = 0

    @property
    def participants(self) -> int:
        return len(self.topics) + len(self.subscriptions)


class Deadlines:
    """Deadlines of open transactions, the earliest first. Those of others are removed when reached, or if too many."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []

    def add(self, transaction: LiveTransaction, live: Mapping[int, LiveTransaction]) -> None:
        """Add the deadline of a new transaction. `live`: the other live transactions."""
        if len(self._heap) > 2 * len(live) + DEADLINES_SPARE:
            open_ones = (one for one in live.values() if one.status is TransactionStatus.OPEN)
            self._heap = [(one.deadline_ms, one.txn.least) for one in open_ones]
            heapify(self._heap)
        heappush(self._heap, (transaction.deadline_ms, transaction.txn.least))

    def pop_due(self, now_ms: float, live: Mapping[int, LiveTransaction]) -> list[int]:
        """Remove the deadlines that are reached and return the numbers of their open transactions."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            least = heappop(self._heap)[1]
            if least in live and live[least].status is TransactionStatus.OPEN:
                due.append(least)
        return due

    def next_ms(self, live: Mapping[int, LiveTransaction]) -> float | None:
        """Return the earliest deadline of a live transaction; None: there is none."""
        while self._heap and self._heap[0][1] not in live:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)
