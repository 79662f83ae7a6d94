"""The rate of drops is that of the last minute."""

from __future__ import annotations

from emulator.core.drops import Drops


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
