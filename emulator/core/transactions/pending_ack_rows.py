"""Stored form of pending acknowledgements: each row holds those of one transaction for 4,096 entry ids.

    row (generation, transaction, number)   ids among the 4,096 from number * 4,096 on that the transaction
                                            acknowledged, and partly acknowledged batches; in the row with the number
                                            -1: its cumulative acknowledgement

A row contains all acknowledgements of the transaction in its range, and only grows while the transaction is open. An
acknowledgement is confirmed when all of its rows are durable, so any mix of older and newer rows (S1) contains all
confirmed ones.

The generation is the cursor's: rows of another generation are from before a seek, and are ignored (PA7).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from emulator.core.cursor.id_set import PART_BITS, runs_of
from emulator.core.transactions.pending_acks import BatchPart, Cumulative, PendingAcks
from emulator.errors import StorageDamaged
from emulator.model.transaction_names import TxnId

CUMULATIVE = -1
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class RowName(NamedTuple):
    """Name of a row of one subscription."""

    generation: int
    txn: TxnId
    number: int
    """Number of the range of ids; `CUMULATIVE` for the cumulative acknowledgement."""

    def __str__(self) -> str:
        return f"{self.generation}_{self.txn.most}_{self.txn.least}_{self.number}"

    @classmethod
    def parse(cls, text: str) -> RowName:
        """Parse the result of `str`. Raises StorageDamaged for any other text."""
        try:
            generation, most, least, number = map(int, text.split("_"))
        except ValueError:
            raise StorageDamaged(f"{text!r} does not name pending acknowledgements") from None
        return cls(generation, TxnId(most, least), number)


class RowChanges(NamedTuple):
    puts: dict[RowName, bytes]
    deletes: list[RowName]


class PendingRows:
    """The rows of the pending acknowledgements of one subscription, and their unwritten changes."""

    def __init__(self, acks: PendingAcks) -> None:
        self.acks = acks
        self._bits: dict[TxnId, dict[RowName, int]] = {}
        """Transaction -> row -> bit set of its completely acknowledged entries. Contains every row that is or will be
        stored, except those in `_to_delete`."""
        self._changed: set[RowName] = set()
        """Rows to write."""
        self._to_delete: list[RowName] = []

    # Writing.

    @property
    def has_changes(self) -> bool:
        return bool(self._changed or self._to_delete)

    def awaits(self, txn: TxnId) -> bool:
        """Whether the transaction has acknowledgements that `take_changes` has not returned yet."""
        return any(name.txn == txn for name in self._changed)

    @property
    def stored(self) -> list[RowName]:
        """All rows that must be deleted with the subscription."""
        return [*chain.from_iterable(self._bits.values()), *self._to_delete]

    def holds(self, generation: int, txn: TxnId, entry_ids: Iterable[int]) -> None:
        """Add entries that the transaction acknowledged, in whole or in part."""
        batches, rows = self.acks.by_txn[txn].batches, self._bits.setdefault(txn, {})
        for entry_id in entry_ids:
            name = RowName(generation, txn, entry_id >> PART_BITS)
            bits = rows.get(name, 0)
            if entry_id not in batches:
                bits |= 1 << (entry_id & ((1 << PART_BITS) - 1))
            rows[name] = bits
            self._changed.add(name)

    def moved(self, generation: int, txn: TxnId) -> None:
        """Add the cumulative acknowledgement of the transaction, or replace it."""
        name = RowName(generation, txn, CUMULATIVE)
        self._bits.setdefault(txn, {})[name] = 0
        self._changed.add(name)

    def ended(self, txn: TxnId) -> None:
        """Let `take_changes` delete the rows of a transaction that has ended."""
        for name in self._bits.pop(txn, ()):
            self._changed.discard(name)
            self._to_delete.append(name)

    def clear(self) -> None:
        """Let `take_changes` delete all rows."""
        for txn in list(self._bits):
            self.ended(txn)

    def take_changes(self) -> RowChanges:
        """Return the changes since the last call. The caller must write them, or load the subscription again."""
        changed, self._changed = self._changed, set()
        batches: defaultdict[RowName, dict[int, BatchPart]] = defaultdict(dict)
        for name in changed:
            for entry_id, part in self.acks.by_txn[name.txn].batches.items():
                if entry_id >> PART_BITS == name.number:
                    batches[name][entry_id] = part
        deletes, self._to_delete = self._to_delete, []
        return RowChanges({name: self._row(name, batches[name]) for name in sorted(changed)}, deletes)

    def _row(self, name: RowName, batches: Mapping[int, BatchPart]) -> bytes:
        state: object
        if name.number == CUMULATIVE:
            cumulative = self.acks.by_txn[name.txn].cumulative
            assert cumulative is not None
            state = {"upto": cumulative.entry_id, "open": f"{cumulative.open_bits:x}"}
        else:
            parts = {str(entry_id): [f"{part.bits:x}", part.size] for entry_id, part in batches.items()}
            state = {"ids": f"{self._bits[name.txn][name]:x}", "batches": parts}
        return json.dumps(state, separators=(",", ":")).encode()

    # Reading.

    def load(self, generation: int, rows: Mapping[RowName, bytes]) -> None:
        """Load the stored rows; `take_changes` deletes those of another generation. Raises StorageDamaged when one
        cannot be decoded: a guess would acknowledge unacknowledged messages, or redeliver acknowledged ones."""
        for name, row in rows.items():
            if name.generation != generation:
                self._to_delete.append(name)
                continue
            try:
                self._load_row(name, json.loads(row))
            except _UNREADABLE as problem:
                raise StorageDamaged(
                    f"pending acknowledgements {name} cannot be read: {type(problem).__name__}: {problem}"
                ) from None

    def _load_row(self, name: RowName, state: Mapping[str, object]) -> None:
        if name.number == CUMULATIVE:
            upto, open_bits = int(str(state["upto"])), int(str(state["open"]), 16)
            self.acks.restore_cumulative(name.txn, Cumulative(upto, open_bits))
            self._bits.setdefault(name.txn, {})[name] = 0
            return
        bits, batches = int(str(state["ids"]), 16), state["batches"]
        if not isinstance(batches, dict) or bits >> (1 << PART_BITS):
            raise ValueError("ids or batches have the wrong form")
        for first, last in runs_of(bits):
            for offset in range(first, last + 1):
                self.acks.restore(name.txn, (name.number << PART_BITS) + offset)
        for entry_id, (part, size) in batches.items():
            self.acks.restore(name.txn, int(entry_id), BatchPart(int(part, 16), int(size)))
        self._bits.setdefault(name.txn, {})[name] = bits
