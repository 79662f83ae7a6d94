"""Parts without the safeguards that the workload `partition-growth` is there for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emulator.client import EARLIEST, Client, ClientError, Consumer, TableView
from emulator.client.topic_names import PatternTopics, TopicSource
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch import DispatchLimits, DispatchStrategy, SubscriptionType, strategy_for
from tests.swarm.mutant import Mutant, parts


def _client(type_: type[Client]) -> Any:
    return lambda overrides: replace(overrides, client=type_)


def _begins_with_nothing(index: int, first_entry_id: int, end_entry_id: int) -> bool:
    return False


class _AsksOnce(Client):
    """Reads the number of partitions from the region once, and caches it forever."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._told: dict[str, int] = {}

    async def partitions_of(self, topic: str, *, may_create: bool = False) -> int:
        if topic not in self._told:
            self._told[topic] = await super().partitions_of(topic, may_create=may_create)
        return self._told[topic]


class _WatchesOnce(PatternTopics):
    def connection_lost(self) -> None:
        """As if nothing had happened."""


class _ForgetsToWatch(Client):
    def topics_that_fit(self, pattern: str) -> TopicSource:
        return _WatchesOnce(self, pattern)


class _FitsTheBeginning(Client):
    """A pattern is taken to fit whatever begins as it says."""

    async def subscribe(
        self, topic: str | Sequence[str] | re.Pattern[str], subscription: str, **named: Any
    ) -> Consumer:
        if isinstance(topic, re.Pattern):
            topic = re.compile(f"{topic.pattern}.*")
        return await super().subscribe(topic, subscription, **named)


class _NeverPauses(Client):
    async def subscribe(self, *args: Any, **named: Any) -> Consumer:
        return await super().subscribe(*args, **{**named, "start_paused": False})


class _AsksAhead(Client):
    """Without a queue it asks for the next message while it has one."""

    async def subscribe(self, *args: Any, **named: Any) -> Consumer:
        queue = max(2, named["receiver_queue_size"])
        return await super().subscribe(*args, **{**named, "receiver_queue_size": queue})


class _EndsAtAReconnect(TableView):
    """It follows for as long as its first connection lasts, and says nothing then."""

    async def _follow(self) -> None:
        client = self._reader.client
        try:
            first = await client.service_connection()
            while await client.service_connection() is first:
                self._take(await self._reader.receive())
        except ClientError:
            return
        finally:
            self._read_more.set()


class _TablesEnd(Client):
    async def table_view(self, topic: str, **_: Any) -> TableView:
        view = _EndsAtAReconnect(await self.reader(topic, EARLIEST, inclusive=True, read_compacted=True))
        await view.start()
        return view


def _first_news_only(index: int, known: int) -> bool:
    return known == 0


def _failover_shares(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    shared = type_ is SubscriptionType.FAILOVER
    return strategy_for(SubscriptionType.SHARED if shared else type_, cursor, limits)


def mutants(seed_name: str) -> tuple[Mutant, ...]:
    return (
        Mutant(
            "new-partition-without-subscriptions",
            "A new partition is created without the subscriptions of partition 0.",
            ("INV-5",),
            parts(inherits=_begins_with_nothing),
            seed_name=seed_name,
        ),
        Mutant(
            "growth-ignored-by-client",
            "A client requests the number of partitions only once.",
            ("INV-93",),
            _client(_AsksOnce),
            seed_name=seed_name,
        ),
        Mutant(
            "growth-ignored-by-cluster",
            "A cluster requests the number of partitions from other clusters only once.",
            ("INV-93",),
            parts(is_news=_first_news_only),
            seed_name=seed_name,
        ),
        Mutant(
            "topic-watch-lost-on-reconnect",
            "After a reconnect a client does not watch the list of topics.",
            ("INV-93",),
            _client(_ForgetsToWatch),
            seed_name=seed_name,
        ),
        Mutant(
            "failover-delivers-to-all",
            "All consumers of a Failover subscription receive messages, not the active one alone.",
            ("INV-94",),
            parts(strategy_for=_failover_shares),
            seed_name=seed_name,
        ),
        Mutant(
            "pattern-matches-prefix",
            "A pattern matches every name that it is a prefix of.",
            ("INV-94",),
            _client(_FitsTheBeginning),
            seed_name=seed_name,
        ),
        Mutant(
            "paused-start-ignored",
            "A consumer that starts paused requests messages at once.",
            ("INV-94",),
            _client(_NeverPauses),
            seed_name=seed_name,
        ),
        Mutant(
            "zero-queue-prefetches",
            "A consumer with queue size 0 requests messages in advance.",
            ("INV-94",),
            _client(_AsksAhead),
            seed_name=seed_name,
        ),
        Mutant(
            "table-view-lost-on-reconnect",
            "A table view receives no more updates after a reconnect.",
            ("INV-95",),
            _client(_TablesEnd),
            seed_name=seed_name,
        ),
    )
