"""Distributions as rates per class; drop counts of the last minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.flow.meters import Distribution, Drops, Rate, UnsentEntries


def test_each_figure_is_in_the_class_whose_limit_it_does_not_pass() -> None:
    sizes = Distribution((128, 512), 0.0)
    for figure, times in ((1, 1), (128, 2), (129, 3), (512, 4), (513, 5)):
        sizes.add(figure, times)
    assert sizes.per_second(1.0) == ([3, 7, 5], 15, 1 + 2 * 128 + 3 * 129 + 4 * 512 + 5 * 513)
    assert sizes.per_second(3.0).classes == [1, 7 / 3, 5 / 3]


def test_what_was_long_ago_is_in_no_rate_any_more() -> None:
    sizes = Distribution((128,), 0.0)
    sizes.add_each([1] * 100)
    sizes.per_second(10.0)
    assert sizes.per_second(20.0).times == 0 == sizes.per_second(20.0).classes[0]


@given(st.lists(st.lists(st.integers(0, 700), max_size=5), max_size=5))
def test_figures_are_counted_together_as_one_by_one(parts: list[list[int]]) -> None:
    together, alone = Distribution((128, 512), 0.0), Distribution((128, 512), 0.0)
    for figures in parts:
        together.add_each(figures)
        for figure in figures:
            alone.add(figure)
    assert together._figures() == alone._figures()


@given(st.lists(st.tuples(st.integers(0, 15), st.lists(st.integers(1, 300)))))
def test_each_rate_of_a_distribution_is_that_of_its_counter(reads: list[tuple[int, list[int]]]) -> None:
    sizes, rates = Distribution((128,), 0.0), [Rate(0.0) for _ in range(4)]
    now_seconds, small, large, total = 0, 0, 0, 0
    for seconds, figures in reads:
        now_seconds += seconds
        sizes.add_each(figures)
        small += sum(figure <= 128 for figure in figures)
        large += sum(figure > 128 for figure in figures)
        total += sum(figures)
        counts = (small, large, small + large, total)
        small_rate, large_rate, *others = (
            rate.per_second(count, now_seconds) for rate, count in zip(rates, counts, strict=True)
        )
        assert sizes.per_second(now_seconds) == ([small_rate, large_rate], *others)


def test_the_rate_is_that_of_the_last_minute_and_the_total_stays() -> None:
    drops = Drops()
    drops.count(60, 1_000)
    assert drops.rate(30_000) == 1.0
    assert drops.rate(60_000) == 1.0
    assert drops.rate(90_000) == 0.5
    drops.count(30, 90_000)
    assert drops.rate(90_000) == 1.0
    assert drops.rate(200_000) == 0.0
    assert drops.total == 90


def test_what_waits_is_taken_once_and_in_the_order_of_its_ids() -> None:
    waiting = UnsentEntries()
    for entry_id, messages in ((3, 1), (5, 10), (9, 100)):
        waiting.add(entry_id, messages)
    assert waiting.take_before(3) == 0
    assert waiting.take_before(6) == 11
    assert waiting.take_before(6) == 0
    assert waiting.take_before(100) == 100


def test_what_was_offered_is_not_offered_again() -> None:
    waiting = UnsentEntries()
    waiting.add(3, 1)
    with pytest.raises(AssertionError):
        waiting.add(3, 1)
