"""Every shipped scenario with real clients on regions that are containers, each with a Kafka: the verdict is valid, and
every limit of the scenario is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.scenario_table import COMPOSE
from tests.cli.test_cli import ROOT
from tests.drills.test_scenarios_on_processes import assert_valid, folder
from tests.runtimes.containers import need_containers

__all__ = ["folder"]
pytestmark = pytest.mark.real

IN_EVERY_RUN = {"planned-failover", "partition-minority"}
"""Scenarios that `.ci/run` includes, beside region-failover and region-lost, which other steps and tests run."""


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.long if name in IN_EVERY_RUN else pytest.mark.slow)
        for name in COMPOSE.scenarios
    ],
)
def test_the_verdict_is_valid(scenario: str, folder: Path) -> None:
    need_containers("region", "kafka")
    assert_valid(scenario, ROOT / "compose" / "topology.yaml", folder)
