"""docs/reference/workloads.md is up to date, and each workload has checks and mutants."""

from __future__ import annotations

import pytest

from tests.swarm.generator.kinds import KINDS
from tests.swarm.workload import Workload
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS
from tests.swarm.workloads_table import PAGE, text


def test_the_page_lists_the_workloads_as_they_are() -> None:
    assert PAGE.read_text() == text(), "run: python -m tests.swarm.workloads_table"


@pytest.mark.parametrize("workload", NAMED_WORKLOADS, ids=lambda workload: workload.name)
def test_a_named_workload_has_checks_and_mutants(workload: Workload) -> None:
    assert workload.name in KINDS
    assert workload.checks
    assert workload.mutants
    assert {mutant.kind for mutant in workload.mutants} == {workload.name}


def test_mutants_of_swarm_workloads_are_detected_by_the_swarm() -> None:
    assert {mutant.kind for workload in SWARM_WORKLOADS for mutant in workload.mutants} == {"swarm"}
