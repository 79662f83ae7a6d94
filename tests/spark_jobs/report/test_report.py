"""The report for people and programs, without Spark."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from emulator.run.manifest import write_manifest
from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.journeys import Journey, JourneyEvent, StoredCopy
from spark_jobs.figures.measures import Measures, Stretch
from spark_jobs.figures.scenario_run import RunInfo, ScenarioRun, ScenarioStep, read_scenario_run
from spark_jobs.figures.timeline import BINS, Timeline, TimelineCount, make_timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.causes import causes
from spark_jobs.report.picture import BOLD_PX, LabelRow, PlotArea, moment_label, nice_step
from spark_jobs.report.report import render_page, summary, write_report
from spark_jobs.report.texts import journey_lines, legend, steps_in_short
from spark_jobs.report.timeline_drawing import draw_timeline
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verdict import EXIT_CODES, CheckResult, Verdict, worst
from spark_jobs.wording import duration_text
from tests.spark_jobs.sample_run import START_MS, SampleRun

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
    slices = [
        *(
            TimelineCount(EVIL, region, "published", number, 3)
            for region in regions
            for number in range(BINS)
        ),
        *(TimelineCount("billing", region, "received", 5, 900) for region in regions),
        *(TimelineCount("billing", region, "again", 6, 1) for region in regions),
        *(TimelineCount(None, region, "unanswered", 7, 1) for region in regions),
    ]
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
        changes.get("slices", slices),
        changes.get("facts", happened),
        changes.get("gaps", gaps),
        Measures(
            outages={EVIL: (Stretch(1.5, 4000.0, True),)},
            stalls={"billing": (Stretch(2.5, 5000.0, True), Stretch(0.5, 11_000.0, False))},
        ),
    )


def evaluation(verdict: Verdict = "invalid", **changes: Any) -> Evaluation:
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
    return Evaluation(f"/runs/{EVIL}", verdict, checks, figures, changes.get("timeline", timeline()))


class Page(HTMLParser):
    """The open tags, the external links and the text of a page."""

    VOID = frozenset({"meta", "br", "rect", "path", "circle", "input"})

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
    text = render_page(evaluation(verdict))
    page = Page(text)
    assert page.stack == []
    assert all(one.startswith("#") for one in page.references)
    assert not re.search(r"url\(|@import|https?://", text.replace("http://www.w3.org/2000/svg", ""))
    assert verdict in page.text.casefold()


def test_whatever_was_in_the_evidence_is_only_text() -> None:
    text = render_page(evaluation())
    assert text.count("<script") == 1
    assert EVIL in Page(text).text


def test_only_the_script_of_the_page_may_run() -> None:
    text = render_page(evaluation())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}' in text
    assert not re.search(r"\son\w+=|javascript:", text)


def test_characters_that_reorder_or_hide_text_are_written_out() -> None:
    """A name with a right-to-left override would turn the rest of its sentence around."""
    told = evaluation()
    check = replace(
        told.checks[0], sentence="copies of \u202egpj.exe\u200b and \x1b[31m in \u0645\u0635\u0631"
    )
    page = Page(render_page(replace(told, checks=(check,), timeline=timeline(("us\u202eeast", "us-west")))))
    assert "copies of \\u202egpj.exe\\u200b and \\u001b[31m in \u0645\u0635\u0631" in page.text
    assert "us\\u202eeast" in page.text
    assert not set("\u202e\u200b\x1b") & set(page.text)


def test_figures_and_witnesses_are_on_the_page() -> None:
    text = Page(render_page(evaluation())).text
    for shown in ("0.84 s", "INV-2", "1:7", "1.500 s", "killed 4.0 s", "publishes rejected", "us-east"):
        assert shown in text


def test_a_run_of_which_nothing_is_known_has_a_page_too() -> None:
    nothing = make_timeline((), {}, 0.0, 0.0, [], [], [])
    assert "The history is empty." in Page(render_page(evaluation("unknown", timeline=nothing))).text


def test_files_and_the_shape_that_programs_rely_on(tmp_path: Path) -> None:
    page = write_report(evaluation(), tmp_path / "new" / "report")
    assert page.name == "report.html"
    written = json.loads((page.parent / "report.json").read_text())
    assert written["verdict"] == "invalid"
    assert set(written) >= {"verdict", "run", "checks", "figures", "timeline"}
    assert set(written["checks"][0]) == {"name", "invariant", "verdict", "sentence", "witness"}
    assert sorted(file.name for file in page.parent.iterdir()) == ["report.html", "report.json"]


def test_the_summary_names_the_report_and_an_example() -> None:
    text = summary(evaluation(), Path("/x/report.html"))
    assert text.startswith("INVALID")
    assert "e.g. missing in us-west: " in text
    assert text.endswith("Report: /x/report.html")


@pytest.mark.parametrize(
    ("witness", "line"),
    [
        (
            {"producer": "p", "sequence_id": 9, "origin_region": "us", "position": "1:2:-1", "topic": "t"},
            "odd in eu: p 9 of us, at 1:2:-1; topic t",
        ),
        (
            {"transaction_key": "k", "epoch": 4, "transaction": "1,7"},
            "odd in eu: key k, epoch 4, transaction 1,7",
        ),
        ({}, "odd in eu: "),
    ],
)
def test_an_example_contains_all_fields_of_its_witness(witness: dict[str, Any], line: str) -> None:
    check = CheckResult(
        "c", "a check", "INV-1", "invalid", "no", ({"kind": "odd", "region": "eu", **witness},)
    )
    assert f"e.g. {line}\n" in summary(replace(evaluation(), checks=(check,)), Path("/x"))


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
        assert make_timeline(("a", "b"), {}, 0.0, 9000.0, [], happened, []).down == (
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
        assert [(one.from_s, one.to_s, one.what, one.one_way) for one in links(happened)] == [
            (1.0, 2.0, "cut", False),
            (3.0, 5.0, "hold", False),
            (4.0, 5.0, "cut", False),
        ]

    def test_a_cut_in_one_direction_is_reported_in_that_direction(self) -> None:
        happened = facts((1, "cut", "b", "a"), (3, "heal", "a", "b"))
        happened[0]["detail"] = "one way"
        assert links(happened) == (Interval(1.0, 3.0, "cut", "b", "a", one_way=True),)

    def test_a_cut_that_heals_in_one_direction_goes_on_in_the_other(self) -> None:
        happened = facts((1, "cut", "a", "b"), (3, "heal", "a", "b"))
        happened[1]["detail"] = "one way"
        assert links(happened) == (
            Interval(1.0, 3.0, "cut", "a", "b", one_way=True),
            Interval(1.0, 9.0, "cut", "b", "a", one_way=True, ended=False),
        )

    def test_a_latency_is_reported_with_its_length_until_another_one_replaces_it(self) -> None:
        happened = facts((1, "latency", "a", "b"), (2, "latency", "a", "b"), (3, "cut", "a", "b"))
        happened[0]["detail"], happened[1]["detail"] = "300 ms both ways", "20.5 ms both ways"
        assert [(one.from_s, one.to_s, one.what, one.detail) for one in links(happened)] == [
            (1.0, 2.0, "latency", "300 ms"),
            (2.0, 9.0, "latency", "20.5 ms"),
            (3.0, 9.0, "cut", None),
        ]

    def test_the_timeline_shows_a_gap_with_the_length_of_its_figure(self) -> None:
        gap = {"at_ms": 1000.4, "until_ms": 1075.6, "region": "a", "other_region": "b", "subscription": "s"}
        (told,) = make_timeline(("a",), {}, 0.0, 9000.0, [], [], [gap]).gaps
        assert duration_text(told.seconds) == duration_text((1075.6 - 1000.4) / 1000) == "75 ms"

    def test_an_actor_has_its_places_and_its_waits(self) -> None:
        slices = [
            TimelineCount("billing", "a", "received", 3, 5),
            TimelineCount("billing", "b", "received", 3, 4),
            TimelineCount("billing", "b", "received", 9, 1),
            TimelineCount(None, "b", "received", 1, 7),
        ]
        waits = Measures(stalls={"billing": (Stretch(2.0, 1000.0, True),)})
        (lane,) = make_timeline(("a", "b"), {}, 0.0, 9000.0, slices, [], [], waits).actors
        assert lane.places == ((3, "a"), (9, "b"))
        assert sum(lane.counts["received"]) == 10
        assert lane.waits == (Interval(1.0, 3.0, "stall", "", actor="billing"),)

    def test_those_that_waited_longest_have_lanes(self) -> None:
        waits = Measures(outages={f"p{n}": (Stretch(float(n), 0.0, True),) for n in range(30)})
        told = make_timeline(("a",), {}, 0.0, 9000.0, [], [], [], waits)
        assert "p29" in {lane.name for lane in told.actors}
        assert len(told.actors) + told.actors_left_out == 30


def links(happened: list[dict[str, Any]]) -> tuple[Interval, ...]:
    return make_timeline(("a",), {}, 0.0, 9000.0, [], happened, []).links


def test_the_region_of_an_actor_follows_the_bold_label_of_its_wait() -> None:
    slices = [TimelineCount("shop", "eu-central", "published", 0, 9)]
    outages = {"shop": (Stretch(0.002, 0.0, True),)}
    run = make_timeline(("eu-central",), {}, 0.0, 300_000.0, slices, [], [], Measures(outages=outages))
    drawing = draw_timeline(run, 1180)
    labels = re.findall(r'class="(label wait|place)" x="([\d.]+)"[^>]*>([^<]*)<', drawing)
    (_, left, words), (_, right, region) = labels
    assert (words, region) == ("outage 2 ms", "eu-central")
    assert float(right) - float(left) > len(words) * BOLD_PX


def test_a_label_without_room_reserves_none() -> None:
    """A region's name that would have to move beyond the right edge leaves its place to a later, shorter one."""
    frame, row = PlotArea(1000, 0, 1000, 100.0, True), LabelRow()
    assert moment_label(frame, 80, "x" * 20, 10, "place", row, 0)
    reserved = list(row.reserved)
    assert moment_label(frame, 81, "x" * 20, 10, "place", row, 300) is None
    assert row.reserved == reserved
    assert moment_label(frame, 81, "x", 10, "place", row, 300)


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(0.0, "0 ms"), (0.0474, "47 ms"), (0.0751, "75 ms"), (0.84, "0.840 s"), (61.5, "61.500 s")],
)
def test_a_duration_is_spelled_in_one_way(seconds: float, spelled: str) -> None:
    assert duration_text(seconds) == spelled


