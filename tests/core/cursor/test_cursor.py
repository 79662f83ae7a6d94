"""State of a cursor after acknowledgements and seeks; INV-8. Its stored format:
tests/core/cursor/test_stored_format.py."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import PART_IDS
from emulator.core.cursor.stored_format import CursorParts
from tests.core.ids import id_set

IDS = 24
BATCH_SIZE = 5
WORDS_OF_70 = (-1, 0b111111)
"""70 messages, none acknowledged, as signed words."""


class NaiveCursor:
    """A reference cursor: a set of ids, and a set of open indexes per batch."""

    def __init__(self) -> None:
        self.acked: set[int] = set()
        self.open: dict[int, set[int]] = {}

    @property
    def mark_delete(self) -> int:
        return next(id_ for id_ in range(IDS + 1) if id_ not in self.acked) - 1

    def ack_all(self, ids: set[int]) -> bool:
        new = ids - self.acked
        self.acked |= new
        self.open = {entry_id: open_ for entry_id, open_ in self.open.items() if entry_id not in self.acked}
        return bool(new)

    def ack_batch(self, entry_id: int, still_open: set[int]) -> bool:
        if entry_id in self.acked:
            return False
        left = self.open.get(entry_id, set(range(BATCH_SIZE))) & still_open
        if not left:
            return self.ack_all({entry_id})
        if entry_id in self.open or len(left) < BATCH_SIZE:
            self.open[entry_id] = left
        return False

    def seek(self, next_entry_id: int) -> None:
        self.acked, self.open = set(range(next_entry_id)), {}


ids = st.integers(0, IDS - 1)
indexes = st.sets(st.integers(0, BATCH_SIZE - 1))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), ids),
        st.tuples(st.just("range"), ids, ids),
        st.tuples(st.just("cumulative"), ids),
        st.tuples(st.just("except"), ids, st.sets(ids, max_size=6)),
        st.tuples(st.just("hidden"), st.sets(ids)),
        st.tuples(st.just("batch"), ids, indexes),
        st.tuples(st.just("cumulative batch"), ids, indexes),
        st.tuples(st.just("seek"), st.integers(0, IDS)),
        st.tuples(st.just("reload")),
    ),
    max_size=40,
)


def state_of(cursor: Cursor) -> tuple:
    return cursor.mark_delete, cursor.acked_ranges, dict(cursor.open_bits), cursor.replicated


def stored_again(cursor: Cursor) -> Cursor:
    """Write the cursor to an empty store and read it back."""
    cursor.head_changed = True
    cursor.changed_parts.update(range(IDS // PART_IDS + 1))
    (puts,), _ = CursorParts(cursor).take_changes()
    parts = {name: value for name, value in puts.items() if name is not None}
    return CursorParts.load(puts[None], parts).cursor


def ack_set(indexes: set[int]) -> list[int]:
    return [sum(1 << index for index in indexes)]


def apply(step: tuple, cursor: Cursor, naive: NaiveCursor) -> Cursor:
    """Apply one step to both; their results must be equal."""
    match step:
        case ("ack", id_):
            assert cursor.ack(id_) == naive.ack_all({id_})
        case ("range", first, last):
            assert cursor.ack_range(first, last) == naive.ack_all(set(range(first, last + 1)))
        case ("cumulative", id_):
            assert cursor.ack_cumulative(id_) == naive.ack_all(set(range(id_ + 1)))
        case ("except", id_, unseen):
            assert cursor.ack_cumulative_except(id_, unseen) == naive.ack_all(set(range(id_ + 1)) - unseen)
        case ("hidden", hidden):
            before = naive.mark_delete
            while naive.mark_delete + 1 in hidden:
                naive.ack_all({naive.mark_delete + 1})
            assert cursor.ack_hidden(id_set(hidden)) == (naive.mark_delete > before)
        case ("batch", id_, still_open):
            assert cursor.ack_batch(id_, ack_set(still_open), BATCH_SIZE) == naive.ack_batch(id_, still_open)
        case ("cumulative batch", id_, still_open):
            naive.ack_all(set(range(id_)))
            expected = naive.ack_batch(id_, still_open)
            cursor.ack_cumulative(id_ - 1)
            assert cursor.ack_batch(id_, ack_set(still_open), BATCH_SIZE) == expected
        case ("seek", id_):
            cursor.seek(id_)
            naive.seek(id_)
        case ("reload",):
            cursor = stored_again(cursor)
    return cursor


@pytest.fixture
def cursor() -> Cursor:
    return Cursor(-1)


@settings(max_examples=150, deadline=None)
@given(steps, st.sets(ids))
def test_a_cursor_equals_a_plain_set_of_ids(steps, hidden):
    cursor, naive = Cursor(-1), NaiveCursor()
    for step in steps:
        before = (state_of(cursor), cursor.version, cursor.mark_delete)
        cursor = apply(step, cursor, naive)
        if step[0] not in ("seek", "reload"):
            assert cursor.mark_delete >= before[2], "INV-8"
            assert (state_of(cursor) != before[0]) == (cursor.version != before[1]), "every change is noticed"
        assert cursor.mark_delete == naive.mark_delete
        assert [cursor.is_acked(id_) for id_ in range(IDS)] == [id_ in naive.acked for id_ in range(IDS)]
    for id_ in range(IDS):
        open_ = naive.open.get(id_)
        assert cursor.ack_set_of(id_) == (None if open_ is None else tuple(ack_set(open_)))
        assert cursor.next_unacked(id_) == next(i for i in range(id_, IDS + 1) if i not in naive.acked)
        expected = set(range(id_)) - naive.acked - hidden
        assert cursor.unacked_count(id_, id_set(hidden)) == len(expected)
    assert {i for first, last in cursor.acked_ranges for i in range(first, last + 1)} == {
        i for i in naive.acked if i > naive.mark_delete
    }


def test_ranges_that_touch_are_one(cursor):
    for entry_id in (3, 5, 4, 9):
        assert cursor.ack(entry_id)
    assert cursor.acked_ranges == [(3, 5), (9, 9)]


def test_closing_the_hole_moves_mark_delete_over_what_follows(cursor):
    cursor.ack_range(1, 7)
    cursor.ack(0)
    assert (cursor.mark_delete, cursor.acked_ranges) == (7, [])


def test_acknowledging_twice_returns_false_and_changes_nothing(cursor):
    cursor.ack(0)
    cursor.ack(5)
    version = cursor.version
    assert not cursor.ack(0)
    assert not cursor.ack(5)
    assert not cursor.ack_cumulative(0)
    assert cursor.version == version


def test_a_batch_of_more_than_one_word_is_acknowledged_bit_by_bit(cursor):
    """Bit i of word i/64, set = not acknowledged; words are signed on the wire."""
    assert not cursor.ack_batch(0, (WORDS_OF_70[0], 0b011111), 70)
    assert cursor.ack_set_of(0) == (-1, 0b011111)
    assert not cursor.ack_batch(0, (1,), 70)
    assert cursor.ack_set_of(0) == (1,), "trailing words left out are clear"
    assert cursor.ack_batch(0, (0, 0), 70)
    assert (cursor.mark_delete, cursor.ack_set_of(0)) == (0, None)


def test_an_ack_set_that_acknowledges_nothing_is_remembered_as_nothing(cursor):
    assert not cursor.ack_batch(0, WORDS_OF_70, 70)
    assert cursor.ack_set_of(0) is None
    assert cursor.version == 0


def test_bits_beyond_the_batch_never_keep_an_entry_open(cursor):
    assert cursor.ack_batch(0, (~0b111,), 3)


def test_an_update_leaves_what_the_other_region_never_saw():
    """Entries 3 and 6 never reached the sender of the update."""
    cursor = Cursor(0)
    cursor.ack_cumulative_except(8, [6, 3, 11])
    assert cursor.mark_delete == 2
    assert cursor.acked_ranges == [(4, 5), (7, 8)]


def test_an_unseen_entry_keeps_what_was_acknowledged_of_it(cursor):
    cursor.ack(3)
    cursor.ack_batch(5, (0b01,), 2)
    cursor.ack_cumulative_except(8, [3, 5])
    assert cursor.is_acked(3)
    assert cursor.ack_set_of(5) == (0b01,)
    assert cursor.mark_delete == 4


def test_seek_forgets_everything_from_the_place_on():
    cursor = Cursor(9)
    cursor.ack(12)
    cursor.ack_batch(14, (1,), 2)
    cursor.seek(5)
    assert (cursor.mark_delete, cursor.acked_ranges, cursor.ack_set_of(14)) == (4, [], None)


def test_a_subscription_without_consumers_passes_markers_behind_its_position():
    cursor = Cursor(4)
    cursor.ack_range(6, 8)
    assert cursor.ack_hidden(id_set([1, 5, 9, 10, 12]))
    assert (cursor.mark_delete, cursor.acked_ranges) == (10, [])


def test_consumers_are_ahead_until_an_update_covers_all_of_it_and_more(cursor):
    cursor.ack_range(0, 2)
    assert not cursor.ahead_of_peers, "no consumer consumed markers and gaps"
    cursor.ack_cumulative(4)
    assert cursor.ahead_of_peers
    cursor.ack_cumulative_except(4, [])
    assert cursor.ahead_of_peers, "an update without news changes nothing"
    cursor.ack_cumulative_except(6, [])
    assert not cursor.ahead_of_peers
    cursor.ack(9)
    cursor.ack_cumulative_except(8, [])
    assert cursor.ahead_of_peers, "the other region does not know of 9"
    again = stored_again(cursor)
    assert again.ahead_of_peers
    again.ack_cumulative_except(10, [])
    assert not again.ahead_of_peers


def test_an_update_that_contains_less_than_earlier_ones_leaves_us_ahead(cursor):
    """A region that is ahead also sends positions that it received from others."""
    cursor.ack_cumulative_except(10, [3, 5])
    cursor.ack(3)
    assert cursor.ack_cumulative_except(8, [])
    assert cursor.ahead_of_peers


def test_a_seek_is_no_progress(cursor):
    cursor.ack_cumulative(10)
    cursor.seek(2)
    assert not cursor.ahead_of_peers
    cursor.ack(2)
    cursor.ack_cumulative_except(5, [])
    assert not cursor.ahead_of_peers, "the seek drops earlier acknowledgements"


def test_setting_what_is_set_is_no_change(cursor):
    cursor.set_replicated(False)
    assert cursor.version == 0
    cursor.set_replicated(True)
    version = cursor.version
    cursor.set_replicated(True)
    assert cursor.version == version


def test_a_long_acknowledged_run_beyond_a_hole_costs_little(cursor):
    cursor.ack_range(1, 10_000_000)
    assert cursor.next_unacked(1) == 10_000_001
    assert cursor.unacked_count(10_000_001) == 1
    cursor.ack(0)
    assert (cursor.mark_delete, cursor.acked_ranges) == (10_000_000, [])


def test_an_ack_set_of_the_largest_frame_is_applied_and_returned() -> None:
    """Built up word by word as one number it took minutes, and blocked the whole region."""
    words = [-1] * 400_000
    words[-1] = 0x7FFF_FFFF_FFFF_FFFF
    cursor = Cursor(-1)
    assert not cursor.ack_batch(0, words, 64 * len(words))
    assert cursor.ack_set_of(0) == tuple(words)


near_part_ends = st.builds(
    lambda part, offset: PART_IDS * part + offset, st.integers(1, 3), st.integers(-9, 9)
)
some_ids = st.integers(0, 30) | near_part_ends
before_runs = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), some_ids),
        st.tuples(st.just("ack_range"), some_ids, some_ids),
        st.tuples(st.just("ack_cumulative"), some_ids),
        st.tuples(st.just("keep_open"), some_ids, st.just(0b101), st.just(BATCH_SIZE)),
        st.tuples(st.just("seek"), st.just(3)),
    ),
    max_size=12,
)


def all_of(cursor: Cursor) -> tuple:
    """Return the state of a cursor, and what is to be stored."""
    passed = {part: bits for part in cursor._acked.parts if (bits := cursor.acked_bits(part))}
    return (
        *state_of(cursor),
        passed,
        cursor.highest_acked,
        cursor.ahead_of_peers,
        cursor.head_changed,
        cursor.changed_parts,
        cursor.generation,
    )


@given(before_runs, st.lists(st.tuples(some_ids, st.integers(0, 12)), min_size=1, max_size=4), st.booleans())
@example([], [(0, 3 * PART_IDS)], False)
@example([("ack", PART_IDS)], [(5, 2 * PART_IDS)], True)
@example([("ack_range", 5, 8)], [(3, 5)], False)
@example([("ack_range", 0, 8)], [(3, 5), (8, 1)], False)
def test_a_run_has_the_effect_of_single_acknowledgements(
    before: list[tuple], runs: list[tuple[int, int]], leads: bool
) -> None:
    one_by_one, in_runs = Cursor(-1), Cursor(-1)
    for cursor in (one_by_one, in_runs):
        for name, *arguments in before:
            getattr(cursor, name)(*arguments)
        cursor.head_changed = False
        cursor.changed_parts.clear()
        cursor.ahead_of_peers = leads
    for first, more in runs:
        versions = one_by_one.version, in_runs.version
        changed = [one_by_one.ack(entry_id) for entry_id in range(first, first + more + 1)]
        assert in_runs.ack_run(first, first + more) == any(changed)
        assert (in_runs.version != versions[1]) == (one_by_one.version != versions[0]) == any(changed)
        assert all_of(in_runs) == all_of(one_by_one)
