"""docs/CLIENT_FAILOVER.md works as written: clients change regions by themselves, there and back."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .drills import end_runs, failing, make_folder, on_the_page, run_scenario
from .test_other_languages import EXAMPLES, java

pytestmark = [pytest.mark.real, pytest.mark.long]

PAGE = "CLIENT_FAILOVER.md"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    make_folder(tmp_path, on_the_page(PAGE, "file: billing.yaml"))
    yield tmp_path
    end_runs(tmp_path)


def regions_worked_in(folder: Path) -> list[str]:
    """Return the regions in which billing received, one after the other."""
    history = folder / ".geoemu" / "current" / "history" / "billing.jsonl"
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    regions = [line["region"] for line in lines if line["op"] == "receive"]
    return [here for before, here in zip([None, *regions], regions, strict=False) if here != before]


def assert_there_and_back(report: dict[str, Any], folder: Path) -> None:
    assert report["verdict"] == "valid", failing(report)
    assert regions_worked_in(folder) == ["us-east", "us-west", "us-east"]
    sentences = [check["sentence"] for check in report["checks"]]
    (gap,) = [sentence for sentence in sentences if sentence.startswith("After us-east went down")]
    assert gap.endswith("later, in us-west.")


def test_the_client_of_the_page_fails_over_and_back_by_itself(folder: Path) -> None:
    (folder / "billing.py").write_text(on_the_page(PAGE, "file: billing.py"))
    report = run_scenario(folder)
    assert_there_and_back(report, folder)
    said = without_numbers(on_the_page(PAGE, "verdict of: as it is"))
    for check in report["checks"]:
        if check["invariant"] in ("INV-5", "INV-20"):
            assert without_numbers(check["sentence"]) in said


def test_so_does_that_of_java(folder: Path) -> None:
    source = Path(shutil.copytree(EXAMPLES / "java", folder / "java"))
    scenario = (folder / "billing.yaml").read_text()
    command = json.dumps(java(source, "BillingAnywhere"))
    (folder / "billing.yaml").write_text(scenario.replace("[python, billing.py]", command))
    assert command in (folder / "billing.yaml").read_text()
    assert_there_and_back(run_scenario(folder), folder)


def without_numbers(text: str) -> str:
    return re.sub(r"[\d,]+", "N", text)