class TestCauses:
    def check(self, **witness: Any) -> CheckResult:
        return CheckResult("replicated", "replicated", "INV-2", "invalid", "1 missing.", (witness,))

    def test_the_fault_of_the_region_at_that_time_is_a_hint(self) -> None:
        check = self.check(region="us-west", origin_region="us-east", at_ms=3900.0)
        assert causes(check, timeline()) == [
            "us-east was killed at 4.000 s, for 5.000 s.",
            "The link us-east ↔ us-west was cut at 5.000 s, for 1.000 s.",
        ]

    def test_a_fault_elsewhere_does_not(self) -> None:
        check = self.check(region="eu-central", origin_region="us-west", at_ms=3900.0)
        (sentence,) = causes(check, timeline())
        assert sentence.startswith("No fault of eu-central and us-west")

    def test_a_fault_long_ago_does_not(self) -> None:
        check = self.check(region="us-west", origin_region="us-east", at_ms=13_000.0)
        (sentence,) = causes(check, timeline())
        assert sentence.startswith("No fault")

    def test_without_a_region_there_is_no_hint(self) -> None:
        assert causes(self.check(damage="a line"), timeline()) == []


class TestHead:
    SCENARIO_RUN = ScenarioRun(
        RunInfo("my-drill", f"what {EVIL} shows", "three", "a (us-east)", "process", "2026-01-02T03:04:05"),
        (
            ScenarioStep(1, "phase: all works", "done", 0.0, 0.0),
            ScenarioStep(2, "kill: us-east", "done", 0.1, 0.02),
            ScenarioStep(3, f"wait: {EVIL}", "failed", 0.2, 1.5, "not yet"),
            ScenarioStep(4, "drain: 10s", "not tried"),
        ),
    )

    def test_the_page_begins_with_the_scenario(self) -> None:
        text = Page(render_page(replace(evaluation(), scenario=self.SCENARIO_RUN))).text
        for shown in ("my-drill", "three: a (us-east); runtime process", "2026-01-02 03:04:05", "/runs/"):
            assert shown in text

    def test_steps_are_shown_with_their_outcomes(self) -> None:
        text = Page(render_page(replace(evaluation(), scenario=self.SCENARIO_RUN))).text
        for shown in ("kill: us-east", "not yet", "1.500 s", "20 ms", "not tried"):
            assert shown in text
        assert steps_in_short(self.SCENARIO_RUN.steps) == "3 steps: 1 done, 1 failed, 1 not tried"

    def test_the_check_that_failed_is_first(self) -> None:
        told = evaluation()
        checks = tuple(reversed(told.checks))
        text = Page(render_page(replace(told, checks=checks))).text
        assert text.rindex("replicated exactly once") < text.rindex("fail-over gap")

    def test_the_legend_has_only_what_occurred(self) -> None:
        quiet = make_timeline(("a",), {}, 0.0, 9.0, [TimelineCount("p", "a", "published", 0, 1)], [], [])
        assert [meaning for _, meaning in legend(quiet)] == ["published (above the line)"]


