"""Worlds in which retention lets go of what was acknowledged: `geoemu simulate trim`. What their judges notice is in
test_ablations.py."""

from __future__ import annotations

from emulator.simulation.draw import draw
from emulator.simulation.faults import ClockJump, KillClient, PauseClient
from emulator.simulation.swarm import run_seed
from emulator.simulation.vocabulary import trimming

SEEDS = range(1, 6)


def test_nothing_that_is_needed_goes_and_the_disks_are_given_back() -> None:
    """Each program says what came of it: one that is still waiting would be judged by nobody."""
    for seed in SEEDS:
        outcome = run_seed(trimming.NAME, seed)
        assert outcome.violation is None, (seed, outcome.violation)
        said = [deed.outcome for deed in outcome.deeds if deed.word == trimming.NAME]
        assert said == ["accepted"] * len(outcome.plan.acts), (seed, said)


def test_every_region_lets_go_at_once_and_its_clock_is_right() -> None:
    """Somebody reads where nobody published, in some of the worlds."""
    plans = [draw(trimming.NAME, seed) for seed in range(60)]
    for plan in plans:
        assert [(one.retention_minutes, one.retention_megabytes) for one in plan.topology.namespaces] == [
            (0, 0)
        ]
        assert not any(isinstance(fault, ClockJump | KillClient | PauseClient) for fault in plan.faults)
    assert any(len(set(act.places)) > 1 for plan in plans for act in plan.acts)
    assert {fault.op for plan in plans for fault in plan.faults} >= {"kill", "cut"}
