"""Randomised fault-injection runs: no run violates an invariant, and the same seed is the same run."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.cli.seed_report import store_run
from emulator.simulation.remote_log import RemoteFaults
from spark_jobs.sources.run_folder import open_run_folder
from tests.swarm.faults import Cut, Kill
from tests.swarm.generator.kinds import KINDS, draw
from tests.swarm.mutants import overrides_without
from tests.swarm.runner import run_plan, run_seed
from tests.swarm.search import WorkloadResult, run_workload
from tests.swarm.shrink import shrink, story_of
from tests.swarm.workloads import SWARM_WORKLOADS

pytestmark = pytest.mark.long

CLEAN_SEEDS = 120
NAMED_SEEDS = Path(__file__).parent / "seeds.txt"


def named_seeds() -> list[int]:
    lines = NAMED_SEEDS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def clean_seeds() -> list[WorkloadResult]:
    return list(run_workload("swarm", range(1, CLEAN_SEEDS + 1), jobs=2))


def test_nothing_is_violated(clean_seeds: list[WorkloadResult]) -> None:
    """No seed violates a check, neither with faults nor after healing."""
    failed = [(result.seed, result.violation) for result in clean_seeds if result.violation is not None]
    assert len(clean_seeds) == CLEAN_SEEDS
    assert failed == []


def test_every_workload_performs_operations(clean_seeds: list[WorkloadResult]) -> None:
    """A workload without operations would test nothing."""
    done = sum((Counter(result.operations) for result in clean_seeds), Counter[tuple[str, str]]())
    for workload in SWARM_WORKLOADS:
        if workload.acts:
            assert done[workload.seed_name, "accepted"] + done[workload.seed_name, "refused"] > 0, (
                workload.name,
                done,
            )


def test_seeds_that_once_failed_are_clean() -> None:
    """The seeds of tests/swarm/seeds.txt, each with the defect that it once found."""
    failed = [
        result for result in run_workload("swarm", named_seeds(), jobs=2) if result.violation is not None
    ]
    assert failed == []


@pytest.mark.parametrize("kind", ["failover", "no-faults"])
def test_the_other_kinds_are_clean(kind: str) -> None:
    assert [run_seed(kind, seed).violation for seed in range(1, 4)] == [None] * 3


def test_links_that_lose_delay_repeat_or_swap_frames_lose_no_message() -> None:
    assert [run_seed("frame-faults", seed).violation for seed in range(201, 204)] == [None] * 3


def test_a_message_that_is_published_when_all_is_repaired_is_waited_for() -> None:
    """The run used to end before the delivery time: the other region did not have the message when backlogs were
    checked."""
    assert run_seed("delayed-delivery", 1002).violation is None


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """The digests of runs are equal in processes with different PYTHONHASHSEED."""
    program = (
        "from tests.swarm.runner import run_seed;"
        "print(*(run_seed('swarm', seed).digest for seed in (1, 2, 3)))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {" ".join(run_seed("swarm", seed).digest for seed in (1, 2, 3)) + "\n"}


def test_a_seed_decides_the_plan_and_nothing_else_does() -> None:
    for kind in KINDS:
        assert draw(kind, 7) == draw(kind, 7)
    assert draw("swarm", 7) != draw("swarm", 8)


def test_topologies_and_faults_of_all_kinds_are_drawn() -> None:
    """300 seeds draw all numbers of regions and clusters, all faults, and both kinds of logs."""
    plans = [draw("swarm", seed) for seed in range(300)]
    assert {len(plan.regions) for plan in plans} == {1, 2, 3, 4, 5}
    assert {len(plan.topology.clusters) for plan in plans} == {1, 2, 3}
    faults = {type(fault).__name__ for plan in plans for fault in plan.faults}
    assert len(faults) == 15, faults
    elsewhere = [plan for plan in plans if any(isinstance(disk, RemoteFaults) for _, disk in plan.disks)]
    assert 60 < len(elsewhere) < 240


def test_a_failing_seed_shrinks_to_a_plan_in_words() -> None:
    """A plan that fails under a mutant of deduplication still violates the same check after shrinking."""
    overrides = overrides_without("source-positions-forgotten")
    outcomes = (run_seed("swarm", seed, overrides=overrides) for seed in range(1, 50))
    outcome = next(one for one in outcomes if one.violation is not None)
    smaller = shrink(outcome, overrides=overrides, runs_max=60, seconds_max=30)
    assert outcome.violation is not None
    assert smaller.violation is not None
    assert smaller.violation.check == outcome.violation.check
    assert len(smaller.plan.faults) <= len(outcome.plan.faults)
    assert smaller.violation.sentence in story_of(smaller)[-1]


def test_what_a_world_left_is_an_ordinary_run_folder(tmp_path: Path) -> None:
    """The run directory contains everything that `geoemu verify` requires."""
    plan = draw("failover", 1)
    outcome = run_plan(replace(plan, break_seconds=5.0, faults=()))
    store_run(outcome, tmp_path / "run")
    folder = open_run_folder(tmp_path / "run")
    assert folder.damages == ()
    assert set(folder.regions) == set(plan.regions)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ended"]
    for log in folder.logs:
        with sqlite3.connect(log.path) as database:
            (entries,) = database.execute("SELECT sum(entry_count) FROM entry_groups").fetchone()
        assert entries == sum(len(one.entries) for one in outcome.stored.logs[log.region])


def test_faults_speak_the_language_of_histories() -> None:
    """A kill and a cut are recorded as facts that the report knows."""
    plan = draw("failover", 1)
    first, second, third = plan.regions
    faults = (Kill(1.0, 0.5, first), Cut(2.0, 0.5, second, third))
    outcome = run_plan(replace(plan, faults=faults, break_seconds=4.0))
    facts = [
        (event.op, event.region, event.other_region) for event in outcome.events if event.outcome == "fact"
    ]
    assert ("kill", first, None) in facts
    assert ("cut", second, third) in facts
    assert ("heal", second, third) in facts
