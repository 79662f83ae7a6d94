"""Pending acknowledgements against a plain model: which transaction holds what, the effect of a commit, and the state
after a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor, words_of
from emulator.core.transactions.pending_ack_rows import PendingRows, RowName
from emulator.core.transactions.pending_acks import ACKS_MAX, ClaimedAck, Cumulative, PendingAcks, commit
from emulator.errors import ProtocolError, ServerError, StorageDamaged
from emulator.model.transaction_names import TxnId

ENTRIES, SIZE = 8, 3
TXNS = [TxnId(0, 1), TxnId(0, 2), TxnId(1, 1)]
T1, T2, T3 = TXNS

Message = tuple[int, int]
"""(entry, index); every entry of the model is a batch of `SIZE`."""


class Model:
    """The state of each message: acknowledged, held by a transaction individually, or neither."""

    def __init__(self) -> None:
        self.acked: set[Message] = set()
        self.held: dict[Message, TxnId] = {}
        self.cumulative: tuple[TxnId, list[Message]] | None = None

    def upto(self, entry_id: int, indexes: int) -> list[Message]:
        whole = [(entry, index) for entry in range(entry_id) for index in range(SIZE)]
        return whole + [(entry_id, index) for index in range(indexes)]

    def may_hold(self, txn: TxnId, entry_id: int, indexes: list[int]) -> bool:
        """Return whether a transaction may acknowledge these indexes; all of an entry means those that are left."""
        if (
            self.cumulative is not None
            and self.cumulative[0] != txn
            and entry_id <= self.cumulative[1][-1][0]
        ):
            return False
        acked = [(entry_id, index) in self.acked for index in indexes]
        if all(acked) or (any(acked) and len(indexes) < SIZE):
            return False
        return all(self.held.get((entry_id, index), txn) == txn for index in indexes)

    def may_hold_upto(self, txn: TxnId, entry_id: int, indexes: int) -> bool:
        prefix = 0
        while self.is_acked(prefix):
            prefix += 1
        if entry_id < prefix or self.acked.issuperset(self.upto(entry_id, indexes)):
            return False
        if self.cumulative is not None and self.cumulative[0] != txn and self.cumulative[1][-1][0] >= prefix:
            return False
        if any(
            other != txn and entry <= entry_id and not self.is_acked(entry)
            for (entry, _), other in self.held.items()
        ):
            return False
        return self.cumulative is None or len(self.upto(entry_id, indexes)) >= len(self.cumulative[1])

    def is_acked(self, entry_id: int) -> bool:
        return all((entry_id, index) in self.acked for index in range(SIZE))

    def end(self, txn: TxnId, committed: bool) -> None:
        mine = [message for message, holder in self.held.items() if holder == txn]
        for message in mine:
            del self.held[message]
        if self.cumulative is not None and self.cumulative[0] == txn:
            mine += self.cumulative[1]
            self.cumulative = None
        if committed:
            self.acked.update(mine)


def claim_of(entry_id: int, indexes: list[int]) -> ClaimedAck:
    """The ack set in Java's form: the bits of all others are set."""
    if len(indexes) == SIZE:
        return ClaimedAck(entry_id)
    kept = ((1 << SIZE) - 1) & ~sum(1 << index for index in indexes)
    return ClaimedAck(entry_id, words_of(kept), SIZE)


class System:
    """The tested code, with a store that survives a crash."""

    def __init__(self) -> None:
        self.cursor = Cursor(-1)
        self.rows_stored: dict[RowName, bytes] = {}
        self.begin()

    def begin(self) -> None:
        self.acks = PendingAcks()
        self.rows = PendingRows(self.acks)
        self.rows.load(self.cursor.generation, self.rows_stored)
        self.cursor.held = self.acks

    def write(self) -> None:
        puts, deletes = self.rows.take_changes()
        self.rows_stored.update(puts)
        for name in deletes:
            self.rows_stored.pop(name, None)

    def messages_left(self) -> set[Message]:
        """Return the messages that a consumer would receive."""
        left: set[Message] = set()
        for entry in range(ENTRIES):
            if self.cursor.is_acked_or_held(entry):
                continue
            words = self.cursor.ack_set_of(entry)
            bits = (1 << SIZE) - 1 if words is None else int(words[0])
            left |= {(entry, index) for index in range(SIZE) if bits >> index & 1}
        return left


