"""Takes one safeguard away and shows that the swarm notices.

An ablation gives a world another part than the one that ships, at a seam: a rule or a state machine of the broker
(`emulator.broker.components`), the shell of a topic, a medium. The code itself has no switches, and no name is
patched. A swarm that finds nothing is only worth something if it would have found this.

To add one: the careless part and an `Ablation`, in the file of its theme or beside the word that notices it.
`geoemu simulate --without NAME` runs it by hand.
"""

from __future__ import annotations

from emulator.simulation.overrides import AS_SHIPPED, Seams
from tests.swarm.mutants import deduplication, media, positions, publishing, replication, subscriptions
from tests.swarm.workloads import ASKED_FOR, WORDS

OF_THE_BROKER = (
    *publishing.ABLATIONS,
    *deduplication.ABLATIONS,
    *replication.ABLATIONS,
    *subscriptions.ABLATIONS,
    *positions.ABLATIONS,
    *media.ABLATIONS,
)

ABLATIONS = (*OF_THE_BROKER, *(one for word in (*WORDS, *ASKED_FOR) for one in word.ablations))

BY_NAME = {ablation.name: ablation for ablation in ABLATIONS}


def seams_without(name: str | None) -> Seams:
    """What a world is made of when that ablation is applied; as shipped without a name."""
    return AS_SHIPPED if name is None else BY_NAME[name].break_(AS_SHIPPED)
