"""The map of regions and links."""

from __future__ import annotations

import re

import pytest

from spark_jobs.figures.links import LinkSummary
from spark_jobs.figures.timeline import RegionLane, Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.topology_map import REGIONS_MAX, draw_map, has_map, link_rows
from tests.spark_jobs.report.test_report import EVIL, Page


def timeline(n: int, *down: Interval) -> Timeline:
    return Timeline(0.0, 10.0, tuple(RegionLane(f"region-{i}", f"c{i % 2}", {}) for i in range(n)), down=down)


def mesh(n: int, **fields: object) -> list[LinkSummary]:
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return [LinkSummary(f"region-{i}", f"region-{j}", 20.0, None, **fields) for i, j in pairs]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [356, 520])
@pytest.mark.parametrize("n", range(1, REGIONS_MAX + 1))
def test_every_region_and_arrow_is_inside_and_no_boxes_overlap(n: int, width: int) -> None:
    drawing = draw_map(timeline(n), mesh(n), width)
    assert Page(drawing).stack == []
    assert drawing.count('class="link up"') == n * (n - 1)
    (height,) = re.findall(r'<svg[^>]* height="(\d+)"', drawing)
    boxes = [
        (float(x), float(y), float(x) + float(w), float(y) + float(h))
        for x, y, w, h in re.findall(
            r'class="box" x="([\d.-]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.]+)"', drawing
        )
    ]
    assert len(boxes) == n
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert right <= width
        assert top >= 0
        assert bottom <= float(height) + 1
        for other in boxes[:number]:
            assert right < other[0] or left > other[2] or bottom < other[1] or top > other[3]


def test_a_fault_that_lasts_is_shown_otherwise_than_one_that_ended() -> None:
    ended = Interval(1.0, 2.0, "cut", "region-0", "region-1")
    lasting = Interval(3.0, 10.0, "hold", "region-0", "region-1", ended=False)
    links = [
        LinkSummary("region-0", "region-1", 20.0, None, (ended, lasting)),
        LinkSummary("region-1", "region-0", 20.0, None, (ended,)),
    ]
    down = Interval(4.0, 5.0, "kill", "region-1")
    drawing = draw_map(timeline(2, down), links, 520)
    assert 'class="link failed" data-periods="1 2 cut;3 10 hold"' in drawing
    assert 'class="link faulty" data-periods="1 2 cut"' in drawing
    assert 'class="node faulty" data-periods="4 5 kill"' in drawing


def test_links_with_faults_are_first_in_the_table() -> None:
    cut = Interval(1.0, 2.0, "cut", "b", "c", one_way=True)
    slow = Interval(1.0, 10.0, "latency", "a", "c", ended=False, one_way=True, detail="200 ms")
    held = Interval(1.0, 10.0, "hold", "c", "a", ended=False, one_way=True)
    lag = {"p50": 0.05, "p99": 0.5, "max": 2.0}
    rows = link_rows(
        [
            LinkSummary("a", "b", 20.0, lag),
            LinkSummary("b", "c", None, None, (cut, cut, cut)),
            LinkSummary("a", "c", 1.5, None, (slow,)),
            LinkSummary("c", "a", 1.5, None, (held,)),
        ]
    )
    assert [(tone, cells) for _, tone, cells in rows] == [
        ("failed", ["c \u2192 a", "held", "1.5 ms", "", "", "", "held at 1.0 s, until the end"]),
        ("failed", ["a \u2192 c", "latency", "1.5 ms", "", "", "", "latency 200 ms at 1.0 s, until the end"]),
        (
            "faulty",
            [
                "b \u2192 c",
                "up",
                "",
                "",
                "",
                "",
                "cut at 1.0 s for 1.000 s; cut at 1.0 s for 1.000 s; 1 more",
            ],
        ),
        ("up", ["a \u2192 b", "up", "20 ms", "50 ms", "0.500 s", "2.000 s", ""]),
    ]


def test_names_are_only_text_and_too_many_regions_have_no_map() -> None:
    lanes = (RegionLane(EVIL, EVIL, {}), RegionLane("a", None, {}))
    fault = Interval(1.0, 2.0, EVIL, EVIL, "a", one_way=True, detail=EVIL)
    drawing = draw_map(Timeline(0.0, 1.0, lanes), [LinkSummary(EVIL, "a", 1.0, None, (fault,))], 520)
    assert "<script" not in drawing
    assert Page(drawing).stack == []
    assert not has_map(timeline(REGIONS_MAX + 1))
    assert not has_map(timeline(0))
