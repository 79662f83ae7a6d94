"""docs/OWN_SERVICE.md works as written: its service, its scenario, its verdicts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped]
import pytest

import geoemu
from tests.runtimes.fixtures import wait_until

from .drills import ROOT, end_runs, failing, make_folder, run_scenario
from .drills import on_the_page as on_page

pytestmark = [pytest.mark.real, pytest.mark.long]


def on_the_page(what: str) -> str:
    return on_page("OWN_SERVICE.md", what)


def mended(service: str) -> str:
    """Return the service with the lines of the page instead of those that acknowledge an order too early."""
    before, _, _ = service.partition("    try:\n        invoices.send")
    assert before != service
    return before + on_the_page("mend: billing.py")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    make_folder(tmp_path, on_the_page("file: billing.yaml"))
    yield tmp_path
    end_runs(tmp_path)


def run_scenario_with(service: str, folder: Path) -> dict[str, Any]:
    (folder / "billing.py").write_text(service)
    return run_scenario(folder)


def test_the_service_of_the_page_is_short_and_one_word_of_it_is_there_for_the_recording() -> None:
    service = on_the_page("file: billing.py")
    assert len(service.splitlines()) <= 40
    assert service.count("geoemu.recorded") == 1


def test_the_scenario_of_the_page_finds_the_bug_and_nothing_else(folder: Path) -> None:
    report = run_scenario_with(on_the_page("file: billing.py"), folder)
    assert report["verdict"] == "invalid", report["checks"]
    assert set(failing(report)) == {"INV-20"}
    (found,) = [check for check in report["checks"] if check["invariant"] == "INV-20"]
    assert "without a result" in found["sentence"]
    assert found["witness"][0]["kind"] == "without a result"
    said = on_the_page("verdict of: as it is")
    assert "INVALID" in said
    assert re.sub(r"[\d,]+", "N", found["sentence"]) in re.sub(r"[\d,]+", "N", said)


def test_the_service_that_the_page_mends_keeps_its_promise(folder: Path) -> None:
    report = run_scenario_with(mended(on_the_page("file: billing.py")), folder)
    assert report["verdict"] == "valid", report["checks"]
    (answered,) = [check for check in report["checks"] if check["invariant"] == "INV-20"]
    assert answered["verdict"] == "valid"
    assert "each with a result" in answered["sentence"]


def test_the_same_from_a_program(folder: Path) -> None:
    """Run the lines under `By hand`."""
    (folder / "billing.py").write_text(mended(on_the_page("file: billing.py")))
    with geoemu.up(folder / "topology.yaml", run_dir=folder / ".geoemu" / "runs" / "1") as geo:
        env = {**os.environ, **geo.environment("us-east", actor="billing"), "PYTHONPATH": str(ROOT)}
        service = subprocess.Popen(
            [sys.executable, "billing.py"], env=env, cwd=folder, stdout=subprocess.DEVNULL
        )
        try:
            shop = geo.recorded(pulsar.Client(geo.url("us-west")), actor="shop")
            orders = shop.create_producer("orders")
            for number in range(20):
                orders.send(b"order", partition_key=str(number))
            wait_until(
                lambda: geo.backlog("us-east", "orders", "billing") == 0, "all orders are acknowledged"
            )
        finally:
            service.terminate()
            service.wait()
        geo.seal("billing")
        promised = [geoemu.Contract.between("billing", "orders", "invoices")]
        verdict = geo.verify(contract=promised, engine="embedded")
    assert verdict.is_valid, str(verdict)
    assert "20 acknowledged messages, each with a result" in verdict.finding("INV-20").sentence
