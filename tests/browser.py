"""A browser for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Chromium. Until the end of the module, an event loop of its driver seems to run in this thread."""
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
