"""Positions of replicated subscriptions over time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.model.markers import SubscriptionUpdate
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.figures.cursors import SLICES, SUBSCRIPTIONS_MAX, CursorCurve
from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.charts import draw_cursors, legend_of_cursors
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.report.test_report import EVIL, Page
from tests.spark_jobs.sample_run import SampleRun, place


def consumed(messages: int = 4) -> SampleRun:
    """A run of 60 s: us-east publishes a message in each of the first seconds, which billing acknowledges there half a
    second later; an update at 30 s counts the first three as acknowledged in us-west."""
    sample = SampleRun()
    sample.fact(0.0, "note", detail="the beginning")
    sample.fact(60.0, "note", detail="the end")
    sample.subscribe("us-east", 0.0)
    for number in range(messages):
        sample.publish("us-east", number, number + 0.1)
        sample.receive("us-east", "us-east", number, number + 0.2, number)
        sample.acknowledge("us-east", number, number + 0.5)
    upto = (("us-west", place("us-west", 2)),)
    sample.mark("us-east", SubscriptionUpdate("billing", upto), 30.0, ["us-west"])
    return sample


def test_a_region_is_behind_until_an_update_moves_its_position(engine: QueryEngine, tmp_path: Path) -> None:
    found = {one.region: one for one in evaluate_run(engine, consumed().write(tmp_path)).cursors}
    assert {one.subscription for one in found.values()} == {"billing"}
    assert found["us-east"].behind == (0,) * SLICES
    growing, one_left = (1, 2, 3, *(4,) * 27), (1,) * 30
    assert found["us-west"].behind == growing + one_left
    assert found["eu-central"].behind == growing + (4,) * 30, "the update does not name it"


def test_a_position_that_falls_back_is_not_shown(engine: QueryEngine, tmp_path: Path) -> None:
    """An old update that is sent again after a newer one moves no cursor."""
    sample = consumed()
    sample.mark("us-east", SubscriptionUpdate("billing", (("us-west", place("us-west", 0)),)), 40.0)
    found = {one.region: one for one in evaluate_run(engine, sample.write(tmp_path)).cursors}
    assert found["us-west"].behind[-1] == 1


def test_a_subscription_of_one_region_has_no_curve(engine: QueryEngine, tmp_path: Path) -> None:
    sample = consumed()
    sample.subscribe("us-east", 0.0, "local", replicated=False)
    sample.acknowledge("us-east", 0, 1.0, "local")
    found = evaluate_run(engine, sample.write(tmp_path)).cursors
    assert {one.subscription for one in found} == {"billing"}


def test_the_subscriptions_with_the_most_acknowledgements_have_curves(
    engine: QueryEngine, tmp_path: Path
) -> None:
    sample = consumed(messages=SUBSCRIPTIONS_MAX + 3)
    for number in range(SUBSCRIPTIONS_MAX + 2):
        sample.subscribe("us-east", 0.0, f"s{number}")
        for entry in range(number + 1):
            sample.acknowledge("us-east", entry, 10.0 + entry / 10, f"s{number}")
    found = evaluate_run(engine, sample.write(tmp_path)).cursors
    busiest = [f"s{number}" for number in range(3, SUBSCRIPTIONS_MAX + 2)]
    assert {one.subscription for one in found} == {"billing", *busiest}


def test_a_run_without_markers_has_no_curves(engine: QueryEngine, tmp_path: Path) -> None:
    sample = SampleRun()
    sample.subscribe("us-east", 0.0)
    sample.publish("us-east", 0, 1.0)
    sample.acknowledge("us-east", 0, 1.5)
    assert evaluate_run(engine, sample.write(tmp_path)).cursors == ()


@pytest.mark.parametrize("width", [356, 1180])
def test_the_picture_is_sound_and_stays_inside(width: int) -> None:
    timeline = Timeline(0.0, 12.0, (), down=(Interval(3.0, 4.0, "kill", "us-east"),))
    curves = [
        CursorCurve(EVIL, "us-east", (0, 10_000_000) * (SLICES // 2)),
        CursorCurve(EVIL, EVIL, (0,) * SLICES),
        CursorCurve("quiet", "us-east", (0,) * SLICES),
    ]
    drawing = draw_cursors(curves, timeline, width)
    assert Page(drawing).stack == []
    assert "<script" not in drawing
    assert "up to 10,000,000 entries" in drawing or width < 400, "a long name leaves no room"
    assert legend_of_cursors(curves) == [("region-0", EVIL), ("region-1", "us-east")]
    lines = re.findall(r'class="curve (region-\d)" d="M([^"]*)"', drawing)
    assert [colour for colour, _ in lines] == ["region-1", "region-0", "region-1"]
    (height,) = re.findall(r'<svg[^>]* height="(\d+)"', drawing)
    for _, points in lines:
        for x, y in (point.split() for point in points.split("L")):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= float(height)