def test_a_scenario_run_is_read_from_the_run_and_its_facts(tmp_path: Path) -> None:
    sample = SampleRun()
    sample.fact(0.0, "phase", detail="play of my-drill begins")
    for at, detail in ((1.0, "step 1 begins: wait: 1s"), (2.0, "step 1 done: wait: 1s")):
        sample.fact(at, "step", detail=detail)
    sample.fact(2.0, "step", detail="step 2 begins: drain: 1s")
    run = sample.write(tmp_path / "run")
    write_manifest(run, "1.2.3", "geoemu run my-drill", steps=["wait: 1s", "drain: 1s", "wait: 9s"])
    happened = [
        {"at_ms": at_ms, "op": op, "detail": fields["detail"], "error": None}
        for _, at_ms, op, _, fields in sample.events
        if "detail" in fields
    ]
    story = read_scenario_run(open_run_folder(run), happened, START_MS)
    assert (story.head.scenario, story.head.version) == ("my-drill", "1.2.3")
    assert story.head.clusters == "americas (us-east, us-west), europe (eu-central)"
    assert story.head.command == "geoemu run my-drill"
    assert story.steps == (
        ScenarioStep(1, "wait: 1s", "done", 1.0, 1.0),
        ScenarioStep(2, "drain: 1s", "interrupted", 2.0),
        ScenarioStep(3, "wait: 9s", "not tried"),
    )


