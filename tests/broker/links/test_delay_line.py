"""When an emulated link lets bytes pass."""

from __future__ import annotations

import asyncio
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.broker.links.delay_line import DelayLine, is_flapped_down, opens_at, waiting_bytes_max
from emulator.config.link_shape import LinkShape
from emulator.simulation.simulation import Simulation

TIMES = st.floats(0, 1e6)


@st.composite
def intermittent_shapes(draw: st.DrawFn) -> LinkShape:
    every_ms = draw(st.floats(1, 60_000))
    return LinkShape(
        stall_every_ms=every_ms,
        stall_ms=draw(st.floats(0, every_ms * 0.9)),
        flap_period_ms=draw(st.sampled_from([0.0, 100.0, 4_000.0])),
        flap_up=draw(st.floats(0.05, 1)),
    )


@given(intermittent_shapes(), TIMES)
def test_a_link_with_stalls_and_flaps_opens_within_a_few_periods(shape: LinkShape, now_s: float) -> None:
    opening = now_s
    for _ in range(100):
        later = opens_at(shape, opening)
        assert later >= opening
        if later == opening:
            break
        opening = later
    assert opening - now_s <= (shape.stall_every_ms + shape.flap_period_ms) * 100 / 1000


@given(TIMES)
def test_a_link_that_is_up_is_always_open_and_one_that_is_not_never(now_s: float) -> None:
    assert opens_at(LinkShape(latency_ms=100, bandwidth_bytes_per_second=5), now_s) == now_s
    for state in ("held", "cut"):
        assert opens_at(LinkShape(state=state), now_s) == math.inf


@pytest.mark.parametrize(
    ("now_s", "down"), [(0.0, False), (0.99, False), (1.0, True), (3.9, True), (4.0, False), (5.5, True)]
)
def test_a_flapping_link_is_down_at_the_end_of_each_period(now_s: float, down: bool) -> None:
    shape = LinkShape(flap_period_ms=4_000, flap_up=0.25)
    assert is_flapped_down(shape, now_s) is down
    assert (opens_at(shape, now_s) > now_s) is down


@pytest.mark.parametrize(("now_s", "opening"), [(0.0, 0.5), (0.4, 0.5), (0.5, 0.5), (4.9, 4.9), (5.1, 5.5)])
def test_bytes_wait_until_the_end_of_a_stall(now_s: float, opening: float) -> None:
    assert opens_at(LinkShape(stall_every_ms=5_000, stall_ms=500), now_s) == pytest.approx(opening)


def test_the_line_of_a_slow_link_is_short_so_that_its_sender_is_paused_soon() -> None:
    limits = [waiting_bytes_max(LinkShape(bandwidth_bytes_per_second=rate)) for rate in (1, 10**6, 10**9)]
    assert limits == [65_536, 10**6, 16_777_216]
    assert waiting_bytes_max(LinkShape()) == 16_777_216


class CountedLine(DelayLine):
    """A line whose timer may not fire again and again at one moment."""

    fired = 0

    def _arrive(self) -> None:
        self.fired += 1
        if self.fired > 10:
            self.close()
            raise AssertionError("the timer is set again and again")
        super()._arrive()


@pytest.mark.within(20)
@pytest.mark.parametrize("put_at_s", [8.9992, 8.9996, 8.9999, 9.0, 9.3, 9.9993, 9.9997, 10.0, 10.1])
async def test_a_flapping_line_delivers_in_virtual_time_whenever_bytes_are_put(
    simulation: Simulation, put_at_s: float
) -> None:
    """Also just before the link goes down or up: the line must not wait for a moment that is never reached."""
    loop = asyncio.get_running_loop()
    arrived: list[float] = []
    shape = LinkShape(flap_period_ms=2_000, flap_up=0.5)
    line = CountedLine(shape, Random(1), lambda data: arrived.append(loop.time()), lambda failure: None)
    await asyncio.sleep(put_at_s - loop.time())
    line.put(b"x")
    await asyncio.sleep(3)
    assert len(arrived) == 1
    up_at_s = put_at_s if put_at_s < 9 or put_at_s >= 10 else 10.0
    assert arrived[0] == pytest.approx(up_at_s, abs=0.002) or arrived[0] == pytest.approx(10, abs=0.002)
