"""docs/OWN_SERVICE.md does what it says: its service, its drill, its verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .drills import ROOT, drilled, end_runs, failing, make_folder

pytestmark = pytest.mark.real

PAGE = (ROOT / "docs" / "OWN_SERVICE.md").read_text()


def on_the_page(what: str) -> str:
    """The code below a comment of the page."""
    found = re.search(rf"<!-- {re.escape(what)} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, what
    return found[1]


def mended(service: str) -> str:
    """With the lines of the page instead of those that let go of an order too early."""
    before, _, _ = service.partition("    try:\n        invoices.send")
    assert before != service
    return before + on_the_page("mend: billing.py")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    make_folder(tmp_path, on_the_page("file: billing.yaml"))
    yield tmp_path
    end_runs(tmp_path)


def drilled_with(service: str, folder: Path) -> dict[str, Any]:
    (folder / "billing.py").write_text(service)
    return drilled(folder)


def test_the_service_of_the_page_is_short_and_one_word_of_it_is_there_for_the_drill() -> None:
    service = on_the_page("file: billing.py")
    assert len(service.splitlines()) <= 40
    assert service.count("geoemu.recorded") == 1


def test_the_drill_of_the_page_finds_the_bug_and_nothing_else(folder: Path) -> None:
    report = drilled_with(on_the_page("file: billing.py"), folder)
    assert report["verdict"] == "invalid", report["checks"]
    assert set(failing(report)) == {"INV-20"}
    (found,) = [check for check in report["checks"] if check["invariant"] == "INV-20"]
    assert "without an answer" in found["sentence"]
    assert found["witness"][0]["kind"] == "unanswered"
    said = on_the_page("verdict of: as it is")
    assert "INVALID" in said
    assert re.sub(r"[\d,]+", "N", found["sentence"]) in re.sub(r"[\d,]+", "N", said)


def test_the_service_that_the_page_mends_keeps_its_promise(folder: Path) -> None:
    report = drilled_with(mended(on_the_page("file: billing.py")), folder)
    assert report["verdict"] == "valid", report["checks"]
    (answered,) = [check for check in report["checks"] if check["invariant"] == "INV-20"]
    assert answered["verdict"] == "valid"
    assert "each answered" in answered["sentence"]
