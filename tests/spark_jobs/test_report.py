"""What people and programs get to see, without Spark."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.judge import Judgement
from spark_jobs.report import render_page, summary, write_report
from spark_jobs.timeline import BINS, Interval, Series, Timeline, make_timeline
from spark_jobs.timeline_drawing import draw_timeline, nice_step
from spark_jobs.verdict import EXIT_CODES, CheckResult, Verdict, worst

EVIL = "<script>alert('x')</script>\"&"


def facts(*happened: tuple[float, str, str | None, str | None]) -> list[dict[str, Any]]:
    return [
        {
            "at_ms": at * 1000,
            "op": op,
            "region": region,
            "other_region": other,
            "error": None,
            "detail": "both ways",
        }
        for at, op, region, other in happened
    ]


def timeline(regions: tuple[str, ...] = ("us-east", "us-west"), **changes: Any) -> Timeline:
    counts: dict[str, dict[Series, dict[int, int]]] = {
        region: {
            "published": dict.fromkeys(range(BINS), 3),
            "received": {5: 900},
            "again": {6: 1},
            "unanswered": {7: 1},
        }
        for region in regions
    }
    happened = facts(
        (4, "kill", regions[0], None),
        (9, "start", regions[0], None),
        (5, "cut", *regions[:2]),
        (6, "heal", None, None),
    )
    gaps = [
        {
            "at_ms": 4000,
            "until_ms": 4840,
            "region": regions[0],
            "other_region": regions[1],
            "subscription": EVIL,
        }
    ]
    return make_timeline(
        regions,
        dict.fromkeys(regions, EVIL),
        0.0,
        14_000.0,
        counts,
        changes.get("facts", happened),
        changes.get("gaps", gaps),
    )


def judgement(verdict: Verdict = "invalid", **changes: Any) -> Judgement:
    witness = {
        "kind": "missing",
        "region": "us-west",
        "producer": EVIL,
        "sequence_id": 7,
        "position": "1:7",
        "at_ms": 1500.0,
    }
    checks = (
        CheckResult(
            "replicated-exactly-once",
            "replicated exactly once",
            "INV-2",
            verdict,
            f"1 copy missing {EVIL}.",
            (witness,),
        ),
        CheckResult("failover-gap", "fail-over gap", "info", "valid", "0.84 s."),
    )
    figures = {
        "duration_seconds": 14.0,
        "published": {"asked": 12, "acknowledged": 10, "failed": 1, "unknown": 1, "unknown_stored": 1},
        "published_by_region": {},
        "received": {"messages": 10, "deliveries": 12, "again": 2},
        "failover_gap_seconds": 0.84,
        "stored": {"us-east": 11, EVIL: 10},
        "markers": {"us-east": 4},
    }
    return Judgement(f"/runs/{EVIL}", verdict, checks, figures, changes.get("timeline", timeline()))


class Page(HTMLParser):
    """Tags that are open, references to elsewhere, and the text."""

    VOID = frozenset({"meta", "br", "rect", "path", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [
            value or "" for name, value in attrs if name in ("href", "src", "srcset", "data", "xlink:href")
        ]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_the_page_is_whole_and_loads_nothing(verdict: Verdict) -> None:
    text = render_page(judgement(verdict))
    page = Page(text)
    assert page.stack == []
    assert page.references == []
    assert not re.search(r"url\(|@import|https?://", text)
    assert "script" not in page.tags
    assert verdict in page.text.casefold()


def test_whatever_was_in_the_evidence_is_only_text() -> None:
    text = render_page(judgement())
    assert "<script" not in text
    assert EVIL in Page(text).text


def test_figures_and_witnesses_are_on_the_page() -> None:
    text = Page(render_page(judgement())).text
    for shown in ("0.84 s", "INV-2", "1:7", "1.500 s", "killed 4.0 s", "publishes refused", "us-east"):
        assert shown in text


def test_a_run_of_which_nothing_is_known_has_a_page_too() -> None:
    nothing = make_timeline((), {}, 0.0, 0.0, {}, [], [])
    assert (
        "The history has nothing to show." in Page(render_page(judgement("unknown", timeline=nothing))).text
    )


def test_files_and_the_shape_that_programs_rely_on(tmp_path: Path) -> None:
    page = write_report(judgement(), tmp_path / "new" / "report")
    assert page.name == "report.html"
    written = json.loads((page.parent / "report.json").read_text())
    assert written["verdict"] == "invalid"
    assert set(written) >= {"verdict", "run", "checks", "figures", "timeline"}
    assert set(written["checks"][0]) == {"name", "invariant", "verdict", "sentence", "witness"}
    assert sorted(file.name for file in page.parent.iterdir()) == ["report.html", "report.json"]


def test_the_summary_names_the_report_and_an_example() -> None:
    text = summary(judgement(), Path("/x/report.html"))
    assert text.startswith("INVALID")
    assert "e.g. missing in us-west: " in text
    assert text.endswith("Report: /x/report.html")


@pytest.mark.parametrize(
    ("verdicts", "all_in_all"),
    [
        ([], "unknown"),
        (["valid"], "valid"),
        (["valid", "unknown"], "unknown"),
        (["unknown", "invalid", "valid"], "invalid"),
    ],
)
def test_the_worst_verdict_counts(verdicts: list[Verdict], all_in_all: Verdict) -> None:
    assert worst(verdicts) == all_in_all


class TestTimes:
    def test_a_region_is_down_until_it_is_started_or_for_good(self) -> None:
        happened = facts(
            (1, "kill", "a", None), (2, "start", "a", None), (3, "pause", "b", None), (4, "kill", "a", None)
        )
        assert make_timeline(("a", "b"), {}, 0.0, 9000.0, {}, happened, []).down == (
            Interval(1.0, 2.0, "kill", "a"),
            Interval(3.0, 9.0, "pause", "b", ended=False),
            Interval(4.0, 9.0, "kill", "a", ended=False),
        )

    def test_a_link_is_cut_until_it_or_everything_heals(self) -> None:
        happened = facts(
            (1, "cut", "a", "b"),
            (2, "heal", "b", "a"),
            (3, "hold", "a", "b"),
            (4, "cut", "a", "c"),
            (5, "heal", None, None),
        )
        assert [
            (one.from_s, one.to_s, one.what)
            for one in make_timeline(("a",), {}, 0.0, 9000.0, {}, happened, []).cuts
        ] == [
            (1.0, 2.0, "cut"),
            (3.0, 5.0, "hold"),
            (4.0, 5.0, "cut"),
        ]


class TestDrawing:
    @pytest.mark.parametrize("width", [356, 1180])
    def test_it_is_sound_and_stays_inside(self, width: int) -> None:
        drawing = draw_timeline(timeline(("us-east", "a-region-with-quite-a-long-name-indeed")), width)
        assert Page(drawing).stack == []
        assert all(0 <= float(x) <= width for x in re.findall(r' x="([-\d.]+)"', drawing))

    def test_labels_of_a_lane_do_not_touch(self) -> None:
        often = facts(*((at / 4, op, "us-east", None) for at in range(2, 40, 2) for op in ("kill", "start")))
        drawing = draw_timeline(timeline(facts=often, gaps=[]), 1180)
        rows: dict[str, list[tuple[float, float]]] = {}
        for x, y, anchor, text in re.findall(
            r'class="label" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]*)<', drawing
        ):
            start = float(x) - (len(text) * 6 if anchor == "end" else 0)
            rows.setdefault(y, []).append((start, start + len(text) * 6))
        for spans in rows.values():
            spans.sort()
            assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))

    @pytest.mark.parametrize(
        ("seconds", "ticks", "step"), [(14, 10, 2), (0.05, 10, 0.005), (7200, 12, 1000), (10, 10, 1)]
    )
    def test_ticks_are_round(self, seconds: float, ticks: float, step: float) -> None:
        assert nice_step(seconds, ticks) == pytest.approx(step)
