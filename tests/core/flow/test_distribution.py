"""Figures by class, as rates."""

from __future__ import annotations

from emulator.core.flow.distribution import Distribution


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
