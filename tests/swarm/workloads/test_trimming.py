"""`geoemu simulate trimming`: retention removes acknowledged messages. tests/swarm/test_mutants.py tests which defects
the checks detect."""

from __future__ import annotations

import pytest

from emulator.simulation.durable_media import DurableLog
from emulator.simulation.stored_messages import LogView
from tests.swarm.faults import ClockJump, KillClient, PauseClient
from tests.swarm.generator.kinds import draw
from tests.swarm.runner import run_seed
from tests.swarm.workloads import trimming

SEEDS = range(1, 6)


@pytest.mark.long
def test_nothing_that_is_needed_goes_and_the_disks_are_given_back() -> None:
    """Every program reports its result: no check detects a program that is still waiting."""
    for seed in SEEDS:
        outcome = run_seed(trimming.WORKLOAD.name, seed)
        assert outcome.violation is None, (seed, outcome.violation)
        said = [
            operation.outcome
            for operation in outcome.operations
            if operation.workload == trimming.WORKLOAD.seed_name
        ]
        assert said == ["accepted"] * len(outcome.plan.acts), (seed, said)


def test_every_region_trims_at_once_and_no_fault_changes_its_clock() -> None:
    """Every namespace has retention 0, and no fault changes a clock or a program; some programs use two regions."""
    plans = [draw(trimming.WORKLOAD.name, seed) for seed in range(60)]
    for plan in plans:
        assert [(one.retention_minutes, one.retention_megabytes) for one in plan.topology.namespaces] == [
            (0, 0)
        ]
        assert not any(isinstance(fault, ClockJump | KillClient | PauseClient) for fault in plan.faults)
    assert any(len(set(act.places)) > 1 for plan in plans for act in plan.acts)
    assert {fault.op for plan in plans for fault in plan.faults} >= {"kill", "cut"}


def test_checks_remember_what_was_trimmed() -> None:
    """The view of a log keeps trimmed entries that it has read, although the log is read only occasionally."""
    log, view = (
        DurableLog("persistent://public/default/t", 1),
        LogView("us", "persistent://public/default/t", 1),
    )
    for first in range(0, 9, 3):
        log.append_by(1, first, [b"not an entry"] * 3)
        if first:
            log.trim(first - 1)
        view.read_new_entries(log)
    assert log.ids == [5, 6, 7, 8]
    assert view.ids == list(range(9))
    assert [entry_id for entry_id, _ in log.all_entries(4)] == [4, 5, 6, 7, 8]
