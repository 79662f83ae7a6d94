"""The messages of a topic that belong to open transactions (docs/components/transaction-buffer.md).

Messages of a transaction are appended to the log like others. No entry from the first message of the oldest open
transaction on is readable; a marker in the log ends a transaction.

    a   b   T1  c   T2  T1  d   T2  commit T1   e
            ▲── readable end, T1 open ──────────────
                    ▲── readable end once T1 has ended and T2 has not

The buffer is folded from the log, in log order, and is not stored itself: a checkpoint covers only entries below the
readable end, so a restart reads the log again from there (INV-62).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator

from emulator.model.transaction_names import TxnId

RUNS_MAX = 1_000_000
"""Maximum number of runs of entries of all open transactions of a topic; 16 bytes each."""
PRODUCERS_MAX = 16
"""Maximum number of producer names kept per transaction."""


class OpenTransaction:
    """The messages of one open transaction in one topic."""

    __slots__ = ("_runs", "messages", "producers", "since_ms")

    def __init__(self, entry_id: int, since_ms: int) -> None:
        self._runs = array("q", (entry_id, entry_id))
        """First and last id of each run, alternating, in ascending order."""
        self.since_ms = since_ms
        """Publish time of the transaction's first message."""
        self.messages = 0
        self.producers: tuple[str, ...] = ()

    @property
    def first_entry_id(self) -> int:
        return self._runs[0]

    @property
    def run_count(self) -> int:
        return len(self._runs) // 2

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """Maximal runs of its entries as (first, last), both included, in ascending order."""
        return zip(self._runs[::2], self._runs[1::2], strict=True)

    def add(self, entry_id: int, producer_name: str, messages: int) -> bool:
        """Add an entry; return whether it began another run than the first. An entry that is known adds no messages."""
        if producer_name not in self.producers and len(self.producers) < PRODUCERS_MAX:
            self.producers += (producer_name,)
        last = self._runs[-1]
        if entry_id <= last and self.messages:
            return False
        self.messages += messages
        if entry_id <= last + 1:
            self._runs[-1] = entry_id
            return False
        self._runs.extend((entry_id, entry_id))
        return True


class TransactionBuffer:
    """The open transactions of one topic."""

    def __init__(self) -> None:
        self.open: OrderedDict[TxnId, OpenTransaction] = OrderedDict()
        """Open transactions, in the order of their first messages."""
        self.open_from: int | None = None
        """First entry of the oldest open transaction; None: none is open. Invariant (INV-63): no entry from there on is
        readable."""
        self.runs = 0
        """Number of runs of all open transactions together."""
        self.committed = 0
        self.aborted = 0
        """Numbers of committed and aborted transactions since the topic was loaded or folded again."""

    @property
    def is_full(self) -> bool:
        """Whether no more messages of transactions may be admitted."""
        return self.runs >= RUNS_MAX

    def stored(self, txn: TxnId, entry_id: int, *, at_ms: int, producer_name: str, messages: int) -> None:
        """Add an entry of a transaction that is in the log."""
        transaction = self.open.get(txn)
        if transaction is None:
            transaction = self.open[txn] = OpenTransaction(entry_id, at_ms)
            self.runs += 1
            if self.open_from is None:
                self.open_from = entry_id
        self.runs += transaction.add(entry_id, producer_name, messages)

    def ended(self, txn: TxnId, marker_entry_id: int, *, committed: bool) -> OpenTransaction | None:
        """End a transaction whose marker is in the log, and return it. None when it was not open before the marker: a
        second marker has no effect."""
        transaction = self.open.get(txn)
        if transaction is None or transaction.first_entry_id > marker_entry_id:
            return None
        del self.open[txn]
        self.runs -= transaction.run_count
        if committed:
            self.committed += 1
        else:
            self.aborted += 1
        oldest = next(iter(self.open.values()), None)
        self.open_from = None if oldest is None else oldest.first_entry_id
        return transaction

    @property
    def blocking(self) -> tuple[TxnId, OpenTransaction] | None:
        """The oldest open transaction, which makes all entries from its first message on unreadable."""
        return next(iter(self.open.items()), None)
