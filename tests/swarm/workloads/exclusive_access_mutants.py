"""Access to a topic without the safeguards that the workload `exclusive-access` is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emulator.broker.topic.exclusive_access import TopicAccess
from emulator.broker.topic.topic import Topic
from emulator.core.access import Access, AccessGrant, Claimant, Decision
from tests.swarm.mutant import Mutant, parts, topic

if TYPE_CHECKING:
    from emulator.broker.topic.producer import ConnectedProducer
    from emulator.simulation.overrides import Overrides


class _TellsAtOnce(TopicAccess):
    async def make_durable(self, grant: AccessGrant, why: str) -> None:
        storing = self.store(grant, why)
        storing.add_done_callback(lambda done: done.exception())


class _BeginsTooSoon(TopicAccess):
    async def everything_issued(self) -> None:
        pass


class _LetsThemPublish(TopicAccess):
    def evict(self, producer: ConnectedProducer, why: str) -> None:
        pass


class _BelievesOldEpochs(Access):
    def is_stale(self, claimant: Claimant) -> bool:
        return False


class _PromotesOnce(Access):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rules = replace(self.rules, promotes_once=True)


class _KeepsTheDeadInLine(Access):
    """Their names are free again, so that their next lives can queue too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dead: dict[Claimant, None] = {}

    def left(self, claimant: Claimant) -> list[Decision]:
        if claimant not in self.waiting():
            return super().left(claimant)
        self._dead[claimant] = None
        return []

    def named(self, name: str) -> Claimant | None:
        found = super().named(name)
        if found not in self._dead:
            return found
        living = (one for one in self.waiting() if one not in self._dead)
        return next((one for one in living if one.producer_name == name), None)


class _FirstComeFirstServed(Access):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rules = replace(self.rules, first_come_first_served=True)


def _shell(type_: type[TopicAccess]) -> Callable[[Overrides], Overrides]:
    """A topic whose access is carried out so."""

    class CarelessTopic(Topic):
        access_type = type_

    return topic(CarelessTopic)


keeps_publishing = _shell(_LetsThemPublish)

MUTANTS = (
    Mutant(
        "epoch-notified-before-durable",
        "An owner is notified of its epoch when the grant is issued, not when it is durable.",
        ("INV-26", "INV-25"),
        _shell(_TellsAtOnce),
    ),
    Mutant(
        "grant-before-pending-writes",
        "A grant does not wait for pending writes of the former owner.",
        ("INV-25",),
        _shell(_BeginsTooSoon),
    ),
    Mutant(
        "fenced-producer-publishes",
        "A fenced producer is not disconnected: its messages are stored.",
        ("INV-25", "INV-27"),
        keeps_publishing,
    ),
    Mutant(
        "stale-epoch-in-wait-queue",
        "A producer that lost the topic may wait for it again with its old epoch.",
        ("INV-27",),
        parts(access=_BelievesOldEpochs),
    ),
    Mutant(
        "promotion-not-retried",
        "When a promotion cannot be stored, no other producer is promoted.",
        ("INV-28",),
        parts(access=_PromotesOnce),
    ),
    Mutant(
        "dead-waiter-promoted",
        "A producer that left the wait queue is promoted when its turn comes.",
        ("INV-28", "INV-15"),
        parts(access=_KeepsTheDeadInLine),
    ),
    Mutant(
        "priority-ignored",
        "Producers are promoted in order of arrival, regardless of priority.",
        ("INV-28",),
        parts(access=_FirstComeFirstServed),
    ),
)
