"""The report in a real browser: it fits the window, is readable and loads no other resource."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.cursors import CursorCurve
from spark_jobs.figures.curves import Curve, Point
from spark_jobs.figures.journeys import Journey, JourneyEvent
from spark_jobs.figures.links import summarise_links
from spark_jobs.figures.markers import MarkerCount
from spark_jobs.figures.measures import Measures, Stretch
from spark_jobs.figures.ownership import Contest, Moment
from spark_jobs.figures.scenario_run import RunInfo, ScenarioRun, ScenarioStep
from spark_jobs.figures.timeline import BINS, TimelineCount, make_timeline
from spark_jobs.frames.messages import ORIGIN
from spark_jobs.report.report import write_report
from tests.spark_jobs.report.test_report import EVIL, evaluation, facts, timeline

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("width", "shown", "hidden"), [(1400, ".wide", ".narrow"), (400, ".narrow", ".wide")]
)
def test_it_fits_the_screen(
    browser: object, tmp_path: Path, width: int, shown: str, hidden: str, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    address = write_report(evaluation(), tmp_path).as_uri()
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    headline = "Invalid: 1 guarantee was broken (INV-2 replicated exactly once)."
    assert page.locator("h1").inner_text() == headline
    timeline = f"{shown} svg[data-seconds]"
    assert page.locator(timeline).is_visible()
    assert page.locator(f"{hidden} svg[data-seconds]").is_hidden()
    drawing = page.locator(timeline).bounding_box()
    assert drawing["width"] > 0.85 * width - 60
    for text in page.locator(f"{timeline} text").all():
        box = text.bounding_box()
        assert drawing["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= drawing["x"] + drawing["width"] + 1, text.inner_html()
        assert box["height"] > 9, "too small to read"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 22, 28)") == (scheme == "dark")
    assert requests == [address]
    assert complaints == []
    page.close()


def told_with_everything() -> Evaluation:
    """Return an evaluation with long witnesses and their journeys, failed steps, curves, and events with long words."""
    topic = "persistent://a-tenant-with-a-name/a-namespace-with-a-name/orders-of-a-kind"
    origin = {"topic": topic, "origin_region": "eu-central", "producer": f"orders {EVIL}", "sequence_id": 12}
    witnesses = [
        {
            "kind": "missing",
            "region": "us-west",
            **origin,
            "origin_position": "1073741824:4711",
            "at_ms": 1500.0,
        },
        {"kind": "behind", "region": "us-west", **origin, "topic": f"{topic}-2", "at_ms": 1600.0},
    ]
    told = evaluation()
    checks = (replace(told.checks[0], witness=tuple(witnesses)), *told.checks[1:])
    stop = JourneyEvent(
        1500.0, "publish", "unknown", "eu-central", error="no answer within thirty seconds " * 3
    )
    journey = Journey(*origin.values(), stored=(), absent=("us-west",), stops=(stop,))  # type: ignore[arg-type]
    steps = (
        ScenarioStep(1, "phase: everything works as it always does, or so one thinks", "done", 0.0, 0.0),
        ScenarioStep(
            2, "wait_until: {consumer: billing, received_more: 200, within: 5s}", "done", 0.1, 12.02
        ),
        ScenarioStep(3, "drain: 10s", "failed", 0.2, 10.5, "eu-central still owes us-west 11 messages " * 3),
        ScenarioStep(4, "finish: all", "not tried"),
    )
    point = Point(3, 10, 0.01, 0.5, 2.0)
    hosts = {f"a-checker-of-a-kind-with-a-long-name-{n}": (1000, 0, 12_000, 7) for n in range(3)}
    moments = tuple(Moment(f"{host} killed", 1000, 3, 0.0124, 61.5) for host in hosts)
    return replace(
        told,
        checks=checks,
        journeys=(journey,),
        scenario=ScenarioRun(
            RunInfo("drill", "shows much " * 20, "three", "a (us-east)", "process", "2026-01-01"), steps
        ),
        ownership=(Contest(f"checkers {EVIL}", 12_000, hosts, moments),),
        curves=(Curve("latency", "billing", point, (point,)), Curve("lag", "us-east > us-west", point, ())),
    )


KINDS = ("request", "response", "snapshot", "update")


def with_every_picture() -> Evaluation:
    """Return an evaluation with links, markers and cursors of three regions, one of which has a long name."""
    long = "a-region-with-quite-a-long-name"
    told = evaluation(timeline=timeline(("us-east", "us-west", long)))
    regions = [lane.region for lane in told.timeline.lanes]
    pairs = [(a, b) for a in regions for b in regions if a != b]
    lags = {f"{a} > {b}": {"p50": 0.01, "p99": 0.1, "max": 1.0} for a, b in pairs}
    declared = dict.fromkeys(pairs, 20.0)
    counts = [
        MarkerCount(kind, a, b, at, 1, at * 14 / 60 + number / 20)
        for number, kind in enumerate(KINDS)
        for at in range(60)
        for a in regions
        for b in regions
    ]
    return replace(
        told,
        links=summarise_links(declared, told.timeline, Measures(lag_seconds=lags)),
        markers=tuple(counts),
        cursors=tuple(CursorCurve("billing", region, tuple(range(60))) for region in regions),
    )


def most_of_everything() -> Evaluation:
    """Return an evaluation in which every part of the page is as large as it can be: of 3,000,000 messages, 10,000
    actors, 1,000 topics, 40 regions, and thousands of faults and steps."""
    regions = tuple(f"region-{number}" for number in range(40))
    slices = [
        TimelineCount(f"actor-{number % 12}", region, series, at, 313)
        for number, region in enumerate(regions)
        for series in ("published", "received")
        for at in range(BINS)
    ]
    happened = facts(
        *((at / 100, op, regions[at % 40], None) for at in range(0, 4000, 2) for op in ("kill", "start")),
        *(
            (at / 100, op, "region-0", f"region-{at % 39 + 1}")
            for at in range(2000)
            for op in ("cut", "heal")
        ),
    )
    happened.sort(key=lambda fact: fact["at_ms"])
    gap = {"region": "region-0", "other_region": "region-1", "subscription": "billing"}
    waits = {
        f"actor-{number}": (Stretch(float(number), 100.0 * number, True),) * 5 for number in range(10_000)
    }
    shown = make_timeline(
        regions,
        {},
        0.0,
        40_000.0,
        slices,
        happened,
        [{**gap, "at_ms": 100 * n, "until_ms": 100 * n + 50} for n in range(300)],
        Measures(stalls=waits),
    )
    declared = {(a, b): 20.0 for a in regions for b in regions if a != b}
    told = evaluation(timeline=shown)
    origin = ("persistent://public/default/topic-999", "region-0", "actor-9999")
    stops = tuple(JourneyEvent(n, "receive", "ok", "region-0", f"s{n}", f"1:{n}") for n in range(12))
    journeys = tuple(Journey(*origin, number, (), (), stops) for number in range(100))
    witness = [
        dict(zip(ORIGIN, (*origin, number), strict=True), kind="missing", region="region-1")
        for number in range(100)
    ]
    points = tuple(Point(at, 10, 0.01, 0.5, 2.0) for at in range(60))
    curves = [Curve("latency", f"s-{n}", points[0], points) for n in range(12)]
    curves += [Curve("lag", f"region-{n} > region-1", points[0], points) for n in range(12)]
    steps = tuple(ScenarioStep(n, f"publish: actor-{n}", "done", n / 10, 0.1) for n in range(5000))
    markers = tuple(
        MarkerCount(kind, a, b, at, 1000, at * 40 / 60)
        for kind in KINDS
        for at in range(60)
        for a in regions[:6]
        for b in regions[:6]
    )
    return replace(
        told,
        checks=(replace(told.checks[0], witness=tuple(witness)), *told.checks[1:]),
        journeys=journeys,
        curves=tuple(curves),
        scenario=ScenarioRun(RunInfo("most", "", "", "", "", ""), steps),
        links=summarise_links(declared, shown, Measures()),
        markers=markers,
        cursors=tuple(CursorCurve(f"s{n}", region, (n,) * 60) for n in range(6) for region in regions[:6]),
    )


def test_the_largest_page_opens_in_a_second_and_is_filtered_at_once(browser: object, tmp_path: Path) -> None:
    """The time is that of a processor, because other programs may run on the machine."""
    path = write_report(most_of_everything(), tmp_path)
    assert path.stat().st_size < 3_000_000
    page = browser.new_page(viewport={"width": 1600, "height": 900})  # type: ignore[attr-defined]
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    assert metrics["TaskDuration"] < 1.0
    page.get_by_label("Filter").fill("actor-9999")
    assert page.locator("#found").inner_text().endswith("match")
    assert page.locator("tr[data-f]:visible").count() == 0
    page.close()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1600, "light"), (1000, "dark"), (400, "light"), (400, "dark")]
)
def test_every_picture_fits_and_its_text_can_be_read(
    browser: object, tmp_path: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
    page.goto(write_report(with_every_picture(), tmp_path).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE_OF_CARDS) == []
    assert page.locator("svg:visible").count() == 4
    assert page.evaluate(UNREADABLE) == []
    page.close()


def test_a_filter_leaves_what_matches_and_can_be_used_by_keyboard(browser: object, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 900})  # type: ignore[attr-defined]
    page.goto(write_report(with_every_picture(), tmp_path).as_uri())
    rows = page.locator(".wide .row:visible")
    heights = "[...document.querySelectorAll('.wide svg')].map(one => one.getBoundingClientRect().height)"
    before, all_rows = page.evaluate(heights), rows.count()
    page.keyboard.press("/")
    page.keyboard.type("us-west CUT")
    assert page.locator("tr[data-f]:visible").count() == 3, "two links, one event"
    assert page.locator("#found").inner_text() == "4 of 21 match", "and a check whose hint names them"
    assert sum(page.evaluate(heights)) < sum(before)
    page.keyboard.press("Control+a")
    page.keyboard.type("billing")
    assert rows.count() == 2, "its lane and its cursors"
    page.keyboard.press("Escape")
    assert rows.count() == all_rows
    assert page.evaluate(heights) == before
    page.get_by_label("only failed checks").press("Space")
    # A part of the page that is scrolled out has no layout, so its visibility is that of its class.
    assert page.locator("article[data-f]:not(.gone)").count() == 1
    page.close()


def test_the_map_shows_the_state_at_any_moment(browser: object, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 900})  # type: ignore[attr-defined]
    page.goto(write_report(with_every_picture(), tmp_path).as_uri())
    slider = page.get_by_label("State at")
    assert page.locator(".wide .now-failed").count() == 0
    slider.focus()
    slider.press("Home")
    assert page.locator("#moment-text").inner_text() == "0.0 s"
    assert page.locator(".wide .now-failed").count() == 0
    for _ in range(5):
        slider.press("PageUp")  # a tenth of the run each
    assert page.locator("#moment-text").inner_text() == "7.0 s"
    assert page.locator(".wide .node.now-failed .region").all_text_contents() == ["us-east"]
    assert page.locator(".wide .link.now-failed").count() == 0, "the cut ended at 6 s"
    slider.press("PageDown")
    assert page.locator(".wide .link.now-failed").count() == 2
    slider.press("End")
    assert page.locator("#moment-text").inner_text() == "the whole run"
    page.close()


def test_no_other_script_runs_even_if_text_were_not_escaped(browser: object, tmp_path: Path) -> None:
    path = write_report(evaluation(), tmp_path)
    attack = "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\"><h1>"
    path.write_text(path.read_text().replace("<h1>", attack))
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(path.as_uri())
    assert page.title() != "ran"
    assert page.get_by_label("Filter").is_visible(), "the page's own script runs"
    page.close()


def test_everything_is_readable_without_the_script(browser: object, tmp_path: Path) -> None:
    page = browser.new_page(java_script_enabled=False)  # type: ignore[attr-defined]
    page.goto(write_report(told_with_everything(), tmp_path).as_uri())
    assert page.get_by_label("Filter").is_hidden()
    assert page.locator("article").first.is_visible()
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 1000, 400])
def test_nothing_leaves_its_card_or_is_cut_off(
    browser: object, tmp_path: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
    page.goto(write_report(told_with_everything(), tmp_path).as_uri())
    links = page.get_by_role("link", name="journey")
    assert links.count() == 1
    assert page.locator(".journey li").first.is_hidden()
    links.first.click()
    page.locator(".journey li").first.wait_for(state="visible")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE_OF_CARDS) == []
    events = page.locator("section.card", has=page.locator("th", has_text="where"))
    card = events.bounding_box()
    for cell in events.locator("td").all():
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= card["x"] + card["width"], cell.inner_text()
    page.close()


UNREADABLE = """
[...document.querySelectorAll("svg text")].flatMap(text => {
  const box = text.getBoundingClientRect(), picture = text.closest("svg").getBoundingClientRect();
  const inside = box.left >= picture.left - 1 && box.right <= picture.right + 1 && box.bottom <= picture.bottom + 1;
  return box.width === 0 || (inside && box.height > 8) ? [] : [text.outerHTML];
})
"""
"""JavaScript that returns the visible texts of pictures that are too small, or cut off."""
OUTSIDE_OF_CARDS = """
[...document.querySelectorAll(".card")].flatMap(card => {
  const right = card.getBoundingClientRect().right + 1;
  return [...card.querySelectorAll("*")]
    .filter(one => !one.closest(".scroll") && one.getBoundingClientRect().right > right)
    .map(one => one.outerHTML.slice(0, 80));
})
"""
"""JavaScript that returns the elements that are wider than their card and not inside a scrolling element."""
