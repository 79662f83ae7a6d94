"""The services in `examples/`, recorded on the wire and drilled. Their clients come from the registries of their
languages; what is missing here is said."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .drills import ROOT, drilled, end_runs, failing, make_folder

pytestmark = pytest.mark.real

EXAMPLES = ROOT / "examples"
BUILD_SECONDS = 600
GO_VERSION = (1, 23)
"""What its Pulsar client wants."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_runs(tmp_path)


def built(source: Path, *command: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode and any(
        word in done.stdout + done.stderr for word in ("dial tcp", "Could not transfer")
    ):
        pytest.skip("the packages of the example cannot be fetched")
    assert done.returncode == 0, done.stdout + done.stderr


def java(source: Path) -> list[str]:
    built(source, "mvn", "-q", "-B", "compile", "dependency:copy-dependencies")
    return ["java", "-cp", f"{source}/target/classes:{source}/target/dependency/*", "Billing"]


def go(source: Path) -> list[str]:
    if shutil.which("go") is None or go_version() < GO_VERSION:
        pytest.skip(f"there is no go of version {'.'.join(map(str, GO_VERSION))} or newer")
    built(source, "go", "build", "-o", "billing", ".")
    return [str(source / "billing")]


def go_version() -> tuple[int, ...]:
    said = subprocess.run(["go", "version"], capture_output=True, text=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


LANGUAGES = {"java": java, "go": go}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unchanged_service_keeps_its_promise_and_its_history_is_whole(language: str, folder: Path) -> None:
    command = LANGUAGES[language](Path(shutil.copytree(EXAMPLES / language, folder / language)))
    make_folder(folder, scenario_of(command))
    report = drilled(folder)
    assert report["verdict"] == "valid", failing(report)
    assert report["figures"]["published"]["acknowledged"] > 100


def test_a_bug_in_another_language_is_found_all_the_same(folder: Path) -> None:
    """The service in Go, which gives up when a send fails."""
    source = Path(shutil.copytree(EXAMPLES / "go", folder / "go"))
    code = (source / "billing.go").read_text()
    hasty = code.replace("err != nil; _, err = invoices.Send(ctx, invoice)", "err != nil; err = nil")
    assert hasty != code
    (source / "billing.go").write_text(hasty)
    make_folder(folder, scenario_of(go(source)))
    assert set(failing(drilled(folder))) == {"INV-20"}


def scenario_of(command: list[str]) -> str:
    return (
        (EXAMPLES / "billing.yaml").read_text().replace("command: BILLING", f"command: {json.dumps(command)}")
    )
