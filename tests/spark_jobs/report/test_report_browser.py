"""The report in a real browser: it fits the window, is readable and loads no other resource."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.curves import Curve, Point
from spark_jobs.figures.journeys import Journey, JourneyEvent
from spark_jobs.figures.ownership import Contest, Moment
from spark_jobs.figures.scenario_run import RunInfo, ScenarioRun, ScenarioStep
from spark_jobs.report.report import write_report
from tests.spark_jobs.report.test_report import EVIL, evaluation

pytestmark = [pytest.mark.real, pytest.mark.long]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        reason = "no Chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 400])
def test_nothing_leaves_its_card_or_is_cut_off(
    browser: object, tmp_path: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
    page.goto(write_report(told_with_everything(), tmp_path).as_uri())
    links = page.get_by_role("link", name="journey")
    assert links.count() == 1
    assert page.locator(".journey li").first.is_hidden()
    links.first.click()
    assert page.locator(".journey li").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE_OF_CARDS) == []
    events = page.locator("section.card", has=page.locator("th", has_text="where"))
    card = events.bounding_box()
    for cell in events.locator("td").all():
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= card["x"] + card["width"], cell.inner_text()
    page.close()


OUTSIDE_OF_CARDS = """
[...document.querySelectorAll(".card")].flatMap(card => {
  const right = card.getBoundingClientRect().right + 1;
  return [...card.querySelectorAll("*")]
    .filter(one => !one.closest(".scroll") && one.getBoundingClientRect().right > right)
    .map(one => one.outerHTML.slice(0, 80));
})
"""
"""JavaScript that returns the elements that are wider than their card and not inside a scrolling element."""
