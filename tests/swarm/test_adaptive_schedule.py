"""The adaptive schedule of snapshots under the faults of the swarm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.swarm.generator.kinds import draw
from tests.swarm.plan import with_settings
from tests.swarm.runner import run_plan


@pytest.mark.parametrize("seed", range(1, 5))
def test_faults_violate_nothing(seed: int) -> None:
    plan = draw("failover", seed)
    adaptive = with_settings(plan.topology, snapshot_schedule="adaptive")
    assert run_plan(replace(plan, topology=adaptive)).violation is None
