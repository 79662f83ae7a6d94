"""Mutants of transaction coordinators and keys, with the invariants that detect each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from emulator.broker.shared_outcome import SharedOutcome
from emulator.broker.transactions.journal import TransactionJournal
from emulator.core.cursor.cursor import Cursor
from emulator.core.transactions.coordinator import Coordinator
from emulator.core.transactions.journal_format import Began, Granted, KeyEntry
from emulator.core.transactions.keys import KeyBook
from emulator.core.transactions.live import LiveTransaction
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks, commit
from emulator.model.transaction_names import TxnId
from tests.swarm.mutant import Mutant, parts

KIND = "hold-key"
"""Seed name of the workload whose simulated runs detect these mutants."""


class _FencesNoClient(Coordinator):
    def of_key(self, owner: str, key: str) -> list[LiveTransaction]:
        return []


class _FencesLate(Coordinator):
    """Fences the open transactions of a key only when its new owner begins one."""

    _begins = False

    def check_begin(self, timeout_ms: int) -> None:
        super().check_begin(timeout_ms)
        self._begins = True

    def begin(self, *args: Any, **kwargs: Any) -> Began:
        began = super().begin(*args, **kwargs)
        self._begins = False
        return began

    def of_key(self, owner: str, key: str) -> list[LiveTransaction]:
        return super().of_key(owner, key) if self._begins else []


class _ForgetsEpochs(KeyBook):
    """Ignores granted epochs when it reads the log after a restart."""

    _grants = False

    def connect(self, *args: Any, **kwargs: Any) -> Granted:
        self._grants = True
        try:
            return super().connect(*args, **kwargs)
        finally:
            self._grants = False

    def apply(self, entry: KeyEntry) -> None:
        if self._grants or not isinstance(entry, Granted):
            super().apply(entry)


class _BelievedAtOnce(TransactionJournal):
    def append(self, entries: Sequence[bytes]) -> SharedOutcome:
        super().append(entries)
        return SharedOutcome(is_done=True)


class _CountsAtOnce(PendingAcks):
    def acknowledge(self, txn: TxnId, claims: Sequence[ClaimedAck], cursor: Cursor) -> None:
        super().acknowledge(txn, claims, cursor)
        commit(self.by_txn[txn], cursor)


def _ablation(name: str, safeguard: str, invariants: Iterable[str], **changes: Any) -> Mutant:
    return Mutant(name, safeguard, tuple(invariants), parts(**changes), seed_name=KIND)


MUTANTS = (
    _ablation(
        "former-transaction-stays-open",
        "A new connection with a transaction key does not abort the transaction of the former one.",
        ("INV-57", "INV-74"),
        coordinator=_FencesNoClient,
    ),
    _ablation(
        "fenced-at-next-begin",
        "A new connection with a transaction key aborts the former transaction only when it begins its own.",
        ("INV-74",),
        coordinator=_FencesLate,
    ),
    _ablation(
        "key-epoch-not-stored",
        "After a restart a coordinator has forgotten the epochs that it granted.",
        ("INV-55",),
        key_book=_ForgetsEpochs,
    ),
    _ablation(
        "decision-reported-before-durable",
        "A coordinator reports a decision when it is written, not when it is durable.",
        ("INV-58", "INV-55", "INV-57", "INV-74", "INV-75"),
        transaction_journal=_BelievedAtOnce,
    ),
    _ablation(
        "acknowledged-before-commit",
        "Acknowledgements of a transaction count at once, and still count when the transaction is aborted.",
        ("INV-75",),
        pending_acks=_CountsAtOnce,
    ),
)
