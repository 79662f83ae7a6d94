"""Markers of replicated subscriptions over time, and their picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.figures.markers import REGIONS_MAX, SLICES, MarkerCount
from spark_jobs.figures.timeline import RegionLane, Timeline
from spark_jobs.report.marker_drawing import draw_markers, lanes_of, written_text
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.report.test_report import EVIL, Page
from tests.spark_jobs.sample_run import SampleRun, place


def with_snapshot(cut: bool = False) -> SampleRun:
    """A run of 60 s: us-east takes a snapshot at 10 s, and sends an update at 20 s. `cut`: neither leaves us-east."""
    sample, others = SampleRun(), ("us-west", "eu-central")
    sample.publish("us-east", 0, 0.0)
    sample.fact(60.0, "note", detail="the end")
    reached = () if cut else others
    sample.mark("us-east", SnapshotRequest("s", "us-east"), 10.1, reached)
    if not cut:
        for other, at_s in (("us-west", 10.2), ("eu-central", 10.3)):
            sample.mark(other, SnapshotResponse("s", other, place(other, 0)), at_s, ["us-east"])
        positions = tuple((other, place(other, 0)) for other in others)
        sample.mark("us-east", Snapshot("s", place("us-east", 0), positions), 10.4)
        sample.mark("us-east", SubscriptionUpdate("billing", positions), 20.1, reached)
    return sample


def test_a_marker_counts_in_each_region_that_stores_it(engine: QueryEngine, tmp_path: Path) -> None:
    found = {
        (one.kind, one.source, one.region, one.slice, one.first_s): one.n
        for one in evaluate_run(engine, with_snapshot().write(tmp_path)).markers
    }
    both = ("us-east", "us-west", "eu-central")
    assert found == {
        **{("request", "us-east", region, 10, 10.1): 1 for region in both},
        **{("response", "us-west", region, 10, 10.2): 1 for region in ("us-west", "us-east")},
        **{("response", "eu-central", region, 10, 10.3): 1 for region in ("eu-central", "us-east")},
        ("snapshot", "us-east", "us-east", 10, 10.4): 1,
        **{("update", "us-east", region, 20, 20.1): 1 for region in both},
    }


def test_a_marker_that_no_other_region_stores_is_only_counted_where_it_was_written(
    engine: QueryEngine, tmp_path: Path
) -> None:
    (only,) = evaluate_run(engine, with_snapshot(cut=True).write(tmp_path)).markers
    assert only == MarkerCount("request", "us-east", "us-east", 10, 1, 10.1)


def test_the_number_of_counts_does_not_grow_with_the_markers(engine: QueryEngine, tmp_path: Path) -> None:
    sample = with_snapshot()
    for number in range(300):
        sample.mark("us-east", SnapshotRequest(f"{number}", "us-east"), number / 5, ["us-west"])
    # Written before the history began, by a clock that is far behind: no place in the picture.
    sample.mark("us-west", SnapshotRequest("x", "us-west"), -30.0)
    found = evaluate_run(engine, sample.write(tmp_path)).markers
    requests = [one for one in found if (one.kind, one.region) == ("request", "us-west")]
    assert [one.slice for one in requests] == [*range(SLICES)]
    assert sum(one.n for one in requests) == 301
    assert not any(one.source == "us-west" and one.kind == "request" for one in found)


def test_the_regions_with_the_most_markers_are_counted(engine: QueryEngine, tmp_path: Path) -> None:
    regions = [f"r{number:02}" for number in range(REGIONS_MAX + 2)]
    sample = SampleRun({"all": regions})
    sample.fact(0.0, "note", detail="start")
    sample.fact(10.0, "note", detail="end")
    for number, region in enumerate(regions):
        for again in range(number + 1):
            sample.mark(region, SnapshotRequest(f"{number}-{again}", region), 1.0 + again / 10)
    found = evaluate_run(engine, sample.write(tmp_path)).markers
    assert {one.source for one in found} == {*regions[2:]}


COUNTS = (
    MarkerCount("request", "a", "a", 0, 1, 0.1),
    MarkerCount("request", "a", "b", 0, 1, 0.1),
    MarkerCount("request", "a", EVIL, 0, 1, 0.1),
    MarkerCount("request", "b", "b", 5, 1, 1.0),
    MarkerCount("snapshot", "a", "a", 1, 2, 0.2),
    MarkerCount("update", "a", "b", SLICES - 1, 1, 12.0),
)
TIMELINE = Timeline(0.0, 12.0, tuple(RegionLane(name, None, {}) for name in ("c", "b", "a")))


@pytest.mark.parametrize("width", [356, 1180])
def test_the_picture_is_sound_and_stays_inside(width: int) -> None:
    drawing = draw_markers(COUNTS, TIMELINE, width)
    assert Page(drawing).stack == []
    assert "<script" not in drawing
    assert lanes_of(COUNTS, TIMELINE) == ["b", "a", EVIL]
    assert written_text(COUNTS, "a") == "2 snapshots, 0 updates"
    (request,) = re.findall(r'class="marker request" d="([^"]*)"', drawing)
    assert request.count("l3") == 2, "a head in each region that stores the request"
    assert 'class="marker request point"' in drawing, "the request of b reached no other region"
    assert 'class="marker snapshot point"' in drawing
    assert all(0 <= float(x) <= width for x in re.findall(r"M(-?[\d.]+) ", drawing))
