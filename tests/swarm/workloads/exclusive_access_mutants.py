"""Mutants of exclusive access to a topic, for the workload `exclusive-access`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emulator.broker.topic.exclusive_access import TopicAccess
from emulator.broker.topic.topic import Topic
from emulator.core.access.machine import Access
from emulator.core.access.types import AccessGrant, Claimant, Decision
from tests.swarm.mutant import Mutants, part, topic

if TYPE_CHECKING:
    from emulator.broker.topic.producer import ConnectedProducer
    from emulator.simulation.region import Overrides


MUTANTS = Mutants()


def _shell(type_: type[TopicAccess]) -> Callable[[Overrides], Overrides]:
    """Return a patch: topics with access of this type."""

    class CarelessTopic(Topic):
        access_type = type_

    return topic(CarelessTopic)


@MUTANTS.mutant("epoch-notified-before-durable", "INV-26", "INV-25", patch=_shell)
class _EpochNotifiedBeforeDurable(TopicAccess):
    """An owner is notified of its epoch when the grant is issued, not when it is durable."""

    async def make_durable(self, grant: AccessGrant, why: str) -> None:
        storing = self.store(grant, why)
        storing.add_done_callback(lambda done: done.exception())


@MUTANTS.mutant("grant-before-pending-writes", "INV-25", patch=_shell)
class _GrantBeforePendingWrites(TopicAccess):
    """A grant does not wait for pending writes of the former owner."""

    async def wait_for_issued_sends(self) -> None:
        pass


class _LetsThemPublish(TopicAccess):
    def evict(self, producer: ConnectedProducer, why: str) -> None:
        pass


@MUTANTS.mutant("stale-epoch-in-wait-queue", "INV-27", patch=part("access"))
class _StaleEpochInWaitQueue(Access):
    """A producer that lost the topic may wait for it again with its old epoch."""

    def is_stale(self, claimant: Claimant) -> bool:
        return False


@MUTANTS.mutant("promotion-not-retried", "INV-28", patch=part("access"))
class _PromotionNotRetried(Access):
    """When a promotion cannot be stored, no other producer is promoted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rules = replace(self.rules, promotes_once=True)


@MUTANTS.mutant("dead-waiter-promoted", "INV-28", "INV-15", patch=part("access"))
class _DeadWaiterPromoted(Access):
    """A producer that left the wait queue is promoted when its turn comes."""

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


@MUTANTS.mutant("priority-ignored", "INV-28", patch=part("access"))
class _PriorityIgnored(Access):
    """Producers are promoted in order of arrival, regardless of priority."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rules = replace(self.rules, first_come_first_served=True)


keeps_publishing = _shell(_LetsThemPublish)

MUTANTS.mutant(
    "fenced-producer-publishes",
    "INV-25",
    "INV-27",
    safeguard="A fenced producer is not disconnected: its messages are stored.",
)(keeps_publishing)
