"""Wall clocks can be wrong in every way, and monotonic time is unaffected."""

from __future__ import annotations

import pytest

from emulator.simulation.simulation import Simulation
from emulator.simulation.virtual_time import EPOCH_MS, WallClock


class Time:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_clock_that_is_right_shows_virtual_time_since_the_epoch():
    """Every simulation starts at the beginning of 2026."""
    time = Time()
    clock = WallClock(time)
    assert clock() == EPOCH_MS
    time.seconds = 1.5
    assert clock() == EPOCH_MS + 1500


def test_a_clock_can_be_ahead_or_behind():
    assert WallClock(Time(), offset_ms=250)() == EPOCH_MS + 250
    assert WallClock(Time(), offset_ms=-250).offset_ms == -250


def test_a_clock_that_drifts_gains_or_loses_so_many_microseconds_a_second():
    """100 ppm are 8.64 s a day."""
    time = Time()
    clock = WallClock(time, drift_ppm=100)
    time.seconds = 86_400
    assert clock.offset_ms == pytest.approx(8640)
    clock.drift_ppm = -100
    assert clock.offset_ms == pytest.approx(8640)
    time.seconds = 2 * 86_400
    assert clock.offset_ms == pytest.approx(0, abs=1)


def test_a_clock_jumps_and_is_set_right():
    """Also backwards; then it keeps drifting."""
    time = Time()
    clock = WallClock(time, drift_ppm=1000)
    time.seconds = 10
    clock.jump(-5000)
    assert clock() == EPOCH_MS + 5010
    clock.correct()
    assert clock.offset_ms == pytest.approx(0)
    time.seconds = 20
    assert clock.offset_ms == pytest.approx(10)


def test_hosts_have_clocks_of_their_own_and_timers_do_not_notice():
    """A jump of an hour moves no deadline and no other host's clock."""
    rung: list[float] = []
    with Simulation(1) as simulation:
        us, eu = simulation.host("us"), simulation.host("eu")
        us.loop.call_later(10, lambda: rung.append(us.loop.time()))
        simulation.at(5, us.wall_clock_ms.jump, 3_600_000)
        simulation.run_for(20)
        assert rung == [10]
        assert us.wall_clock_ms() - eu.wall_clock_ms() == 3_600_000
        us.kill()
        us.start(nothing())
        assert us.wall_clock_ms.offset_ms == 3_600_000


async def nothing() -> None:
    pass
