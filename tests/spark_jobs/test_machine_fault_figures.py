"""Faults of disks, clocks and power in the timeline and among the causes of a report."""

from __future__ import annotations

from spark_jobs.frames.faults import Interval, TimelineMark, down_times, machine_faults
from spark_jobs.report.causes import sentence_of

MARKS = (
    TimelineMark(1.0, "disk", "us", detail="slow, 200 ms"),
    TimelineMark(2.0, "disk", "us", detail="full"),
    TimelineMark(2.5, "disk", "eu", detail="healthy"),
    TimelineMark(4.0, "disk", "us", detail="healthy"),
    TimelineMark(5.0, "skew", "us", detail="clock +250 ms, drift +200 ppm"),
    TimelineMark(6.0, "power_loss", "us"),
    TimelineMark(8.0, "start", "us"),
    TimelineMark(9.0, "power_loss", "us"),
)


def test_each_state_of_a_disk_and_of_a_clock_is_a_period_until_the_next_one() -> None:
    found = [
        (one.what, one.region, one.from_s, one.to_s, one.detail, one.ended)
        for one in machine_faults(MARKS, 10)
    ]
    assert found == [
        ("disk", "us", 1.0, 2.0, "slow, 200 ms", True),
        ("disk", "us", 2.0, 4.0, "full", True),
        ("skew", "us", 5.0, 10, "clock +250 ms, drift +200 ppm", False),
    ]


def test_a_region_without_power_is_down_until_it_starts() -> None:
    found = [(one.what, one.from_s, one.to_s, one.ended) for one in down_times(MARKS, 10)]
    assert found == [("power_loss", 6.0, 8.0, True), ("power_loss", 9.0, 10, False)]


def test_causes_name_the_fault_of_the_machine() -> None:
    full = Interval(2.0, 4.0, "disk", "us", detail="full")
    assert "us" in sentence_of(full)
    assert "given a disk that is full at 2.000 s" in sentence_of(full)
    assert "without power" in sentence_of(Interval(6.0, 8.0, "power_loss", "us"))
    assert "clock +250 ms" in sentence_of(Interval(5.0, 6.0, "skew", "us", detail="clock +250 ms"))
