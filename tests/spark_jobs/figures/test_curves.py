"""Delivery latency, by time slice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.figures.curves import POINTS, SHOWN_MAX, Curve, Point, shown
from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.charts import draw_curves
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.report.test_report import EVIL, Page
from tests.spark_jobs.sample_run import SampleRun

TIMELINE = Timeline(0.0, 12.0, (), down=(Interval(3.0, 4.0, "kill", "us-east"),))


def point(at: int, seconds: float, n: int = 1) -> Point:
    return Point(at, n, seconds, seconds, seconds)


def test_latency_begins_with_the_asking_and_lag_with_the_acknowledgement(
    engine: QueryEngine, tmp_path: Path
) -> None:
    sample = SampleRun()
    sample.subscribe("us-west", 0.0)
    sample.publish("us-east", 0, 1.0)
    sample.receive("us-west", "us-east", 0, 1.052, entry=0)
    # A later delivery of the same message: the first delivery counts.
    sample.receive("us-west", "us-east", 0, 6.0, entry=0)
    curves = {
        (curve.what, curve.name): curve for curve in evaluate_run(engine, sample.write(tmp_path)).curves
    }
    assert set(curves) == {("latency", "billing"), ("lag", "us-east > us-west")}
    latency, lag = curves["latency", "billing"], curves["lag", "us-east > us-west"]
    assert (latency.whole, lag.whole) == (point(-1, 0.052), point(-1, 0.05))
    assert latency.points == (point(POINTS // 6, 0.052),)


def test_a_consumer_that_connects_later_does_not_count_for_the_lag_of_the_link(
    engine: QueryEngine, tmp_path: Path
) -> None:
    sample = SampleRun()
    sample.publish("us-east", 0, 1.0)
    sample.publish("us-east", 1, 5.0)
    sample.subscribe("us-west", 4.0)
    sample.receive("us-west", "us-east", 0, 4.1, entry=0)
    sample.receive("us-west", "us-east", 1, 5.042, entry=1)
    evaluation = evaluate_run(engine, sample.write(tmp_path))
    (lag,) = (curve for curve in evaluation.curves if curve.what == "lag")
    assert lag.whole == point(-1, 0.04)
    assert evaluation.figures["measures"]["lag_seconds"]["us-east > us-west"]["max"] == 0.04
    assert evaluation.figures["measures"]["latency_seconds"]["billing"]["max"] == 3.1


def test_of_many_the_latest_are_shown_in_the_order_of_their_names() -> None:
    curves = [Curve("lag", f"a > {n:02}", point(-1, n / 10), ()) for n in range(30)]
    assert [curve.name for curve in shown(curves)] == [f"a > {n:02}" for n in range(30 - SHOWN_MAX, 30)]


@pytest.mark.parametrize("width", [356, 1180])
def test_the_picture_is_sound_and_stays_inside(width: int) -> None:
    points = (point(0, 0.0), point(1, 0.004), point(5, 90.0), point(POINTS - 1, 0.2))
    curves = [Curve("latency", EVIL, point(-1, 90.0), points), Curve("lag", "a > b", point(-1, 0.0), ())]
    drawing = draw_curves(curves, TIMELINE, width)
    assert Page(drawing).stack == []
    assert "a → b" in drawing
    numbers = [
        float(one)
        for path in re.findall(r'class="curve[^"]*" d="([^"]*)"', drawing)
        for one in re.findall(r"[ML](-?[\d.]+) ", path)
    ]
    assert numbers
    assert all(0 <= x <= width for x in numbers)


def test_a_slice_without_a_message_breaks_the_line() -> None:
    curve = Curve("latency", "billing", point(-1, 0.1), (point(3, 0.1), point(4, 0.1), point(9, 0.1)))
    drawing = draw_curves([curve], TIMELINE, 1180)
    (path,) = re.findall(r'class="curve p50" d="([^"]*)"', drawing)
    assert path.count("M") == 2
