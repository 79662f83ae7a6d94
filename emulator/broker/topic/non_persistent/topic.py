"""A non-persistent topic: drops and counts messages that consumers cannot receive at once
(docs/components/non-persistent.md).

It is a Topic on a log that keeps only its newest entries, with strategies that dispatch each entry once. After each
group of publishes every subscription dispatches what its consumers' permits allow, and skips the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from emulator.broker.environment import RegionServices
from emulator.broker.topic.new_entries import NewEntries
from emulator.broker.topic.non_persistent.replicator import NonPersistentReplicator
from emulator.broker.topic.non_persistent.store import VolatileLog
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.subscriptions import Subscriptions
from emulator.broker.topic.topic import Topic
from emulator.broker.topic.view import TopicView
from emulator.core.dispatch.dispatcher import at_most_once
from emulator.core.dispatch.types import Read
from emulator.core.flow.meters import Drops
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.replication.link import PeerLink
    from emulator.broker.subscription.subscription import Subscription


class VolatileServices:
    """The region's services as a non-persistent topic uses them: with a volatile store."""

    def __init__(self, region: RegionServices) -> None:
        self._region = region
        self.store = region.environment.components.storage.non_persistent_store(region.store)
        components = region.environment.components.with_replaced(strategy_for=at_most_once)
        self.environment = replace(region.environment, store=self.store, components=components)

    def __getattr__(self, name: str) -> Any:
        """Return the region's own attribute for every other name."""
        return getattr(self._region, name)


class NonPersistentSubscriptions(Subscriptions):
    """Subscriptions of a non-persistent topic, with counters of messages that consumers did not receive."""

    def __init__(self, topic: TopicView) -> None:
        super().__init__(topic)
        self.dropped: dict[str, Drops] = {}
        """Dropped messages by subscription."""

    def remove(self, name: str) -> None:
        super().remove(name)
        self.dropped.pop(name, None)


class NonPersistentTopic(Topic):
    """A topic that stores no messages. Created by `make`."""

    keeps_messages = False
    subscriptions_type = NonPersistentSubscriptions
    replicator_type = NonPersistentReplicator

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.dropped_for: dict[str, Drops] = {}
        """Dropped entries by remote region."""

    @property
    def dropped(self) -> dict[str, Drops]:
        """Dropped messages by subscription."""
        return cast(NonPersistentSubscriptions, self.subscriptions).dropped

    @property
    def first_retained_entry_id(self) -> int:
        """Id of the oldest entry that can still be read."""
        return min(self.reading.cache.start_entry_id, self.log.first_entry_id)

    @classmethod
    async def make(
        cls, region: RegionServices, name: TopicName, ledger_id: int, peers: Mapping[str, PeerLink]
    ) -> Topic:
        """Create a non-persistent topic. `ledger_id` is larger than that of any topic before, so that positions that
        other regions see only grow."""
        services = cast(RegionServices, VolatileServices(region))
        return await cls.load(
            services, name, VolatileLog(str(name), ledger_id), deduplicates=False, peers=peers
        )

    def _notify(self, entries: NewEntries) -> None:
        for subscription in list(self.subscriptions.values()):
            self._dispatch(subscription, entries)
        for replicator in self.replicators.values():
            cast(NonPersistentReplicator, replicator).offer(entries)
        self._count_towards_checkpoint(len(entries))

    def _dispatch(self, subscription: Subscription, entries: Sequence[StoredEntry]) -> None:
        subscription.dispatch_loop.pump()
        wall_ms = self.region.environment.wall_clock_ms()
        for _ in entries:  # a large group takes several rounds; each dispatches at least one entry
            if not isinstance(
                subscription.dispatcher.strategy.next(self.state.readable_end, self.now_ms(), wall_ms), Read
            ):
                break
            subscription.dispatch_loop.pump()
        is_acked, last = subscription.cursor.is_acked, self.state.readable_end - 1
        dropped = sum([entry.messages for entry in entries if not is_acked(entry.entry_id)])
        if dropped:
            drops = self.dropped.setdefault(
                subscription.name, self.region.environment.components.topics.drops()
            )
            drops.count(dropped, self.now_ms())
            subscription.move(lambda cursor: cursor.ack_range(cursor.mark_delete + 1, last))

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)