indexes = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=SIZE, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("ack"),
            st.sampled_from(TXNS),
            st.lists(st.tuples(st.integers(0, ENTRIES - 1), indexes), min_size=1, max_size=3),
        ),
        st.tuples(
            st.just("upto"),
            st.sampled_from(TXNS),
            st.tuples(st.integers(0, ENTRIES - 1), st.integers(1, SIZE)),
        ),
        st.tuples(st.just("end"), st.sampled_from(TXNS), st.booleans()),
        st.tuples(st.just("plain"), st.none(), st.tuples(st.integers(0, ENTRIES - 1), indexes)),
        st.tuples(st.just("crash"), st.none(), st.none()),
        st.tuples(st.just("seek"), st.none(), st.integers(0, ENTRIES - 1)),
    ),
    max_size=25,
)


def is_held(attempt: Callable[[], object]) -> bool:
    """Return whether it was accepted; a rejection is a conflict."""
    codes = []
    try:
        attempt()
    except ProtocolError as problem:
        codes.append(problem.code)
    assert codes in ([], [ServerError.TransactionConflict])
    return not codes


@settings(deadline=None, max_examples=300)
@given(steps)
def test_every_message_belongs_to_one_transaction_whatever_crashes(story: list[tuple]) -> None:  # type: ignore[type-arg]
    model, real = Model(), System()
    for what, txn, how in story:
        if what == "ack":
            messages = [(entry, index) for entry, some in how for index in some]
            claims = [claim_of(entry, some) for entry, some in how]
            held = is_held(lambda txn=txn, claims=claims: real.acks.acknowledge(txn, claims, real.cursor))
            assert held == all(model.may_hold(txn, entry, some) for entry, some in how)
            if held:
                real.rows.holds(real.cursor.generation, txn, [entry for entry, _ in how])
                model.held.update(dict.fromkeys(messages, txn))
        elif what == "upto":
            entry, count = how
            words = words_of(((1 << SIZE) - 1) & ~((1 << count) - 1)) or None
            claim = ClaimedAck(entry, words, SIZE)
            held = is_held(
                lambda txn=txn, claim=claim: real.acks.acknowledge_cumulative(txn, claim, real.cursor)
            )
            assert held == model.may_hold_upto(txn, entry, count)
            if held:
                real.rows.moved(real.cursor.generation, txn)
                model.cumulative = (txn, model.upto(entry, count))
        elif what == "end":
            released = real.acks.end(txn)
            if released is not None and how:
                commit(released, real.cursor)
            real.rows.ended(txn)
            model.end(txn, how)
        elif what == "plain":
            entry, some = how
            claim = claim_of(entry, some)
            if claim.ack_set:
                real.cursor.ack_batch(entry, claim.ack_set, SIZE)
            else:
                real.cursor.ack(entry)
            model.acked |= {(entry, index) for index in some}
        elif what == "seek":
            real.cursor.seek(how)
            real.acks.clear()
            real.rows.clear()
            model.held.clear()
            model.cumulative = None
            model.acked = set(model.upto(how, 0))
        elif what == "crash":
            real.begin()
        real.write()
        everything = {(entry, index) for entry in range(ENTRIES) for index in range(SIZE)}
        assert real.messages_left() == everything - model.acked - set(model.held)
        assert len({name for name in real.rows_stored if name.generation != real.cursor.generation}) == 0


