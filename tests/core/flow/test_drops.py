"""The rate of drops is that of the last minute."""

from __future__ import annotations

import pytest

from emulator.core.flow.drops import Drops, Waiting


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
    waiting = Waiting()
    for entry_id, messages in ((3, 1), (5, 10), (9, 100)):
        waiting.add(entry_id, messages)
    assert waiting.take_before(3) == 0
    assert waiting.take_before(6) == 11
    assert waiting.take_before(6) == 0
    assert waiting.take_before(100) == 100


def test_what_was_offered_is_not_offered_again() -> None:
    waiting = Waiting()
    waiting.add(3, 1)
    with pytest.raises(AssertionError):
        waiting.add(3, 1)
