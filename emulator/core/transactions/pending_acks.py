"""Acknowledgements of open transactions at one subscription, and their conflicts.

The rules are PA1 to PA9 of docs/components/pending-acks.md.

    entry            1     2     3      4 (batch of 4)    5
    held by          T1    -     T2     T1: 0,1  T2: 3    -         another transaction cannot acknowledge held messages

An open transaction *holds* the messages that it acknowledged; they are added to the cursor at the commit. At most one
transaction holds a cumulative acknowledgement beyond mark-delete. A held entry takes about 120 bytes, in one dictionary
and one array.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from emulator.core.cursor.cursor import WORD_BITS, Cursor, bits_of
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import TxnId

ACKS_MAX = 500_000
"""Maximum number of entries that all open transactions of a subscription may hold."""


class ClaimedAck(NamedTuple):
    """The acknowledgement of one entry that a client requested."""

    entry_id: int
    ack_set: tuple[int, ...] | None = None
    """The messages of a batch that are not acknowledged (bits set); None: the whole entry is acknowledged."""
    batch_size: int = 0
    """Number of messages of the batch; 0: the client did not send it."""

    @property
    def size(self) -> int:
        return self.batch_size or WORD_BITS * len(self.ack_set or ())

    @property
    def bits(self) -> int:
        """The acknowledged messages of the batch, one bit each."""
        return ((1 << self.size) - 1) & ~bits_of(self.ack_set or ())

    @property
    def cumulative(self) -> Cumulative:
        """The claim as a cumulative acknowledgement."""
        return Cumulative(self.entry_id, bits_of(self.ack_set) if self.ack_set else 0)


class BatchPart(NamedTuple):
    """A partly held batch."""

    bits: int
    """The held messages, one bit each."""
    size: int
    """Number of messages of the batch."""


class Cumulative(NamedTuple):
    """A cumulative acknowledgement: all entries before one entry, and messages of that entry."""

    entry_id: int
    open_bits: int
    """The messages of the entry that are not acknowledged, one bit each; 0: the whole entry is acknowledged."""


class HeldAcks:
    """The acknowledgements that one transaction holds."""

    __slots__ = ("batches", "cumulative", "entries")

    def __init__(self) -> None:
        self.entries = array("q")
        """Ids of wholly held entries, in order of arrival."""
        self.batches: dict[int, BatchPart] = {}
        """Entry id -> partly held batch."""
        self.cumulative: Cumulative | None = None


class PendingAcks:
    """The acknowledgements of all open transactions at one subscription."""

    def __init__(self) -> None:
        self.by_txn: OrderedDict[TxnId, HeldAcks] = OrderedDict()
        self._holder: dict[int, TxnId] = {}
        """Id of a wholly held entry -> its transaction."""
        self._batches: dict[int, int] = {}
        """Entry id of a partly held batch -> number of transactions that hold messages of it."""
        self._cumulative: TxnId | None = None
        """The transaction with the newest cumulative acknowledgement; after loading, with the furthest."""

    @property
    def cumulative(self) -> TxnId | None:
        """The transaction that holds the newest cumulative acknowledgement; None: it has ended, or there was none."""
        return self._cumulative

    def __bool__(self) -> bool:
        return bool(self.by_txn)

    def __len__(self) -> int:
        """Number of individually held entries, in whole or in part."""
        return len(self._holder) + len(self._batches)

    # The protocol that a cursor uses (core.cursor.cursor.Holding).

    def holds(self, entry_id: int) -> bool:
        """Whether a transaction holds the whole entry."""
        return entry_id in self._holder

    def held_bits(self, entry_id: int) -> tuple[int, int]:
        """Return (held messages of a batch, one bit each; batch size). (0, 0): the entry is not partly held."""
        if entry_id not in self._batches:
            return 0, 0
        bits, size = 0, 0
        for held in self.by_txn.values():
            part = held.batches.get(entry_id)
            if part is not None:
                bits, size = bits | part.bits, max(size, part.size)
        return bits, size

    def covering(self, entry_id: int) -> TxnId | None:
        """Return the transaction whose cumulative acknowledgement, the newest, covers this entry, even in part."""
        if self._cumulative is None:
            return None
        cumulative = self.by_txn[self._cumulative].cumulative
        assert cumulative is not None
        return self._cumulative if entry_id <= cumulative.entry_id else None

    # Acknowledging.

    def acknowledge(self, txn: TxnId, claims: Sequence[ClaimedAck], cursor: Cursor) -> None:
        """Hold all of these acknowledgements, or none. What this transaction holds already has no effect. Raises
        ProtocolError: TransactionConflict when another transaction holds a message or it is acknowledged (PA2),
        NotAllowedError beyond `ACKS_MAX`."""
        for claim in claims:
            self._check(txn, claim, cursor)
        if len(self) + len(claims) > ACKS_MAX:
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"open transactions hold {len(self)} entries of this subscription; {ACKS_MAX} are the maximum",
            )
        for claim in claims:
            self._hold(txn, claim)

    def _check(self, txn: TxnId, claim: ClaimedAck, cursor: Cursor) -> None:
        entry_id = claim.entry_id
        holder = self._holder.get(entry_id)
        if holder is not None and holder != txn:
            raise _conflict(entry_id, f"is held by transaction {holder.text}")
        if cursor.is_acked(entry_id):
            raise _conflict(entry_id, "is acknowledged already")
        self._check_cumulative_of_others(txn, entry_id)
        bits = claim.bits if claim.ack_set else -1
        if claim.ack_set:
            open_bits = cursor.open_bits.get(entry_id, (1 << claim.size) - 1)
            if bits & ~open_bits:
                raise _conflict(entry_id, "is a batch of which one of these messages is acknowledged already")
        if entry_id in self._batches:
            for other, held in self.by_txn.items():
                part = held.batches.get(entry_id)
                if other != txn and part is not None and part.bits & bits:
                    raise _conflict(
                        entry_id, f"is a batch of which transaction {other.text} holds one of these messages"
                    )

    def _check_cumulative_of_others(self, txn: TxnId, entry_id: int) -> None:
        other = self._cumulative
        if other is None or other == txn:
            return
        cumulative = self.by_txn[other].cumulative
        if cumulative is not None and entry_id <= cumulative.entry_id:
            raise _conflict(entry_id, f"is held by transaction {other.text}, up to {cumulative.entry_id}")

    def _hold(self, txn: TxnId, claim: ClaimedAck) -> None:
        entry_id = claim.entry_id
        if entry_id in self._holder:
            return
        held = self.by_txn.get(txn)
        if held is None:
            held = self.by_txn[txn] = HeldAcks()
        if claim.ack_set:
            self._hold_part(held, entry_id, BatchPart(claim.bits, claim.size))
        else:
            self._hold_whole(txn, held, entry_id)

    def _hold_part(self, held: HeldAcks, entry_id: int, part: BatchPart) -> None:
        former = held.batches.get(entry_id)
        if former is None:
            self._batches[entry_id] = self._batches.get(entry_id, 0) + 1
            former = BatchPart(0, 0)
        held.batches[entry_id] = BatchPart(former.bits | part.bits, max(former.size, part.size))

    def _hold_whole(self, txn: TxnId, held: HeldAcks, entry_id: int) -> None:
        if held.batches.pop(entry_id, None) is not None:
            self._forget_part(entry_id)
        self._holder[entry_id] = txn
        held.entries.append(entry_id)

    def _forget_part(self, entry_id: int) -> None:
        holders = self._batches.pop(entry_id) - 1
        if holders:
            self._batches[entry_id] = holders

    def acknowledge_cumulative(self, txn: TxnId, claim: ClaimedAck, cursor: Cursor) -> None:
        """Hold a cumulative acknowledgement, or move that of the transaction forward. Raises
        ProtocolError(TransactionConflict) (PA3)."""
        entry_id = claim.entry_id
        wanted = claim.cumulative
        if _is_acknowledged(claim, cursor):
            raise _conflict(entry_id, "is already acknowledged cumulatively")
        self._check_cumulative_of_another(txn, entry_id, cursor)
        self._check_individual_of_others(txn, entry_id, cursor)
        held = self.by_txn.get(txn)
        if held is None:
            held = self.by_txn[txn] = HeldAcks()
        if held.cumulative is not None and _sort_key(wanted) < _sort_key(held.cumulative):
            raise _conflict(
                entry_id, f"is before {held.cumulative.entry_id}, which this transaction holds already"
            )
        held.cumulative, self._cumulative = wanted, txn

    def _check_cumulative_of_another(self, txn: TxnId, entry_id: int, cursor: Cursor) -> None:
        """Raise a conflict when another transaction holds a cumulative acknowledgement beyond mark-delete. One up to
        mark-delete may still be held after a restart, and causes no conflict."""
        other = self._cumulative
        if other is not None and other != txn and self.covering(cursor.mark_delete + 1) is not None:
            raise _conflict(
                entry_id,
                f"cannot be acknowledged cumulatively: transaction {other.text} holds a cumulative "
                "acknowledgement",
            )

    def _check_individual_of_others(self, txn: TxnId, entry_id: int, cursor: Cursor) -> None:
        for other, held in self.by_txn.items():
            if other != txn and any(one <= entry_id and not cursor.is_acked(one) for one in _entries(held)):
                raise _conflict(entry_id, f"is at or behind an entry that transaction {other.text} holds")

    # Ending.

    def end(self, txn: TxnId) -> HeldAcks | None:
        """Remove and return the acknowledgements of a transaction; None: it holds none."""
        held = self.by_txn.pop(txn, None)
        if held is None:
            return None
        for entry_id in held.entries:
            del self._holder[entry_id]
        for entry_id in held.batches:
            self._forget_part(entry_id)
        if self._cumulative == txn:
            self._cumulative = None
        return held

    def clear(self) -> None:
        """Remove all acknowledgements (PA7)."""
        for txn in list(self.by_txn):
            self.end(txn)

    # Loading.

    def restore(self, txn: TxnId, entry_id: int, part: BatchPart | None = None) -> None:
        """Restore a stored acknowledgement of an entry. `part`: its held messages, if it is a partly held batch."""
        held = self.by_txn.setdefault(txn, HeldAcks())
        if part is not None:
            self._hold_part(held, entry_id, part)
        elif entry_id not in self._holder:
            self._hold_whole(txn, held, entry_id)

    def restore_cumulative(self, txn: TxnId, cumulative: Cumulative) -> None:
        """Restore a stored cumulative acknowledgement. If there are several, all but the furthest are acknowledged
        already."""
        self.by_txn.setdefault(txn, HeldAcks()).cumulative = cumulative
        furthest = None if self._cumulative is None else self.by_txn[self._cumulative].cumulative
        if furthest is None or _sort_key(furthest) < _sort_key(cumulative):
            self._cumulative = txn


def commit(held: HeldAcks, cursor: Cursor) -> None:
    """Acknowledge everything that a committed transaction held."""
    if held.cumulative is not None:
        entry_id, open_bits = held.cumulative
        if open_bits:
            cursor.ack_cumulative(entry_id - 1)
            cursor.keep_open(entry_id, open_bits, open_bits.bit_length())
        else:
            cursor.ack_cumulative(entry_id)
    for entry_id in held.entries:
        cursor.ack(entry_id)
    for entry_id, part in held.batches.items():
        cursor.keep_open(entry_id, ~part.bits, part.size)


def furthest(claims: Iterable[ClaimedAck]) -> ClaimedAck:
    """Return the furthest of several cumulative acknowledgements, which covers the others."""
    return max(claims, key=lambda claim: _sort_key(claim.cumulative))


def _is_acknowledged(claim: ClaimedAck, cursor: Cursor) -> bool:
    """Whether a cumulative acknowledgement would acknowledge no further message, even within a batch."""
    if claim.entry_id <= cursor.mark_delete:
        return True
    open_bits = cursor.open_bits.get(claim.entry_id)
    if claim.entry_id > cursor.mark_delete + 1 or not claim.ack_set or open_bits is None:
        return False
    return not claim.bits & open_bits


def _entries(held: HeldAcks) -> Iterator[int]:
    yield from held.entries
    yield from held.batches


def _sort_key(cumulative: Cumulative) -> tuple[int, int, int]:
    """Return the sort key: position in the log, then number of acknowledged messages of the batch."""
    open_bits = cumulative.open_bits
    return cumulative.entry_id, 0 if open_bits else 1, -open_bits.bit_count()


def _conflict(entry_id: int, sentence: str) -> ProtocolError:
    return ProtocolError(ServerError.TransactionConflict, f"entry {entry_id} {sentence}")
