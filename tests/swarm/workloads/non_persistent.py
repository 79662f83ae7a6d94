"""Programs that publish to non-persistent topics, with fast and slow consumers in the same and in another region:
what consumers receive was sent and comes once and in order, dropped messages are counted, and nothing is stored.

Each program has a topic of its own (`non_persistent_acts.py`), and records its publishes and deliveries itself. The
disks show whether anything is stored.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from emulator.client import ConsumerType
from emulator.core.flow.meters import Drops
from emulator.core.topic.deduplication import SourceWatermarks
from emulator.model.values import Position
from emulator.storage.contract import Store
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.non_persistent_acts import (
    GIVEN,
    LEFT,
    NAME,
    UNCOUNTED,
    Listener,
    NonPersistentProgram,
)

WORKLOAD = Workload(NAME)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in every region, most of which have consumers in another one, too."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _program(random: Random, plan: Plan) -> NonPersistentProgram:
    seconds, count = plan.break_seconds, random.randint(20, 120)
    region, reading = random.choice(plan.regions), random.choice(plan.regions)
    return NonPersistentProgram(
        round(random.uniform(0.2, seconds * 0.4), 3),
        *(region, reading, count, round(seconds / count * random.uniform(0.3, 0.9), 4), seconds + 1.0),
        tuple(
            _listener(random, place, number)
            for number, place in enumerate((region, region, reading, reading))
        ),
        random.choice((1, 5, 30)),
    )


def _listener(random: Random, place: str, number: int) -> Listener:
    type_ = random.choice(list(ConsumerType))
    return Listener(
        *(place, f"listener-{number}", type_.name),
        1 if type_ is ConsumerType.EXCLUSIVE else random.randint(1, 2),
        random.choice((1, 3, 20, 1000)),
        random.choice((0.0, 0.0, 0.02, 0.2)),
    )


# INV-103


@WORKLOAD.mutant("non-persistent-duplicates-delivered", "INV-103", patch=part("watermarks"))
class _NonPersistentDuplicatesDelivered(SourceWatermarks):
    """A message of a non-persistent topic that another region sends again is delivered twice."""

    def advance(self, source_region: str, position: Position) -> bool:
        super().advance(source_region, position)
        return True


@WORKLOAD.mutant("drops-not-counted", "INV-103", patch=part("drops"))
class _DropsNotCounted(Drops):
    """Dropped messages are not counted."""

    def count(self, messages: int, now_ms: int) -> None:
        return


@WORKLOAD.mutant("non-persistent-state-stored", "INV-103", patch=part("non_persistent_store"))
def _non_persistent_state_stored(store: Store) -> Store:
    """The state of non-persistent topics is stored."""
    return store


WORKLOAD.reports("received-once-in-order", "INV-103", GIVEN, "delivered wrongly")
WORKLOAD.reports(
    "drops-are-counted", "INV-103", UNCOUNTED, "delivered and dropped messages do not add up to those sent"
)
WORKLOAD.reports("nothing-is-stored", "INV-103", LEFT, "stored on a disk")
