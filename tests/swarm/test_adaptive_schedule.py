"""The adaptive schedule of snapshots under the faults of the swarm."""

from __future__ import annotations

import pytest

from tests.swarm.runner import run_seed


@pytest.mark.parametrize("seed", range(1, 7))
def test_faults_violate_nothing(seed: int) -> None:
    assert run_seed("adaptive-snapshots", seed).violation is None
