"""What a region remembers of the updates of a subscription, and the bound of a fail-over that follows from it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.replication.update_records import (
    BASES_MAX,
    SENT_MAX,
    LogFigures,
    ReceivedUpdate,
    SnapshotBase,
    SnapshotBases,
    UpdateOutcome,
    UpdateRecords,
)
from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.values import Position


def update(entry: int, *regions: str) -> SubscriptionUpdate:
    return SubscriptionUpdate("s", tuple((region, Position(7, entry)) for region in regions or ("b",)))


def sent_at(*entry_ids: int) -> UpdateRecords:
    records = UpdateRecords()
    for entry_id in entry_ids:
        records.note_sent(update(entry_id), entry_id, entry_id * 10, SnapshotBase(entry_id - 1, 0))
    return records


def test_the_newest_update_that_a_region_has_confirmed_is_found():
    records = sent_at(10, 20, 30)
    newest, confirmed = records.newest_sent("b"), records.newest_confirmed("b", 29)
    assert newest is not None
    assert confirmed is not None
    assert (newest.entry_id, confirmed.entry_id) == (30, 20)
    assert records.newest_confirmed("b", 9) is None
    assert records.newest_sent("c") is None


def test_the_oldest_update_is_kept_for_a_region_that_confirms_nothing():
    records = sent_at(*range(1, 10 * SENT_MAX))
    assert len(records.sent) == SENT_MAX
    oldest = records.newest_confirmed("b", 1)
    assert oldest is not None
    assert oldest.entry_id == 1
    assert records.sent_count == 10 * SENT_MAX - 1


def test_an_update_found_in_the_log_does_not_replace_a_newer_one():
    records = UpdateRecords()
    newer = ReceivedUpdate(Position(1, 9), 5, 6, UpdateOutcome.APPLIED)
    records.note_received("b", newer)
    records.found_received("b", Position(1, 3), 2)
    assert records.received["b"] == newer
    assert records.outcomes == {UpdateOutcome.APPLIED: 1}
    records.found_received("c", Position(1, 3), 2)
    records.found_received("c", Position(1, 4), 3)
    assert records.received["c"].position == Position(1, 4)
    records.note_sent(update(8), 8, 80, None)
    for _ in range(2):
        records.found_sent(update(4), 4, 40)
        records.found_sent(update(8), 8, 80)
    assert [one.entry_id for one in records.sent] == [4, 8]


def test_a_base_is_known_from_the_request_to_the_update():
    bases = SnapshotBases()
    positions = (("b", Position(7, 5)),)
    bases.request_written("x", 100)
    bases.request_stored("of another load", 3)
    bases.request_stored("x", 17)
    bases.completed(Snapshot("x", Position(1, 20), positions))
    bases.completed(Snapshot("of another load", Position(1, 21), ()))
    assert bases.of(positions) == SnapshotBase(17, 100)
    assert bases.of(()) is None
    for number in range(10 * BASES_MAX):
        bases.request_written(f"{number}", 0)
    assert len(bases._written) == BASES_MAX


def test_without_a_confirmed_update_the_bound_is_unknown():
    records, log = sent_at(10), LogFigures(20, IdSet(), 20)
    assert records.redelivered_at_most("b", 9, Cursor(19), log) is None
    assert records.redelivered_at_most("c", 19, Cursor(19), log) is None
    records.found_sent(update(30), 30, 0)
    assert records.redelivered_at_most("b", 30, Cursor(19), log) is None, "its base is unknown"


Action = tuple[str, int, int]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 5), st.just(0)),
            st.tuples(st.just("marker"), st.just(0), st.just(0)),
            st.tuples(st.just("ack"), st.integers(0, 60), st.just(0)),
            st.tuples(st.just("cumulative"), st.integers(0, 60), st.just(0)),
            st.tuples(st.just("part"), st.integers(0, 60), st.integers(0, 31)),
        ),
        max_size=60,
    ),
    st.integers(0, 59),
)
def test_the_bound_is_never_below_what_is_acknowledged_after_the_base(actions: list[Action], base_at: int):
    """For any order of publishes, markers and acknowledgements, batches included."""
    cursor, hidden, sizes = Cursor(-1), IdSet(), []
    published, base = 0, None
    for number, (kind, one, other) in enumerate(actions):
        if number == base_at:
            base = SnapshotBase(len(sizes), published)
            hidden.add(len(sizes))
            sizes.append(0)
        match kind:
            case "publish":
                sizes.append(one)
                published += one
            case "marker":
                hidden.add(len(sizes))
                sizes.append(0)
            case "ack" if one < len(sizes):
                cursor.ack(one)
            case "cumulative" if one < len(sizes):
                cursor.ack_cumulative(one)
            case "part" if one < len(sizes) and sizes[one]:
                cursor.keep_open(one, other, sizes[one])
        cursor.ack_hidden(hidden)
    if base is None:
        return
    records = UpdateRecords()
    records.note_sent(update(1), base.entry_id, 0, base)
    bound = records.redelivered_at_most("b", base.entry_id, cursor, LogFigures(len(sizes), hidden, published))
    acked = [
        size
        if cursor.is_acked(entry_id)
        else size - cursor.open_bits.get(entry_id, (1 << size) - 1).bit_count()
        for entry_id, size in enumerate(sizes)
    ]
    redelivered = sum(acked[base.entry_id + 1 :])
    assert bound is not None
    assert bound >= redelivered
    assert not (bound and not redelivered), "nothing acknowledged after the base: nothing is delivered again"
    if len(set(sizes[base.entry_id + 1 :]) | {0, 1}) == 2 and not cursor.open_bits:
        assert bound == redelivered, "single messages are counted exactly"
