"""Sets of entries by origin, against plain sets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.replication.origins import Origin, OriginLedger, OriginSet
from emulator.model.values import AFTER_EVERYTHING, Position

origins = st.builds(
    Origin,
    st.sampled_from(["a", "b", "eu:west"]),
    st.sampled_from([0, 5, 9]),
    st.one_of(st.integers(0, 40), st.integers(4_090, 4_100), st.just(AFTER_EVERYTHING.entry)),
)
plain_sets = st.frozensets(origins, max_size=30)


@given(plain_sets, plain_sets, origins)
def test_it_equals_a_plain_set(one, other, origin):
    found = OriginSet.of(one)
    assert list(found) == sorted(one)
    assert (len(found), bool(found), origin in found) == (len(one), bool(one), origin in one)
    both = found.union(OriginSet.of(other))
    assert set(both) == one | other
    assert set(found) == one, "a union does not change its operands"
    assert (found == OriginSet.of(other)) == (one == other)


@given(plain_sets)
def test_the_json_form_is_parsed_to_an_equal_set(one):
    found = OriginSet.of(one)
    assert OriginSet.parse(json.loads(json.dumps(found.as_json()))) == found


@given(plain_sets, st.sampled_from(["a", "b", "eu:west"]))
def test_the_lowest_position_of_a_region(one, region):
    positions = [origin.position for origin in one if origin.region == region]
    assert OriginSet.of(one).lowest(region) == min(positions, default=None)
    assert OriginSet.of(one).regions == {origin.region for origin in one}


@given(plain_sets, st.integers(0, 8))
def test_the_smallest_ranges_are_dropped_first(one, ranges_max):
    found = OriginSet.of(one)
    kept = found.largest_ranges(ranges_max)
    assert set(kept) <= one
    assert kept.ranges == min(found.ranges, ranges_max)
    sizes = sorted((last - first for runs in found.as_json().values() for first, last in runs), reverse=True)
    kept_sizes = sorted(
        (last - first for runs in kept.as_json().values() for first, last in runs), reverse=True
    )
    assert kept_sizes == sizes[:ranges_max]


def test_the_json_form_lists_maximal_ranges_by_region_and_ledger():
    found = OriginSet.of([Origin("us-east", 5, entry) for entry in (7, 3, 4)])
    found.add_range("eu", 1, 0, 9)
    found.add_range("eu", 2, 1, 0)
    assert found.as_json() == {"eu:1": [[0, 9]], "us-east:5": [[3, 4], [7, 7]]}


def test_a_set_of_long_ranges_takes_little_time_and_memory():
    found = OriginSet.parse({"a:1": [[0, 10_000_000]]})
    assert len(found) == 10_000_001
    assert found.lowest("a") == Position(1, 0)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ([], "[] must be an object of ranges by region and ledger"),
        (None, "None must be an object of ranges by region and ledger"),
        ({"5": [[0, 1]]}, "'5' must be a region and a ledger, like us-east:5"),
        ({":5": [[0, 1]]}, "':5' must be a region and a ledger, like us-east:5"),
        ({"a b:5": [[0, 1]]}, "'a b:5' must be a region and a ledger, like us-east:5"),
        ({"a:-5": [[0, 1]]}, "'a:-5' must be a region and a ledger, like us-east:5"),
        ({"a:٥": [[0, 1]]}, "'a:٥' must be a region and a ledger, like us-east:5"),
        ({f"a:{2**63}": [[0, 1]]}, f"'a:{2**63}' must have a ledger of at most {2**63 - 1}"),
        ({"a:" + "9" * 5_000: [[0, 1]]}, "must have a ledger of at most"),
        ({"a:5": [[0, 1]], "a:05": [[2, 3]]}, "'a:05' must occur once"),
        ({"a:5": []}, "a:5: [] must be a list of ranges [first, last]"),
        ({"a:5": "0-1"}, "a:5: '0-1' must be a list of ranges [first, last]"),
        ({"a:5": [3]}, "a:5: 3 must be a range [first, last] of entry ids >= 0"),
        ({"a:5": [[0, True]]}, "a:5: [0, True] must be a range [first, last] of entry ids >= 0"),
        ({"a:5": [[0, 1.0]]}, "a:5: [0, 1.0] must be a range [first, last] of entry ids >= 0"),
        ({"a:5": [[0, 1, 2]]}, "a:5: [0, 1, 2] must be a range [first, last] of entry ids >= 0"),
        ({"a:5": [[-1, 1]]}, "a:5: [-1, 1] must ascend, and follow the range before it"),
        ({"a:5": [[2, 1]]}, "a:5: [2, 1] must ascend, and follow the range before it"),
        ({"a:5": [[0, 2**63]]}, f"a:5: [0, {2**63}] must ascend, and follow the range before it"),
        ({"a:5": [[0, 4], [4, 5]]}, "a:5: [4, 5] must ascend, and follow the range before it"),
        ({"a:5": [[0, 2**62]]}, "must have at most 67,108,864 ids in total"),
        ({"a:5": [[0, 0]], "b:5": [[0, 0], [2, 2]]}, "b:5: must have at most 2 ranges in total"),
    ],
)
def test_an_invalid_claim_is_refused_with_place_value_and_rule(claim, message):
    with pytest.raises(ValueError, match=r".") as refused:
        OriginSet.parse(claim, ranges_max=2)
    assert message in str(refused.value)


def test_a_region_name_may_contain_colons():
    assert OriginLedger.parse("eu:west:5") == OriginLedger("eu:west", 5)
