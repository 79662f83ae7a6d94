"""Takes one safeguard away and shows that the swarm notices.

A mutant gives a world another part than the one that ships, at a seam: a rule or a state machine of the broker
(`emulator.broker.components`), the shell of a topic, a medium. The code itself has no switches, and no name is
patched. A swarm that finds nothing is only worth something if it would have found this.

To add one: the careless part and an `Mutant`, in the file of its theme or beside the workload that notices it.
`geoemu simulate --without NAME` runs it by hand.
"""

from __future__ import annotations

from emulator.simulation.overrides import AS_SHIPPED, Overrides
from tests.swarm.mutants import deduplication, media, positions, publishing, replication, subscriptions
from tests.swarm.workloads import NAMED_WORKLOADS, SWARM_WORKLOADS

OF_THE_BROKER = (
    *publishing.MUTANTS,
    *deduplication.MUTANTS,
    *replication.MUTANTS,
    *subscriptions.MUTANTS,
    *positions.MUTANTS,
    *media.MUTANTS,
)

MUTANTS = (
    *OF_THE_BROKER,
    *(one for workload in (*SWARM_WORKLOADS, *NAMED_WORKLOADS) for one in workload.mutants),
)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def overrides_without(name: str | None) -> Overrides:
    """What a world is made of when that mutant is applied; as shipped without a name."""
    return AS_SHIPPED if name is None else BY_NAME[name].break_(AS_SHIPPED)
