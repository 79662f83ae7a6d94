"""Handles one topic's oldest messages: TTL, backlog quotas (eviction, rejected producers) and trimming."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from emulator.broker.topic.view import TopicView
from emulator.core.cursor.cursor import Cursor
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, Quota, QuotaAction, QuotaKind, Quotas, Retention
from emulator.core.topic.retention import (
    EVICT_TO,
    AgedEntry,
    Ages,
    Backlog,
    Exceeded,
    HoldSource,
    LogHold,
    LogHolds,
)
from emulator.errors import ProtocolError

if TYPE_CHECKING:
    from emulator.broker.replication.replicator import Replicator
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.publishing import TopicPublishing
    from emulator.broker.topic.stored_entry import StoredEntry

logger = logging.getLogger(__name__)

READ_ENTRIES = 1_000
READ_BYTES = 4_194_304


async def _do_nothing() -> None:
    """Default of `before_producers`."""


class Trimmer:
    """Trims the oldest entries of the log that no cursor, replicator, other user or restart needs.

        first needed id ─▶ cursors and progress durable ─▶ checkpoint durable ─▶ trim ─▶ cursors moved, parts deleted

    A topic's state (each producer's last sequence id, each region's last position) is computed from the log. So an
    entry is trimmed only when a durable checkpoint includes it (L2). The first needed id is computed again after
    cursors and checkpoint are durable: meanwhile a seek or a new subscription may have lowered it.
    """

    def __init__(
        self,
        topic: TopicView,
        subscriptions: Mapping[str, Subscription],
        replicators: Mapping[str, Replicator],
        others: Callable[[], Mapping[str, HoldSource]] = dict,
    ) -> None:
        """`others`: returns the other users of the log, by kind. Every feature that reads the log later must be one of
        them."""
        self._topic = topic
        self.subscriptions = subscriptions
        self._replicators = replicators
        self._others = others
        self._trim_done: asyncio.Future[None] | None = None
        self._holds: LogHolds | None = None

    @property
    def holds(self) -> LogHolds:
        """Users of the log, each with the first entry that it needs. Created at the first use."""
        if self._holds is None:
            own = {"cursors": self._cursor_holds, "replicators": self._replicator_holds}
            self._holds = LogHolds({**own, **self._others()})
        return self._holds

    def _cursor_holds(self) -> Iterable[LogHold]:
        """Yield the holds of durable cursors. Non-durable ones hold nothing, as upstream: their readers miss trimmed
        entries."""
        for name, subscription in self.subscriptions.items():
            if subscription.durable:
                yield LogHold(subscription.cursor.mark_delete + 1, f"subscription {name}")

    def _replicator_holds(self) -> Iterable[LogHold]:
        for remote, replicator in self._replicators.items():
            yield LogHold(replicator.progress.confirmed + 1, f"the replicator to {remote}")

    @property
    def first_hold(self) -> LogHold:
        """The hold with the lowest entry id."""
        return self.holds.first(self._topic.state.stored_end)

    async def trim(self, before_entry_id: int) -> None:
        """Trim entries below an id that are not needed, unless a trim is in progress. StorageError when that fails; the
        entries may be trimmed nevertheless."""
        if self._trim_done is not None:
            return
        self._trim_done = asyncio.get_running_loop().create_future()
        try:
            await self._trim(min(before_entry_id, self.first_hold.entry_id))
        finally:
            self._trim_done.set_result(None)
            self._trim_done = None

    async def _trim(self, before: int) -> None:
        topic = self._topic
        if before <= topic.log.first_entry_id:
            return
        await asyncio.gather(
            *[subscription.flush() for subscription in self.subscriptions.values()],
            *[replicator.flush() for replicator in self._replicators.values()],
        )
        checkpointed = await topic.checkpoints.write_durably()
        before = min(before, checkpointed, self.first_hold.entry_id)
        if topic.closed or before <= topic.log.first_entry_id:
            return
        topic.reading.floor = before
        await topic.log.trim(before)
        logger.info("%s: entries below %d are removed", topic.full_name, topic.log.first_entry_id)
        if not topic.closed:
            self._pass_trimmed()
            topic.checkpoints.forget_parts_below(topic.log.first_entry_id)

    def _pass_trimmed(self) -> None:
        """Move cursors that hold nothing, those of non-durable subscriptions, past the trimmed entries."""
        last = self._topic.log.first_entry_id - 1

        def skip(cursor: Cursor) -> bool:
            return cursor.ack_range(cursor.mark_delete + 1, last)

        for subscription in list(self.subscriptions.values()):
            if subscription.cursor.mark_delete < last:
                subscription.move(skip)

    async def settled(self) -> None:
        """After `close`: wait until no trim is under way."""
        if self._trim_done is not None:
            await asyncio.wait([self._trim_done])


class TopicRetention:
    """Applies TTL, quotas and retention to one topic, which owns this object. Called by the region's housekeeper."""

    def __init__(self, topic: TopicView, publishing: TopicPublishing, trimmer: Trimmer) -> None:
        self._topic = topic
        self._publishing = publishing
        self._subscriptions = trimmer.subscriptions
        self.trimmer = trimmer
        self.quota_refusal: ProtocolError | None = None
        """The error that clients' producers receive because a backlog is over its quota; None: they are accepted."""
        self.before_producers: Callable[[], Coroutine[Any, Any, None]] = _do_nothing
        """Awaited before a client's producer attaches; updates `quota_refusal`."""
        components = topic.region.environment.components.lifetime
        self._new_ages = components.ages
        self._kept_ages: Ages | None = None
        self._backlog_bytes = components.backlog_bytes
        self._exceeded = components.exceeded
        self._trimming = components.trimming

    @property
    def _ages(self) -> Ages:
        """The ages of the entries. Created at the first use: few topics have a policy that needs them."""
        if self._kept_ages is None:
            self._kept_ages = self._new_ages()
        return self._kept_ages

    @property
    def has_quotas(self) -> bool:
        """Whether `before_producers` has to be awaited."""
        return self.quota_refusal is not None or bool(self._topic.policies[BACKLOG_QUOTAS])

    async def _entries_from(self, entry_id: int) -> AsyncIterator[StoredEntry]:
        """Yield readable entries from an id on, until their end or until the topic is closed. StorageError."""
        while not self._topic.closed:
            entries = await self._topic.reading.read(entry_id, READ_ENTRIES, READ_BYTES)
            if not entries:
                return
            for entry in entries:
                yield entry
            entry_id = entries[-1].entry_id + 1

    # TTL: messages that no consumer acknowledged.

    async def expire(self, ttl_ms: int, now_ms: int) -> None:
        """Make each durable subscription skip its oldest entries, up to the first one that is younger than `ttl_ms`.
        StorageError."""
        self._ages.looked(self._topic.state.stored_end, now_ms)
        for subscription in self._durable_subscriptions():
            first = max(subscription.cursor.mark_delete + 1, self._topic.reading.first_entry_id)
            last = first - 1
            async for entry in self._entries_from(first):
                if not self._ages.is_older(_aged_entry(entry), ttl_ms, now_ms):
                    break
                last = entry.entry_id
            self._skip_upto(subscription, last, f"older than {ttl_ms // 1000} s")

    def _durable_subscriptions(self) -> list[Subscription]:
        return [one for one in self._subscriptions.values() if one.durable and not one.closed]

    def _skip_upto(self, subscription: Subscription, last: int, why: str) -> None:
        """Acknowledge all entries up to an id without a consumer. Other regions do not receive this position: theirs
        covers only what consumers here acknowledged (L4)."""
        first = subscription.cursor.mark_delete + 1
        if last < first or self._topic.closed or subscription.closed:
            return

        def skip(cursor: Cursor) -> object:
            return cursor.ack_range(cursor.mark_delete + 1, last)

        subscription.move(skip)
        self._topic.subscriptions.skipped(subscription.name)
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

    async def enforce_quotas(self, quotas: Quotas, now_ms: int) -> None:
        """Evict messages, or reject clients' producers, if a backlog is over its quota; otherwise accept producers.
        StorageError."""
        self._ages.looked(self._topic.state.stored_end, now_ms)
        exceeded = self._exceeded(quotas, await self._backlog(quotas, now_ms))
        for one in exceeded:
            if one.action is QuotaAction.EVICT:
                await self._evict(one, quotas[one.kind], now_ms)
        self._reject_producers(exceeded)

    async def _backlog(self, quotas: Quotas, now_ms: int) -> Backlog:
        topic = self._topic
        hold = self.trimmer.first_hold
        size = self._backlog_bytes(
            topic.log.size_bytes, topic.log.first_entry_id, hold.entry_id, topic.state.stored_end
        )
        age_ms = 0
        if QuotaKind.AGE in quotas:
            async for entry in self._entries_from(max(hold.entry_id, topic.reading.first_entry_id)):
                if not entry.hidden:
                    age_ms = now_ms - self._ages.published_ms(_aged_entry(entry), now_ms)
                    break
        return Backlog(size, age_ms, hold.asker)

    async def _evict(self, exceeded: Exceeded, quota: Quota, now_ms: int) -> None:
        """Evict messages from subscriptions only: replicators keep their backlog, otherwise regions would differ for
        ever (L5)."""
        if exceeded.kind is QuotaKind.AGE:
            is_evicted = self._older_than(quota.limit_seconds * 1000, now_ms)
        else:
            is_evicted = self._until_backlog_bytes(int(quota.limit_bytes * EVICT_TO))
        durable = self._durable_subscriptions()
        lowest = min((one.cursor.mark_delete + 1 for one in durable), default=self._topic.state.stored_end)
        last = lowest - 1
        async for entry in self._entries_from(max(lowest, self._topic.reading.first_entry_id)):
            if not is_evicted(entry):
                break
            last = entry.entry_id
        for subscription in durable:
            self._skip_upto(subscription, last, exceeded.sentence)

    def _older_than(self, age_ms: int, now_ms: int) -> Callable[[StoredEntry], bool]:
        return lambda entry: self._ages.is_older(_aged_entry(entry), age_ms, now_ms)

    def _until_backlog_bytes(self, limit_bytes: int) -> Callable[[StoredEntry], bool]:
        """Return a predicate for consecutive entries, the oldest first: true until the entries after them have about
        `limit_bytes`. It counts the entries that it is called with."""
        topic = self._topic
        lowest = min(
            (one.cursor.mark_delete + 1 for one in self._durable_subscriptions()),
            default=topic.state.stored_end,
        )
        remaining_bytes = self._backlog_bytes(
            topic.log.size_bytes, topic.log.first_entry_id, lowest, topic.state.stored_end
        )

        def is_evicted(entry: StoredEntry) -> bool:
            nonlocal remaining_bytes
            if remaining_bytes <= limit_bytes:
                return False
            remaining_bytes -= len(entry.data)
            return True

        return is_evicted

    def _reject_producers(self, exceeded: list[Exceeded]) -> None:
        """Close and reject clients' producers if one of the exceeded quotas requires it; otherwise accept them again.
        Replicators of other regions are exempt: their entries were acknowledged there, and carry positions of
        replicated subscriptions, which may reduce the backlog (L5)."""
        topic = self._topic
        before = self.quota_refusal
        self.quota_refusal = next((refusal for one in exceeded if (refusal := one.refusal())), None)
        if self.quota_refusal is None or topic.closed:
            return
        if before is None:
            logger.warning("topic %s: producers are refused: %s", topic.full_name, self.quota_refusal)
        for producer in [one for one in self._publishing.producers.values() if one.is_limited]:
            producer.connection.producers.close(producer)

    # Trimming of acknowledged entries.

    async def truncate(self) -> None:
        """Acknowledge all entries for the durable subscriptions, at an administrator's request, and trim those that no
        other component needs. StorageError."""
        end = self._topic.state.stored_end
        for subscription in self._durable_subscriptions():
            self._skip_upto(subscription, end - 1, "the topic was truncated")
        await self.trimmer.trim(end)

    async def trim(self, retention: Retention, now_ms: int) -> None:
        """Trim the oldest entries that are not needed and that the retention policy does not keep. StorageError."""
        topic = self._topic
        self._pass_markers()
        self._ages.looked(topic.state.stored_end, now_ms)
        needed_from = self.trimmer.first_hold.entry_id
        if retention.keeps_nothing:
            await self.trimmer.trim(needed_from)
            return
        trimming = self._trimming(retention, self._ages, now_ms=now_ms, size_bytes=topic.log.size_bytes)
        before = topic.log.first_entry_id
        async for entry in self._entries_from(before):
            if entry.entry_id >= needed_from or not trimming.goes(_aged_entry(entry)):
                break
            before = entry.entry_id + 1
        await self.trimmer.trim(before)

    def _pass_markers(self) -> None:
        """Move durable cursors past markers, which would otherwise stay in the log while no consumer is connected
        (INV-60)."""
        for subscription in self._durable_subscriptions():
            subscription.pass_markers()


def _aged_entry(entry: StoredEntry) -> AgedEntry:
    return AgedEntry(entry.entry_id, entry.info.publish_time_ms, len(entry.data))
