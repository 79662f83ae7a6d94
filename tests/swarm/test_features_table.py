"""The table of features in docs/SIMULATION.md (actor, check, mutant): every name in it exists, and every workload that
tests a feature is in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.swarm.generator.kinds import KINDS
from tests.swarm.mutants import BY_NAME
from tests.swarm.workloads import CHECKS, NAMED_WORKLOADS, SWARM_WORKLOADS

PAGE = (Path(__file__).parents[2] / "docs" / "SIMULATION.md").read_text()
NOT_FEATURES = {
    "acknowledge-beyond-end",
    "byzantine-peer",
    "forged-claims",
    "half-open",
    "name-collision",
    "restart",
    "slow-reader",
}
"""Workloads that belong to no feature: misbehaving clients and regions, and operations of administrators."""
NONE = "none"


class Row(NamedTuple):
    feature: str
    actors: str
    judges: str
    mutants: str


def rows() -> list[Row]:
    between = PAGE.partition("<!-- features:")[2].partition("<!-- end of features -->")[0]
    lines = [line for line in between.splitlines() if line.startswith("| ")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[1:]]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_every_name_is_one() -> None:
    assert rows()
    assert len({row.feature for row in rows()}) == len(rows()), "a feature has more than one row"
    for row in rows():
        workloads = {workload.name for workload in (*SWARM_WORKLOADS, *NAMED_WORKLOADS)}
        assert names(row.actors) <= workloads | KINDS.keys(), row
        assert names(row.judges) <= {check.name for check in CHECKS}, row
        assert names(row.mutants) <= set(BY_NAME), row


def test_a_feature_without_actors_has_neither_checks_nor_mutants() -> None:
    for row in rows():
        assert all(names(cell) or cell == NONE or cell == "every run" for cell in row[1:]), row
        assert (row.actors == NONE) == (row.judges == NONE), row
        assert row.actors != NONE or row.mutants == NONE, row


def test_a_mutant_violates_an_invariant_that_a_check_of_its_feature_or_of_every_run_has() -> None:
    """The mutant is detected in the runs of its actors: in the swarm, or in those of its workload."""
    of = {check.name: check.invariant for check in CHECKS}
    for row in rows():
        checked = {of[name] for name in names(row.judges)}
        for name in names(row.mutants):
            assert BY_NAME[name].kind in {"swarm", *names(row.actors)}, row
            assert checked & set(BY_NAME[name].invariants), (row.feature, name)


def test_every_workload_has_its_row() -> None:
    reported = set().union(*(names(row.actors) for row in rows()))
    assert {workload.name for workload in (*SWARM_WORKLOADS, *NAMED_WORKLOADS)} - reported == NOT_FEATURES
