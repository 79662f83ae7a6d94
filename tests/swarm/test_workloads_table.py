"""The table of workloads in docs/SIMULATION.md is up to date, with their checks and mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.swarm.generator.kinds import KINDS
from tests.swarm.workload import Workload
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS
from tests.swarm.workloads_table import rewrite, table, written

PAGE = (Path(__file__).parents[2] / "docs" / "SIMULATION.md").read_text()


def test_the_page_is_what_the_vocabulary_says() -> None:
    """It is written by `python -m tests.swarm.workloads_table docs/SIMULATION.md`."""
    assert written(PAGE) == table()


def test_a_page_that_is_out_of_date_is_written_anew_and_keeps_the_rest() -> None:
    assert rewrite(PAGE.replace("| `seek` | `swarm` |", "| `sick` | `swarm` |")) == PAGE


@pytest.mark.parametrize("workload", NAMED_WORKLOADS, ids=lambda workload: workload.name)
def test_a_word_with_worlds_of_its_own_has_a_judge_and_an_ablation_there(workload: Workload) -> None:
    assert workload.name in KINDS
    assert workload.checks
    assert workload.mutants
    assert {mutant.kind for mutant in workload.mutants} == {workload.name}


def test_words_of_the_swarm_are_missed_in_the_swarm() -> None:
    assert {mutant.kind for workload in SWARM_WORKLOADS for mutant in workload.mutants} == {"swarm"}
