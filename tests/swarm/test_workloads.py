"""Workloads with their own runs: no run violates an invariant, and each workload performs its operations."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.swarm.generator.kinds import draw
from tests.swarm.runner import run_seed
from tests.swarm.search import WorkloadResult, run_workload
from tests.swarm.workload import Workload
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS

pytestmark = pytest.mark.long

SEEDS = 12
"""Number of seeds per workload; `make swarm WORKLOAD=transaction-key SEEDS=500` runs more."""


@cache
def results_of(workload: str) -> list[WorkloadResult]:
    return list(run_workload(workload, range(1, SEEDS + 1)))


def operations_of(workload: str) -> Counter[tuple[str, str]]:
    return sum((Counter(result.operations) for result in results_of(workload)), Counter[tuple[str, str]]())


@pytest.mark.parametrize("workload", NAMED_WORKLOADS, ids=lambda workload: workload.name)
def test_nothing_is_violated(workload: Workload) -> None:
    assert [(one.seed, one.violation) for one in results_of(workload.name) if one.violation is not None] == []


@pytest.mark.parametrize("workload", NAMED_WORKLOADS, ids=lambda workload: workload.name)
def test_each_does_something(workload: Workload) -> None:
    assert operations_of(workload.name)[workload.seed_name, "accepted"] > SEEDS


def test_clients_take_over_and_are_refused_a_key_that_another_client_holds() -> None:
    """Clients take over a key from its holder, and are rejected, at least once each."""
    done = operations_of("transaction-key")
    assert done["come-between", "accepted"] > 0
    assert done["come-between", "refused"] > 0


@pytest.mark.parametrize("workload", NAMED_WORKLOADS, ids=lambda workload: workload.name)
def test_the_same_seed_is_the_same_world(workload: Workload) -> None:
    assert draw(workload.name, 3) == draw(workload.name, 3)
    assert run_seed(workload.name, 3).digest == run_seed(workload.name, 3).digest


def test_the_swarm_knows_nothing_of_them() -> None:
    """Plans of the swarm contain no named workload, so that its seeds keep their plans."""
    assert not set(NAMED_WORKLOADS) & set(SWARM_WORKLOADS)
    assert not any(draw("swarm", seed).workers for seed in range(50))