def test_an_acknowledgement_holds_all_or_nothing() -> None:
    acks, cursor = PendingAcks(), Cursor(-1)
    acks.acknowledge(T1, [ClaimedAck(5)], cursor)
    with pytest.raises(ProtocolError, match=r"entry 5 is held by transaction \(0,1\)"):
        acks.acknowledge(T2, [ClaimedAck(4), ClaimedAck(5)], cursor)
    acks.acknowledge(T3, [ClaimedAck(4)], cursor)
    acks.acknowledge(T1, [ClaimedAck(5)], cursor)
    assert len(acks) == 2


def test_what_is_acknowledged_cannot_be_held() -> None:
    acks, cursor = PendingAcks(), Cursor(-1)
    cursor.ack(3)
    with pytest.raises(ProtocolError, match="acknowledged already"):
        acks.acknowledge(T1, [ClaimedAck(3)], cursor)
    cursor.ack_cumulative(4)
    with pytest.raises(ProtocolError, match="already acknowledged cumulatively"):
        acks.acknowledge_cumulative(T1, ClaimedAck(4), cursor)


def test_rows_of_another_generation_are_to_be_deleted() -> None:
    acks = PendingAcks()
    rows = PendingRows(acks)
    stale = RowName(0, T1, 0)
    rows.load(1, {stale: b"whatever"})
    assert not acks
    assert rows.take_changes().deletes == [stale]


@pytest.mark.parametrize(
    "row", [b"", b"[]", b"{}", b'{"ids":"zz","batches":{}}', b'{"ids":"1","batches":[]}']
)
def test_a_row_that_cannot_be_read_is_an_error(row: bytes) -> None:
    with pytest.raises(StorageDamaged, match="0_0_1_0 cannot be read"):
        PendingRows(PendingAcks()).load(0, {RowName(0, T1, 0): row})
    with pytest.raises(StorageDamaged, match="does not name pending"):
        RowName.parse("1_2_x_3")


def test_names_of_rows_are_read_back() -> None:
    for name in (RowName(0, T1, 0), RowName(7, TxnId(3, 2**63), -1)):
        assert RowName.parse(str(name)) == name


@pytest.mark.long
def test_there_is_a_bound() -> None:
    acks, cursor = PendingAcks(), Cursor(-1)
    acks.acknowledge(T1, [ClaimedAck(entry_id) for entry_id in range(ACKS_MAX)], cursor)
    with pytest.raises(ProtocolError, match="are the maximum"):
        acks.acknowledge(T2, [ClaimedAck(ACKS_MAX)], cursor)


def test_what_is_acknowledged_and_held_still_causes_no_conflict() -> None:
    """State after a restart, when the region died between writing the cursor and the rows."""
    acks, cursor = PendingAcks(), Cursor(-1)
    cursor.ack_cumulative(5)
    acks.restore_cumulative(T1, Cumulative(5, 0))
    acks.restore(T2, 4)
    acks.acknowledge_cumulative(T3, ClaimedAck(7), cursor)
    assert acks.covering(7) == T3
    assert acks.covering(8) is None
    acks.end(T1)
    assert acks.covering(7) == T3


def test_of_several_that_a_restart_finds_the_one_that_goes_furthest_counts() -> None:
    for order in ((T1, T2), (T2, T1)):
        acks = PendingAcks()
        for txn in order:
            acks.restore_cumulative(txn, Cumulative(5 if txn is T1 else 7, 0))
        assert acks.covering(0) == T2


def test_a_cumulative_acknowledgement_that_acknowledges_nothing_is_a_conflict_within_a_batch_too() -> None:
    """A consumer that receives its messages again would process the first ones twice."""
    acks, cursor = PendingAcks(), Cursor(4)
    acks.acknowledge_cumulative(T1, claim_of(5, [0]), cursor)
    held = acks.end(T1)
    assert held is not None
    commit(held, cursor)
    with pytest.raises(ProtocolError, match="entry 5 is already acknowledged cumulatively"):
        acks.acknowledge_cumulative(T2, claim_of(5, [0]), cursor)
    acks.acknowledge_cumulative(T2, claim_of(5, [0, 1]), cursor)
