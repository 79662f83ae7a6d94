"""Which messages of a topic belong to transactions that are still open (docs/components/transaction-buffer.md).

Messages of a transaction are stored like others, where they come in. Nothing from the first message of the oldest open
transaction on is readable; a marker in the log ends a transaction.

    a   b   T1  c   T2  T1  d   T2  commit T1   e
            ▲── readable end, T1 open ──────────────
                    ▲── readable end once T1 has ended and T2 has not

All of it is folded from the log, in log order. Nothing here is stored: a checkpoint vouches only for what lies below
the readable end, so a restart reads the log again from there (INV-62).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator

from emulator.model.transaction_names import TxnId

RUNS_MAX = 1_000_000
"""Runs of entries that all open transactions of a topic may have; 16 bytes each."""
PRODUCERS_MAX = 16
"""Producers per transaction whose names are kept."""


class OpenTransaction:
    """What one topic holds of one transaction."""

    __slots__ = ("_runs", "messages", "producers", "since_ms")

    def __init__(self, entry_id: int, since_ms: int) -> None:
        self._runs = array("q", (entry_id, entry_id))
        """First and last id of each run, in turns, ascending."""
        self.since_ms = since_ms
        """Publish time of its first message."""
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
        """Maximal runs of its entries, ascending, ends included."""
        return zip(self._runs[::2], self._runs[1::2], strict=True)

    def add(self, entry_id: int, producer_name: str, messages: int) -> bool:
        """Whether this began a new run. An entry that is known changes nothing."""
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
    """Of one topic."""

    def __init__(self) -> None:
        self.open: OrderedDict[TxnId, OpenTransaction] = OrderedDict()
        """In the order of their first messages."""
        self.open_from: int | None = None
        """First entry of the oldest open one; None when none is open. Invariant (INV-63): nothing from there on is
        readable."""
        self.runs = 0
        """Of all open ones together."""
        self.committed = 0
        self.aborted = 0
        """Ended since the topic was loaded, or folded again."""

    @property
    def is_full(self) -> bool:
        """Nothing more of a transaction may be taken."""
        return self.runs >= RUNS_MAX

    def stored(self, txn: TxnId, entry_id: int, *, at_ms: int, producer_name: str, messages: int) -> None:
        """A message of a transaction is in the log."""
        transaction = self.open.get(txn)
        if transaction is None:
            transaction = self.open[txn] = OpenTransaction(entry_id, at_ms)
            self.runs += 1
            if self.open_from is None:
                self.open_from = entry_id
        self.runs += transaction.add(entry_id, producer_name, messages)

    def ended(self, txn: TxnId, marker_entry_id: int, *, committed: bool) -> OpenTransaction | None:
        """Its marker is in the log. None when nothing of it was open there: a second marker means nothing."""
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
        """The transaction that holds back whatever comes after its first message."""
        return next(iter(self.open.items()), None)
