"""The verdict from inside a run's network: the verifier service, on real containers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.config.region import LogConfig
from emulator.runtimes.compose.command import compose_command
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.scenarios.await_conditions import await_condition
from spark_jobs.live.following import INTERRUPTED
from tests.cli.test_cli import complaints
from tests.drills.test_containers import Load, perform, published_more

from .containers import ROOT, need_containers, remove
from .fixtures import small_topology, with_regions

pytestmark = [pytest.mark.real, pytest.mark.long]

UP_SECONDS = 120
VERDICT_SECONDS = 300
QUIET_SECONDS = 60


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.slow), "kafka"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComposeRuntime]:
    """A run after a load during which a region was killed."""
    need_containers("region", "kafka", "spark")
    topology = with_regions(small_topology(tmp_path), log=LogConfig(request.param))
    runtime = ComposeRuntime.create(topology, tmp_path / "run", detached=True)
    try:
        asyncio.run(asyncio.wait_for(runtime.up(), UP_SECONDS))
        perform(some_load(runtime))
        yield runtime
    finally:
        asyncio.run(remove(tmp_path / "run"))


async def some_load(runtime: ComposeRuntime) -> None:
    load = Load(runtime, "judged")
    try:
        await load.begin()
        await published_more(load.producers["us-east"])
        await runtime.kill("us-east")
        await runtime.start("us-east")
        await published_more(load.producers["us-east"])
        await load.end()
        # Regions keep running while one verifier after the other reads them.
        await await_condition(runtime, "quiet", None, None, QUIET_SECONDS)
    finally:
        await load.leave()


def done(*command: object, cwd: Path) -> str:
    """Return the output of a command that must succeed without warnings."""
    finished = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=VERDICT_SECONDS,
        check=False,
    )
    assert (finished.returncode, complaints(finished.stderr)) == (0, "")
    return finished.stdout


def without_name(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "run"}


def test_the_same_verdict_as_on_the_host(run: ComposeRuntime, tmp_path: Path) -> None:
    """Regions keep running, with SQLite in the very files that are read; with Kafka everything may even be down."""
    geoemu = (sys.executable, "-m", "emulator.cli")
    command = (*geoemu, "verify", run.run_dir, "--json")
    on_host = json.loads(done(*command, "--report", tmp_path, cwd=tmp_path))
    assert on_host["verdict"] == "valid"
    assert on_host["figures"]["published"]["acknowledged"] > 400

    printed = done(
        *compose_command(), "--progress", "quiet", "run", "--rm", "--no-TTY", "verify", cwd=run.run_dir
    )
    report = run.run_dir / "report"
    inside = json.loads((report / "report.json").read_text())
    assert printed.startswith(f"VALID  {inside['run']}\n")
    assert printed.endswith("Report: report/report.html\n")
    assert without_name(inside) == without_name(on_host)
    page = (report / "report.html").read_text()
    assert page == (tmp_path / "report.html").read_text().replace(str(run.run_dir), inside["run"])

    if (run.run_dir / "kafka").exists():
        # Nothing runs any more; the required services are started again.
        asyncio.run(run.down())
        verdict = done(*command, "--in-network", cwd=tmp_path)
        assert json.loads(verdict) == on_host


@pytest.mark.slow
def test_a_running_run_is_followed_inside_its_network_until_ctrl_c(
    run: ComposeRuntime, tmp_path: Path
) -> None:
    """Ctrl-C prints the verdict so far; it reaches the verifier through the client of Compose."""
    command = (
        sys.executable,
        "-m",
        "emulator.cli",
        "verify",
        run.run_dir,
        "--in-network",
        "--follow",
        "--json",
    )
    program = subprocess.Popen(
        [*map(str, command)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ended = threading.Timer(VERDICT_SECONDS, program.kill)
    ended.start()
    assert program.stdout is not None
    events = []
    for line in program.stdout:
        events.append(json.loads(line))
        if is_read(events[-1]) and not is_read(events[-2]):
            program.send_signal(signal.SIGINT)
    ended.cancel()
    assert program.wait(VERDICT_SECONDS) == 0
    assert events[0] == {"event": "started", "run": str(run.run_dir), "engine": "spark"}
    assert [event["event"] for event in events[-2:]] == ["ended", "verdict"]
    assert events[-2]["why"] == INTERRUPTED
    report = events[-1]["report"]
    assert report["verdict"] == "valid"
    assert report["figures"]["published"]["acknowledged"] > 400
    assert not containers_of(run.run_dir)


def is_read(event: dict[str, Any]) -> bool:
    """Return whether the verifier has read a run in which everything is replicated."""
    return event["event"] == "progress" and event["acknowledged"] > 400 and event["converged"]


def containers_of(run_dir: Path) -> str:
    """Return the ids of containers of the verifier."""
    listed = (*compose_command(), "ps", "--all", "--quiet", "verify")
    return subprocess.run(listed, cwd=run_dir, capture_output=True, text=True, check=True).stdout


def test_what_is_no_run_in_containers_is_refused(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "emulator.cli", "verify", str(tmp_path), "--in-network"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == f"{tmp_path} is not a run in containers: verify it without --in-network\n"
