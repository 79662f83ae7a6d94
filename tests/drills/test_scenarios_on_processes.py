"""Every shipped scenario with real clients on regions that are processes: the verdict is valid, and every limit of the
scenario is kept. Both engines judge the switches of replicated subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.scenario_table import PROCESSES, SUBSCRIPTION_SWITCHES
from tests.cli.test_cli import ROOT, geoemu
from tests.runtimes.containers import remove
from tests.runtimes.fixtures import end_all

pytestmark = pytest.mark.real

IN_EVERY_RUN = {"flapping-link", "lost-coordinator", "slow-client", "slow-disk"}
"""Scenarios that `.ci/run` includes, beside region-failover and region-lost, which other tests run; `.ci/long` runs
all."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for run in (tmp_path / ".geoemu").glob("runs/*"):
        end_all(run)
        asyncio.run(remove(run))


def assert_valid(scenario: str, topology: Path, folder: Path) -> None:
    """Run a scenario. The exit code is 0 if the verdict is valid and every limit is kept."""
    done = geoemu("run", scenario, "-f", str(topology), "--engine", "embedded", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.long if name in IN_EVERY_RUN else pytest.mark.slow)
        for name in PROCESSES.scenarios
    ],
)
def test_the_verdict_is_valid(scenario: str, folder: Path) -> None:
    assert_valid(scenario, ROOT / "topology.yaml", folder)
    if scenario in SUBSCRIPTION_SWITCHES.values():
        done = geoemu("verify", "--engine", "spark", folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr
