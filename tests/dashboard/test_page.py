"""The page in a real browser: by mouse and by keyboard, wide and narrow, light and dark."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from tests.broker.admin.served import Served, served
from tests.browser import TIMEOUT_MS
from tests.dashboard.served_dashboard import (
    HTML,
    ServedDashboard,
    StatesOnly,
    served_dashboard,
    use_names_of_html,
)

pytestmark = [pytest.mark.real, pytest.mark.long]

OpenPage = Callable[..., Any]


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[ServedDashboard]:
    with served_dashboard(StatesOnly(tmp_path)) as running:
        yield running


@pytest.fixture
def open_page(browser: Any, dashboard: ServedDashboard) -> Iterator[OpenPage]:
    """Open the page. At the end of the test, no script must have failed and no other server been called."""
    complaints: list[str] = []
    pages = []

    def open_it(width: int = 1000, scheme: str = "light", expects: str = "") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: (expects and expects in line.text) or complaints.append(line.text))
        page.on("request", lambda sent: sent.url.startswith(dashboard.url) or complaints.append(sent.url))
        page.goto(dashboard.url)
        page.locator("#map svg").wait_for()
        pages.append(page)
        return page

    yield open_it
    for page in pages:
        page.close()
    assert complaints == []


def region(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=f"Region {name},")


def link(page: Any, source: str, target: str) -> Any:
    return page.get_by_role("button", name=f"Link {source} to {target},")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 400])
def test_it_fits_the_screen(open_page: OpenPage, width: int, scheme: str) -> None:
    page = open_page(width, scheme)
    region(page, "us-east").click()
    page.get_by_role("button", name="Kill").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 22, 28)") == (scheme == "dark")
    picture = page.locator("#map svg").bounding_box()
    for text in page.locator("#map text").all():
        box = text.bounding_box()
        assert picture["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= picture["x"] + picture["width"] + 1, text.inner_html()
        assert box["y"] + box["height"] <= picture["y"] + picture["height"] + 1, text.inner_html()


def test_a_region_is_killed_and_started_with_the_mouse(
    open_page: OpenPage, dashboard: ServedDashboard
) -> None:
    page = open_page()
    region(page, "us-east").click()
    page.get_by_role("button", name="Kill").click()
    page.get_by_text("kill us-east: done").wait_for()
    page.get_by_role("button", name="Region us-east, killed").wait_for()
    assert dashboard.run.states["us-east"] == "killed"
    page.locator("button:enabled", has_text="Start").click()
    page.get_by_role("button", name="Region us-east, running").wait_for()
    assert page.title() == "geoemu: 3 of 3 regions run"


def test_a_link_is_cut_slowed_and_healed_by_keyboard_only(
    open_page: OpenPage, dashboard: ServedDashboard
) -> None:
    page = open_page()
    way = ("us-east", "us-west")

    def focus(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    focus('[data-name="us-east to us-west"]')
    page.keyboard.press("Enter")
    focus("button.harm")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Link us-east to us-west, cut").wait_for()
    assert dashboard.run.links[way].state == dashboard.run.links[way[::-1]].state == "cut"
    focus("button.repair")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Link us-east to us-west, up").wait_for()
    focus("input[type=number]")
    page.keyboard.press("Control+a")
    page.keyboard.type("750")
    focus("button.harm")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Link us-east to us-west, up, 750 ms").wait_for()
    assert dashboard.run.links[way].latency_ms == 750
    focus("#heal-all")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Link us-east to us-west, up, 1 ms").wait_for()


def fill(page: Any, name: str, value: str) -> None:
    """Type a value into the input with this name, by keyboard."""
    page.get_by_label(name, exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type(value)


def press(page: Any, group: str, button: str) -> None:
    page.get_by_role("group", name=group, exact=True).get_by_role("button", name=button, exact=True).press(
        "Enter"
    )


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_the_faults_of_a_region_are_injected_by_keyboard(
    open_page: OpenPage, dashboard: ServedDashboard, width: int, scheme: str
) -> None:
    page = open_page(width, scheme)
    region(page, "us-east").press("Enter")
    fill(page, "Offset of the clock in milliseconds", "-1500")
    press(page, "clock", "Skew")
    page.locator("#panel dd", has_text="1,500 ms behind").wait_for()
    press(page, "clock", "Correct")
    page.get_by_text("the clock of us-east is right").wait_for()
    fill(page, "Delay of each write in milliseconds", "300")
    press(page, "disk", "Break")
    page.locator("#panel dd", has_text="slow, 300 ms").wait_for()
    page.get_by_label("State of the disk").select_option("full")
    assert page.get_by_label("Delay of each write in milliseconds").is_disabled()
    press(page, "disk", "Break")
    page.locator("#panel dd", has_text="full").wait_for()
    press(page, "disk", "Repair")
    page.get_by_text("the disk of us-east is healthy").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE_OF_CARDS) == []


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (400, "light")])
def test_bandwidth_frames_and_links_of_clients_are_changed_by_keyboard(
    open_page: OpenPage, dashboard: ServedDashboard, width: int, scheme: str
) -> None:
    page = open_page(width, scheme)
    link(page, "us-east", "us-west").press("Enter")
    fill(page, "Bandwidth in kilobytes per second", "64")
    press(page, "bandwidth", "Limit")
    page.locator("#panel dd", has_text="64,000 bytes/s").wait_for()
    fill(page, "First affected frame", "2")
    press(page, "frames", "Arm")
    page.locator("#panel dd", has_text="drop 1 snapshot_response, from number 2 on").wait_for()
    page.get_by_label("Fault of frames").select_option("delay")
    fill(page, "Delay in milliseconds", "70")
    press(page, "frames", "Arm")
    page.locator("#panel dd", has_text="delay 1 snapshot_response by 70 ms, from number 2 on").wait_for()
    assert page.evaluate(OUTSIDE_OF_CARDS) == []
    region(page, "us-east").press("Enter")
    press(page, "clients", "Link from clients")
    assert page.get_by_label("Region", exact=True).input_value() == "clients"
    page.get_by_label("only in this direction").press("Space")
    press(page, "link", "Cut")
    page.locator("#panel dd", has_text="cut").wait_for()
    assert dashboard.run.links["clients", "us-east"].state == "cut"
    assert dashboard.run.links["us-east", "clients"].state == "up"
    region(page, "us-east").press("Enter")
    page.locator("#panel dd", has_text="clients → us-east cut").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize(("count", "width"), [(2, 400), (5, 400), (12, 400), (12, 1600)])
def test_boxes_of_many_regions_do_not_overlap(browser: Any, tmp_path: Path, count: int, width: int) -> None:
    with served_dashboard(StatesOnly(tmp_path, many_regions(tmp_path, count))) as dashboard:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(dashboard.url)
        page.locator("#map svg").wait_for()
        boxes = [box.bounding_box() for box in page.locator("#map .box").all()]
        assert len(boxes) == count
        for one, other in itertools.combinations(boxes, 2):
            apart_x = abs(one["x"] - other["x"]) >= one["width"] - 1
            assert apart_x or abs(one["y"] - other["y"]) >= one["height"] - 1
        for box, name in zip(boxes, page.locator("#map .name").all(), strict=True):
            assert name.bounding_box()["width"] <= box["width"]
        page.close()


def test_a_fault_is_injected_by_name_where_no_map_is_drawn(browser: Any, tmp_path: Path) -> None:
    with served_dashboard(StatesOnly(tmp_path, many_regions(tmp_path, 20))) as dashboard:
        page = browser.new_page(viewport={"width": 400, "height": 900})
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(dashboard.url)
        page.get_by_text("A map of 20 regions is not drawn").wait_for()
        page.get_by_label("Region", exact=True).select_option("a-region-with-a-name-3")
        page.get_by_label("link to").select_option("a-region-with-a-name-17")
        page.get_by_label("only in this direction").check()
        page.get_by_role("button", name="Cut").click()
        page.get_by_text("cut between a-region-with-a-name-3 and a-region-with-a-name-17").wait_for()
        cut = [link for link, shape in dashboard.run.links.items() if shape.state == "cut"]
        assert cut == [("a-region-with-a-name-3", "a-region-with-a-name-17")]
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        page.close()


def many_regions(folder: Path, count: int) -> Topology:
    """Return a topology with regions whose names differ at their end."""
    (folder / "clusters").mkdir()
    regions = "".join(f"  a-region-with-a-name-{number}: {{}}\n" for number in range(count))
    (folder / "clusters" / "all.yaml").write_text(f"regions:\n{regions}")
    namespaces = "tenants: [public]\nnamespaces: {public/default: {regions: all}}\n"
    (folder / "topology.yaml").write_text(f"name: many\nclusters: [all]\n{namespaces}")
    return load_topology(folder / "topology.yaml")


def test_the_focus_stays_while_the_status_changes(open_page: OpenPage, dashboard: ServedDashboard) -> None:
    page = open_page()
    link(page, "us-east", "us-west").focus()
    dashboard.run.states["us-west"] = "paused"
    page.get_by_role("button", name="Region us-west, paused").wait_for()
    assert page.evaluate("document.activeElement.dataset.name") == "us-east to us-west"


def test_a_refused_change_is_shown_with_its_reason(open_page: OpenPage, dashboard: ServedDashboard) -> None:
    page = open_page(expects="502 (Bad Gateway)")
    dashboard.run.failure = "us-east was <b>not</b> ready"
    region(page, "us-east").click()
    page.get_by_role("button", name="Kill").click()
    page.get_by_text("kill: us-east was <b>not</b> ready").wait_for()


def test_the_page_shows_the_age_of_the_status_while_the_run_is_silent(
    open_page: OpenPage, dashboard: ServedDashboard
) -> None:
    page = open_page()
    dashboard.run.is_silent = True
    page.get_by_text("the status is").wait_for()
    region(page, "eu-central").click()
    page.get_by_role("button", name="Kill").wait_for()
    dashboard.run.is_silent = False
    page.get_by_text("live", exact=True).wait_for()


def test_a_page_whose_server_has_ended_says_so(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    with served_dashboard(StatesOnly(tmp_path)) as dashboard:
        page.goto(dashboard.url)
        page.locator("#map svg").wait_for()
    page.get_by_text("The dashboard does not respond").wait_for()
    assert page.locator("#freshness").inner_text() == "not connected"
    page.close()


@pytest.fixture(scope="module")
def us() -> Iterator[Served]:
    with served() as region:
        use_names_of_html(region)
        yield region


@pytest.fixture
def with_topics(dashboard: ServedDashboard, us: Served) -> ServedDashboard:
    """The run with one region that has topics; the others are down."""
    dashboard.run.states |= {"us-west": "killed", "eu-central": "lost"}
    dashboard.run.admin_urls["us-east"] = f"http://127.0.0.1:{us.admin_port}"
    return dashboard


@pytest.mark.parametrize(("width", "scheme"), [(1600, "dark"), (400, "light")])
def test_names_that_are_html_are_shown_as_text(
    open_page: OpenPage, with_topics: ServedDashboard, width: int, scheme: str
) -> None:
    page = open_page(width, scheme)
    page.get_by_label("Name").first.fill(HTML)
    page.get_by_label("Name").first.press("Enter")
    page.locator("#subscription").select_option(f"billing {HTML}")
    page.locator("#subscription-view th", has_text="us-east").wait_for()
    page.locator("#topic-view td", has_text="it is lost").wait_for()
    assert page.locator("main img, main b, main script").count() == 0
    assert page.title() != "ran"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE_OF_CARDS) == []


def test_a_topic_is_chosen_and_its_subscription_shown_by_keyboard(
    open_page: OpenPage, with_topics: ServedDashboard
) -> None:
    page = open_page(expects="404")
    name = page.get_by_label("Name").first
    name.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("nothing")
    page.keyboard.press("Enter")
    page.locator("#topic-view").get_by_text("have no topic 'nothing'").or_(
        page.locator("#topic-view").get_by_text("has no topic 'nothing'")
    ).wait_for()
    page.keyboard.press("Control+a")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.locator("#subscription-view td", has_text="no").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('section').querySelector('h2').id") == "topic-title"


def test_events_are_shown_as_they_happen(open_page: OpenPage, dashboard: ServedDashboard) -> None:
    page = open_page()
    assert dashboard.change({"verb": "kill", "region": "us-west"}).status == 200
    events = page.locator("#event-view tbody tr")
    events.filter(has_text="kill · us-west").wait_for()
    events.filter(has_text="state · us-west · running -> killed").wait_for()


OUTSIDE_OF_CARDS = """
[...document.querySelectorAll(".card")].flatMap(card => {
  const right = card.getBoundingClientRect().right + 1;
  return [...card.querySelectorAll("*")]
    .filter(one => !one.closest(".scroll > *") && one.getBoundingClientRect().right > right)
    .map(one => one.outerHTML.slice(0, 80));
})
"""
"""JavaScript that returns the elements that are wider than their card and not inside a scrolling element."""
