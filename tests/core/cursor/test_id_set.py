"""A set of ids against a plain set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.cursor.id_set import PART_BITS, PART_IDS, IdSet

SPAN = 3 * PART_IDS
ids = st.one_of(
    st.integers(0, SPAN - 1),
    st.sampled_from([0, 1, PART_IDS - 1, PART_IDS, PART_IDS + 1, 2 * PART_IDS - 1, 2 * PART_IDS]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "discard"]), ids),
        st.tuples(st.sampled_from(["add range", "unite"]), ids, ids),
        st.tuples(st.just("drop"), ids),
    ),
    max_size=12,
)


def apply(step: tuple, one: IdSet, plain: set[int]) -> None:
    match step:
        case ("add", id_):
            assert one.add(id_) == (id_ not in plain)
            plain.add(id_)
        case ("discard", id_):
            assert one.discard(id_) == (id_ in plain)
            plain.discard(id_)
        case ("add range", first, last):
            new = set(range(first, last + 1)) - plain
            assert set(one.add_range(first, last)) == {id_ // PART_IDS for id_ in new}
            plain |= new
        case ("unite", first, last):
            other = IdSet()
            other.update(range(first, last + 1, 3))
            one.unite(other)
            plain.update(range(first, last + 1, 3))
        case ("drop", id_):
            below = id_ // PART_IDS * PART_IDS
            gone = {other for other in plain if other < below}
            assert set(one.drop_parts_below(id_)) == {other // PART_IDS for other in gone}
            plain -= gone


@settings(max_examples=150, deadline=None)
@given(steps, ids, ids)
def test_it_equals_a_plain_set(steps, first, last):
    one, plain = IdSet(), set[int]()
    for step in steps:
        apply(step, one, plain)
    assert set(one) == plain
    assert (len(one), bool(one)) == (len(plain), bool(plain))
    assert (first in one) == (first in plain)
    assert one.count(first, last) == len(plain & set(range(first, last + 1)))
    assert list(one.between(first, last)) == sorted(plain & set(range(first, last + 1)))
    assert one.run_from(first) == next(n for n in range(SPAN + 1) if first + n not in plain)
    if plain:
        assert one.first == min(plain)
    near = [id_ for id_ in plain if id_ < first and id_ // PART_IDS >= first // PART_IDS - 1]
    assert one.last_before(first) == max(near, default=-1)
    runs = one.runs()
    assert all(a[1] + 1 < b[0] for a, b in pairwise(runs)), "maximal"


@given(
    st.sets(st.integers(0, 9_000)),
    st.sets(st.integers(0, 9_000)),
    st.integers(0, 9_000),
    st.integers(0, 9_000),
)
def test_a_range_is_added_except_some_ids(present, excluded, first, last):
    ids = IdSet.of(present)
    changed = ids.add_range_except(first, last, IdSet.of(excluded))
    added = set(range(first, last + 1)) - excluded - present
    assert set(ids) == present | added
    assert changed == sorted({one >> PART_BITS for one in added})


@given(st.sets(st.integers(0, 9_000)), st.sets(st.integers(0, 9_000)))
def test_a_set_is_subtracted(present, removed):
    ids = IdSet.of(present)
    ids.subtract(IdSet.of(removed))
    assert set(ids) == present - removed
    assert all(ids.parts.values())
