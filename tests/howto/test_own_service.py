"""docs/OWN_SERVICE.md does what it says: its service, its drill, its verdicts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.fixtures import end_all

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "OWN_SERVICE.md").read_text()
TOPOLOGY = """\
name: howto
clusters: [americas, europe]
links: {defaults: {latency_ms: 1}}
tenants: [public]
namespaces: {public/default: {regions: all, deduplication: true}}
"""
CLUSTERS = {"americas": "us-east: {}\n  us-west: {}", "europe": "eu-central: {}"}


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
    (tmp_path / "clusters").mkdir()
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    for name, regions in CLUSTERS.items():
        (tmp_path / "clusters" / f"{name}.yaml").write_text(f"regions:\n  {regions}\n")
    (tmp_path / "billing.yaml").write_text(on_the_page("file: billing.yaml"))
    yield tmp_path
    for run in (tmp_path / ".geoemu" / "runs").glob("*"):
        end_all(run)


def drilled(folder: Path, service: str) -> dict[str, Any]:
    """What `geoemu run` says of a service."""
    (folder / "billing.py").write_text(service)
    done = subprocess.run(
        [sys.executable, "-m", "emulator.cli", "run", "billing.yaml", "--engine", "embedded", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"valid": 0, "invalid": 1}.get(report["verdict"], 2), done.stderr
    return report


def failing(report: dict[str, Any]) -> list[str]:
    return [check["invariant"] for check in report["checks"] if check["verdict"] in ("invalid", "unknown")]


def test_the_service_of_the_page_is_short_and_one_word_of_it_is_there_for_the_drill() -> None:
    service = on_the_page("file: billing.py")
    assert len(service.splitlines()) <= 40
    assert service.count("geoemu.recorded") == 1


def test_the_drill_of_the_page_finds_the_bug_and_nothing_else(folder: Path) -> None:
    report = drilled(folder, on_the_page("file: billing.py"))
    assert report["verdict"] == "invalid", report["checks"]
    assert failing(report) == ["INV-20"]
    (found,) = [check for check in report["checks"] if check["invariant"] == "INV-20"]
    assert "without an answer" in found["sentence"]
    assert found["witness"][0]["kind"] == "unanswered"
    said = on_the_page("verdict of: as it is")
    assert "INVALID" in said
    assert re.sub(r"[\d,]+", "N", found["sentence"]) in re.sub(r"[\d,]+", "N", said)


def test_the_service_that_the_page_mends_keeps_its_promise(folder: Path) -> None:
    report = drilled(folder, mended(on_the_page("file: billing.py")))
    assert report["verdict"] == "valid", report["checks"]
    (answered,) = [check for check in report["checks"] if check["invariant"] == "INV-20"]
    assert answered["verdict"] == "valid"
    assert "each answered" in answered["sentence"]
