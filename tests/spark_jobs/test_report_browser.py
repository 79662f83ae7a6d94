"""The report in a real browser: it fits, says what it should and needs nothing from anywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.report import write_report

from .test_report import judgement

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
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    address = write_report(judgement(), tmp_path).as_uri()
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("h1").inner_text() == "Invalid: a promise was broken"
    assert page.locator(f"{shown} svg").is_visible()
    assert page.locator(f"{hidden} svg").is_hidden()
    drawing = page.locator(f"{shown} svg").bounding_box()
    assert drawing["width"] > 0.85 * width - 60
    for text in page.locator(f"{shown} svg text").all():
        box = text.bounding_box()
        assert drawing["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= drawing["x"] + drawing["width"] + 1, text.inner_html()
        assert box["height"] > 9, "too small to read"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 22, 28)") == (scheme == "dark")
    assert asked == [address]
    assert complaints == []
    page.close()
