"""The services in `examples/`, recorded on the wire in a scenario run. Their clients come from the registries of their
languages; a missing tool is reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .drills import ROOT, end_runs, failing, make_folder, run_scenario

pytestmark = [pytest.mark.real, pytest.mark.slow]

EXAMPLES = ROOT / "examples"
BUILD_SECONDS = 900
GO_VERSION, RUST_VERSION = (1, 23), (1, 85)
"""Requirements of their Pulsar clients."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_runs(tmp_path)


def built(source: Path, *command: str, **environment: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run(
        command,
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    if done.returncode and any(
        word in done.stdout + done.stderr for word in ("dial tcp", "Could not transfer")
    ):
        pytest.skip("the packages of the example cannot be fetched")
    assert done.returncode == 0, done.stdout + done.stderr


def java(source: Path, program: str = "Billing") -> list[str]:
    built(source, "mvn", "-q", "-B", "compile", "dependency:copy-dependencies")
    return ["java", "-cp", f"{source}/target/classes:{source}/target/dependency/*", program]


def go(source: Path) -> list[str]:
    want("go", "version", GO_VERSION)
    built(source, "go", "build", "-o", "billing", ".")
    return [str(source / "billing")]


def rust(source: Path) -> list[str]:
    want("cargo", "--version", RUST_VERSION)
    # An earlier build is reused, in any clone: building takes minutes.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "geoemu" / "example-rust"
    target.mkdir(parents=True, exist_ok=True)
    compiler = target / "protoc"
    compiler.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n')
    compiler.chmod(0o755)
    built(source, "cargo", "build", "--quiet", "--target-dir", str(target), PROTOC=str(compiler))
    return [str(target / "debug" / "billing")]


def want(tool: str, option: str, version: tuple[int, int]) -> None:
    """Skip where the tool is missing, or older than its Pulsar client requires."""
    wanted = f"there is no {tool} of version {version[0]}.{version[1]} or newer"
    if shutil.which(tool) is None:
        pytest.skip(wanted)
    said = subprocess.run([tool, option], capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or tuple(map(int, found.groups())) < version:
        pytest.skip(wanted)


LANGUAGES = {"java": java, "go": go, "rust": rust}
AT_HOME = ("rust",)
"""Languages whose clients cannot request a replicated subscription."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unchanged_service_keeps_its_promise_and_its_history_is_whole(language: str, folder: Path) -> None:
    command = LANGUAGES[language](Path(shutil.copytree(EXAMPLES / language, folder / language)))
    make_folder(folder, scenario_of(command, at_home=language in AT_HOME))
    report = run_scenario(folder)
    assert report["verdict"] == "valid", failing(report)
    assert report["figures"]["published"]["acknowledged"] > 100


def test_a_bug_in_another_language_is_found_all_the_same(folder: Path) -> None:
    """The service in Go forgets every twentieth order: a bug that always shows."""
    source = Path(shutil.copytree(EXAMPLES / "go", folder / "go"))
    code = (source / "billing.go").read_text()
    loop, invoice = "\tfor {\n", "\t\tinvoice := "
    assert loop in code
    assert invoice in code
    forgetful = code.replace(loop, "\tfor n := 1; ; n++ {\n").replace(
        invoice, f"\t\tif n%20 == 0 {{\n\t\t\torders.Ack(order)\n\t\t\tcontinue\n\t\t}}\n{invoice}"
    )
    (source / "billing.go").write_text(forgetful)
    make_folder(folder, scenario_of(go(source)))
    assert set(failing(run_scenario(folder))) == {"INV-20"}


def scenario_of(command: list[str], *, at_home: bool = False) -> str:
    file = "billing-at-home.yaml" if at_home else "billing.yaml"
    return (EXAMPLES / file).read_text().replace("command: BILLING", f"command: {json.dumps(command)}")
