"""Handles one topic's oldest messages: TTL, backlog quotas (eviction, rejected producers) and trimming."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.policies.lifetime import Quota, QuotaAction, QuotaKind, Quotas, Retention
from emulator.core.topic.retention import EVICT_TO, Backlog, Exceeded, Seen
from emulator.errors import ProtocolError

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.entry_cache import StoredEntry
    from emulator.broker.topic.producer import ConnectedProducer
    from emulator.broker.topic.trimming import Trimmer
    from emulator.storage.contract import Log

logger = logging.getLogger(__name__)

LOOK_ENTRIES = 1_000
LOOK_BYTES = 4_194_304


class KeptTopic(Protocol):
    """The topic, as this module needs it."""

    log: Log
    full_name: str
    closed: bool
    quota_refusal: ProtocolError | None

    @property
    def region(self) -> RegionServices: ...
    @property
    def trimmer(self) -> Trimmer: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def producers(self) -> Mapping[str, ConnectedProducer]: ...
    @property
    def hidden_ids(self) -> IdSet: ...
    @property
    def first_entry_id(self) -> int: ...
    @property
    def readable_end(self) -> int: ...
    @property
    def stored_end(self) -> int: ...

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]: ...


class Backlogs:
    """Of one topic."""

    def __init__(self, topic: KeptTopic) -> None:
        self._topic = topic
        parts = topic.region.environment.components.lifetime
        self._ages = parts.ages()
        self._backlog_bytes = parts.backlog_bytes
        self._exceeded = parts.exceeded
        self._trimming = parts.trimming

    async def _from(self, entry_id: int) -> AsyncIterator[StoredEntry]:
        """Yield readable entries from an id on, until the topic is closed. StorageError."""
        while not self._topic.closed:
            entries = await self._topic.read(entry_id, LOOK_ENTRIES, LOOK_BYTES)
            if not entries:
                return
            for entry in entries:
                yield entry
            entry_id = entries[-1].entry_id + 1

    # TTL: messages that no consumer acknowledged.

    async def expire(self, ttl_ms: int, now_ms: int) -> None:
        """Make each subscription skip messages that are older. StorageError."""
        self._ages.looked(self._topic.stored_end, now_ms)
        for subscription in self._standing():
            first = max(subscription.cursor.mark_delete + 1, self._topic.first_entry_id)
            last = first - 1
            async for entry in self._from(first):
                if not self._ages.is_older(_seen(entry), ttl_ms, now_ms):
                    break
                last = entry.entry_id
            self._pass(subscription, last, f"older than {ttl_ms // 1000} s")

    def _standing(self) -> list[Subscription]:
        return [one for one in self._topic.subscriptions.values() if one.durable and not one.closed]

    def _pass(self, subscription: Subscription, last: int, why: str) -> None:
        """Acknowledge everything up to an id without a consumer. This stays local: the position that other regions
        receive covers only what consumers here acknowledged (L4)."""
        first = subscription.cursor.mark_delete + 1
        if last < first or self._topic.closed or subscription.closed:
            return

        def passing(cursor: Cursor) -> object:
            return cursor.ack_range(cursor.mark_delete + 1, last)

        subscription.move(passing)
        subscription.skipped += last - first + 1
        logger.info(
            "%s: subscription %s skips entries %d to %d: %s",
            self._topic.full_name,
            subscription.name,
            first,
            last,
            why,
        )

    # Quotas.

    async def hold_to(self, quotas: Quotas, now_ms: int) -> None:
        """Evict messages, or reject producers, as long as a backlog is over its quota. StorageError."""
        self._ages.looked(self._topic.stored_end, now_ms)
        over = self._exceeded(quotas, await self._backlog(quotas, now_ms))
        for one in over:
            if one.action is QuotaAction.EVICT:
                await self._evict(one, quotas[one.kind], now_ms)
        self._refuse_producers(over)

    async def _backlog(self, quotas: Quotas, now_ms: int) -> Backlog:
        topic = self._topic
        need = topic.trimmer.need
        size = self._backlog_bytes(
            topic.log.size_bytes, topic.log.first_entry_id, need.entry_id, topic.stored_end
        )
        age_ms = 0
        if QuotaKind.AGE in quotas:
            async for entry in self._from(max(need.entry_id, topic.first_entry_id)):
                if not entry.hidden:
                    age_ms = now_ms - self._ages.published_ms(_seen(entry), now_ms)
                    break
        return Backlog(size, age_ms, need.asker)

    async def _evict(self, over: Exceeded, quota: Quota, now_ms: int) -> None:
        """Evict from subscriptions only: replicators keep their backlog, or regions would differ for ever (L5)."""
        if over.kind is QuotaKind.AGE:
            upto = self._older_than(quota.limit_seconds * 1000, now_ms)
        else:
            upto = self._heavier_than(int(quota.limit_bytes * EVICT_TO))
        standing = self._standing()
        lowest = min((one.cursor.mark_delete + 1 for one in standing), default=self._topic.stored_end)
        last = lowest - 1
        async for entry in self._from(max(lowest, self._topic.first_entry_id)):
            if not upto(entry):
                break
            last = entry.entry_id
        for subscription in standing:
            self._pass(subscription, last, over.sentence)

    def _older_than(self, age_ms: int, now_ms: int) -> Callable[[StoredEntry], bool]:
        return lambda entry: self._ages.is_older(_seen(entry), age_ms, now_ms)

    def _heavier_than(self, limit_bytes: int) -> Callable[[StoredEntry], bool]:
        """Return a predicate for the oldest entries, true until only `limit_bytes` are left before the log's end."""
        topic = self._topic
        lowest = min((one.cursor.mark_delete + 1 for one in self._standing()), default=topic.stored_end)
        left = self._backlog_bytes(topic.log.size_bytes, topic.log.first_entry_id, lowest, topic.stored_end)

        def is_over(entry: StoredEntry) -> bool:
            nonlocal left
            if left <= limit_bytes:
                return False
            left -= len(entry.data)
            return True

        return is_over

    def _refuse_producers(self, over: list[Exceeded]) -> None:
        """Reject producers of clients only. Entries of other regions were acknowledged there. They also carry the
        positions of replicated subscriptions, which may reduce the backlog (L5)."""
        topic = self._topic
        before = topic.quota_refusal
        topic.quota_refusal = next((refusal for one in over if (refusal := one.refusal())), None)
        if topic.quota_refusal is None or topic.closed:
            return
        if before is None:
            logger.warning("topic %s: producers are refused: %s", topic.full_name, topic.quota_refusal)
        for producer in [one for one in topic.producers.values() if one.source_region is None]:
            producer.connection.producers.close(producer)

    # Trimming of acknowledged entries.

    async def truncate(self) -> None:
        """Trim at an administrator's request. StorageError."""
        end = self._topic.stored_end
        for subscription in self._standing():
            self._pass(subscription, end - 1, "the topic was truncated")
        await self._topic.trimmer.trim(end)

    async def trim(self, retention: Retention, now_ms: int) -> None:
        """Trim what the retention policy allows. StorageError."""
        topic = self._topic
        self._pass_markers()
        self._ages.looked(topic.stored_end, now_ms)
        need = topic.trimmer.need.entry_id
        if retention.keeps_nothing:
            await topic.trimmer.trim(need)
            return
        looking = self._trimming(retention, self._ages, now_ms=now_ms, size_bytes=topic.log.size_bytes)
        before = topic.log.first_entry_id
        async for entry in self._from(before):
            if entry.entry_id >= need or not looking.goes(_seen(entry)):
                break
            before = entry.entry_id + 1
        await topic.trimmer.trim(before)

    def _pass_markers(self) -> None:
        """Move subscriptions without consumers past markers, which would otherwise stay in the log (INV-60)."""
        for subscription in self._standing():
            subscription.move(lambda cursor: cursor.ack_hidden(self._topic.hidden_ids))


def _seen(entry: StoredEntry) -> Seen:
    return Seen(entry.entry_id, entry.info.publish_time_ms, len(entry.data))
