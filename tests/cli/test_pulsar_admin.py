"""`geoemu pulsar-admin`: its message where it cannot run. With a Java it is run by tests/clients/admin."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from emulator.cli import tools
from emulator.errors import Refused
from emulator.runtimes.contract import RegionStatus, RunStatus

US = RegionStatus("us", "americas", "running", "pulsar://127.0.0.1:1", "http://127.0.0.1:2", 3)
STATUS = RunStatus(Path("runs/1"), "process", (US,), ())


def test_a_region_that_there_is_not() -> None:
    with pytest.raises(Refused, match="no region 'mars' in this run: regions are us"):
        tools.run_pulsar_admin(STATUS, "mars", ["clusters", "list"])


def test_pulsar_admin_without_java_suggests_curl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        Refused, match=r"needs Java, which is not installed.*curl http://127\.0\.0\.1:2/admin/v2/clusters"
    ):
        tools.run_pulsar_admin(STATUS, "us", ["clusters", "list"])


def test_pulsar_admin_without_maven_reports_that_maven_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/java" if name == "java" else None)
    with pytest.raises(Refused, match=r"Maven \(mvn\) is not installed"):
        tools.run_pulsar_admin(STATUS, "us", ["clusters", "list"])


def test_a_download_of_pulsar_admin_that_takes_too_long_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(command: Sequence[str], **options: float) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(Refused, match=r"Maven did not download pulsar-admin within 900 s: .*try again"):
        tools.run_pulsar_admin(STATUS, "us", ["clusters", "list"])


def test_the_walk_over_all_commands_uses_the_libraries_that_the_command_fetches() -> None:
    walked = (Path(__file__).parents[1] / "clients" / "admin" / "pom.xml").read_text()
    assert walked.split() == tools._POM.split()


def test_other_libraries_are_not_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tools._folder()
    monkeypatch.setattr(tools, "_POM", tools._POM.replace("2.17.2", "2.14.3"))
    assert tools._folder() != before
