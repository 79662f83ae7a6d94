"""Mutants for the workload `partition-growth`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emulator.client import EARLIEST, Client, ClientError, Consumer, TableView
from emulator.client.topic_names import PatternTopics, TopicSource
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import strategy_for
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import DispatchLimits, SubscriptionType
from tests.swarm.mutant import Mutants, part

MUTANTS = Mutants("spread")


def _client(type_: type[Client]) -> Any:
    return lambda overrides: replace(overrides, client=type_)


@MUTANTS.mutant("new-partition-without-subscriptions", "INV-5", patch=part("inherits"))
def _new_partition_without_subscriptions(index: int, first_entry_id: int, end_entry_id: int) -> bool:
    """A new partition is created without the subscriptions of partition 0."""
    return False


@MUTANTS.mutant("growth-ignored-by-client", "INV-93", patch=_client)
class _GrowthIgnoredByClient(Client):
    """A client requests the number of partitions only once."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._reported: dict[str, int] = {}

    async def partitions_of(self, topic: str, *, may_create: bool = False) -> int:
        if topic not in self._reported:
            self._reported[topic] = await super().partitions_of(topic, may_create=may_create)
        return self._reported[topic]


class _WatchesOnce(PatternTopics):
    def connection_lost(self) -> None:
        """Ignore the lost connection: do not watch the topic list again."""


@MUTANTS.mutant("topic-watch-lost-on-reconnect", "INV-93", patch=_client)
class _TopicWatchLostOnReconnect(Client):
    """After a reconnect a client does not watch the list of topics."""

    def pattern_topics(self, pattern: str) -> TopicSource:
        return _WatchesOnce(self, pattern)


@MUTANTS.mutant("pattern-matches-prefix", "INV-94", patch=_client)
class _PatternMatchesPrefix(Client):
    """A pattern matches every name that it is a prefix of."""

    async def subscribe(
        self, topic: str | Sequence[str] | re.Pattern[str], subscription: str, **named: Any
    ) -> Consumer:
        if isinstance(topic, re.Pattern):
            topic = re.compile(f"{topic.pattern}.*")
        return await super().subscribe(topic, subscription, **named)


@MUTANTS.mutant("paused-start-ignored", "INV-94", patch=_client)
class _PausedStartIgnored(Client):
    """A consumer that starts paused requests messages at once."""

    async def subscribe(self, *args: Any, **named: Any) -> Consumer:
        return await super().subscribe(*args, **{**named, "start_paused": False})


@MUTANTS.mutant("zero-queue-prefetches", "INV-94", patch=_client)
class _ZeroQueuePrefetches(Client):
    """A consumer with queue size 0 requests messages in advance."""

    async def subscribe(self, *args: Any, **named: Any) -> Consumer:
        queue = max(2, named["receiver_queue_size"])
        return await super().subscribe(*args, **{**named, "receiver_queue_size": queue})


class _EndsAtAReconnect(TableView):
    """A table view that silently stops updating when its first connection is lost."""

    async def _follow(self) -> None:
        client = self._reader.client
        try:
            first = await client.service_connection()
            while await client.service_connection() is first:
                self._apply(await self._reader.receive())
        except ClientError:
            return
        finally:
            self._progress.set()


@MUTANTS.mutant("table-view-lost-on-reconnect", "INV-95", patch=_client)
class _TableViewLostOnReconnect(Client):
    """A table view receives no more updates after a reconnect."""

    async def table_view(self, topic: str, **_: Any) -> TableView:
        view = _EndsAtAReconnect(await self.reader(topic, EARLIEST, inclusive=True, read_compacted=True))
        await view.start()
        return view


@MUTANTS.mutant("growth-ignored-by-cluster", "INV-93", patch=part("is_news"))
def _growth_ignored_by_cluster(index: int, known: int) -> bool:
    """A cluster requests the number of partitions from other clusters only once."""
    return known == 0


@MUTANTS.mutant("failover-delivers-to-all", "INV-94", patch=part("strategy_for"))
def _failover_delivers_to_all(
    type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits
) -> DispatchStrategy:
    """All consumers of a Failover subscription receive messages, not the active one alone."""
    shared = type_ is SubscriptionType.FAILOVER
    return strategy_for(SubscriptionType.SHARED if shared else type_, cursor, limits)