def test_a_scenario_run_without_any_file_is_empty(tmp_path: Path) -> None:
    assert read_scenario_run(open_run_folder(tmp_path), [], 0.0) == ScenarioRun()


class TestDrawing:
    @pytest.mark.parametrize("width", [356, 1180])
    def test_the_timeline_is_well_formed_and_stays_inside_its_width(self, width: int) -> None:
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


class TestJourney:
    def journey(self) -> Journey:
        ask = {"region": "us-east", "op": "publish"}
        return Journey(
            "persistent://public/default/orders",
            "us-east",
            EVIL,
            7,
            stored=(
                StoredCopy("us-east", "1:7:-1", 1000.0, 1002.0),
                StoredCopy("eu-central", "1:9:-1", 1000.0, None),
            ),
            absent=("us-west",),
            stops=(
                JourneyEvent(1000.0, outcome="asked", **ask),
                JourneyEvent(1002.0, outcome="ok", position="1:7:-1", **ask),
                JourneyEvent(1100.0, "receive", "ok", "us-east", "billing", "1:7:-1"),
                JourneyEvent(1200.0, "receive", "ok", "us-east", "billing", "1:7:-1"),
                JourneyEvent(1201.0, "acknowledge", "asked", "us-east", "billing", "1:8", "cumulative"),
            ),
        )

    def test_a_journey_is_in_the_order_in_which_it_happened(self) -> None:
        assert journey_lines(self.journey(), 0.0) == [
            ("1.000 s", f"{EVIL} publishes it to us-east"),
            ("1.002 s", "stored in us-east at 1:7:-1: after 1.000 s, by 1.002 s"),
            ("1.002 s", "us-east acknowledges it, at 1:7:-1"),
            ("1.100 s", "billing receives it in us-east, from 1:7:-1"),
            ("1.200 s", "billing receives it again in us-east, from 1:7:-1"),
            ("1.201 s", "billing acknowledges it to us-east, with everything up to 1:8"),
            ("", "stored in eu-central at 1:9:-1: after 1.000 s, until an unknown time"),
            ("", "us-west does not store it, although it should"),
        ]

    def test_a_journey_is_shown_with_the_witness_that_names_its_message(self) -> None:
        told = evaluation()
        witness = {
            "kind": "missing",
            "topic": "persistent://public/default/orders",
            "origin_region": "us-east",
            "producer": EVIL,
            "sequence_id": 7,
        }
        check = replace(told.checks[0], witness=(witness, {**witness, "sequence_id": 8}))
        text = render_page(replace(told, checks=(check, check), journeys=(self.journey(),)))
        page = Page(text)
        assert page.stack == []
        assert page.references == ["#check-replicated-exactly-once"] * 2 + ["#journey-1"] * 2
        assert text.count('id="journey-1"') == 1
        assert page.text.count("us-west does not store it, although it should") == 1
