"""Mutation tests of the swarm: each mutant removes one safeguard, and the swarm must report a violation.

A mutant replaces one production component through the overrides: a rule or a state machine of the broker
(`emulator.broker.components`), the shell of a topic, a medium. The product code has no switches, and no name is
patched. Passing runs of the swarm are only meaningful if the swarm detects these mutants.

To add one, write the faulty component and a `Mutant`, in the module of its theme or in that of the workload that
detects it. `make swarm SEED=n WITHOUT=NAME` runs one seed with a mutant.
"""

from __future__ import annotations

from emulator.simulation.region import AS_SHIPPED, Overrides
from tests.swarm.mutants import (
    adaptive_snapshots,
    deduplication,
    media,
    positions,
    publishing,
    replication,
    subscriptions,
)
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS

OF_THE_BROKER = (
    *publishing.MUTANTS,
    *deduplication.MUTANTS,
    *replication.MUTANTS,
    *replication.FRAME_FAULT_MUTANTS,
    *subscriptions.MUTANTS,
    *positions.MUTANTS,
    *adaptive_snapshots.MUTANTS,
    *media.MUTANTS,
)

MUTANTS = (
    *OF_THE_BROKER,
    *(one for workload in (*SWARM_WORKLOADS, *NAMED_WORKLOADS) for one in workload.mutants),
)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def overrides_without(name: str | None) -> Overrides:
    """Return the components of a world with the mutant of that name; None: those of the product."""
    return AS_SHIPPED if name is None else BY_NAME[name].patch(AS_SHIPPED)
