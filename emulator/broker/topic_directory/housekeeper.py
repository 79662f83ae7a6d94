"""Applies policies that delete data of a topic, such as retention, TTL and quotas (docs/components/life.md), and
unloads unused topics.

A region has one housekeeper. Its timer runs only while a loaded topic has such a policy or rejects producers. Topics
are processed one after the other, so that housekeeping takes only a small part of a region's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from emulator.broker.environment import RegionServices
from emulator.broker.metadata.policies import Policies
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.core.policies.lifetime import (
    BACKLOG_QUOTAS,
    INACTIVE_TOPICS,
    MESSAGE_TTL,
    RETENTION,
    SUBSCRIPTION_EXPIRATION,
    QuotaAction,
    QuotaKind,
)
from emulator.core.policies.topic_policies import TopicPolicies
from emulator.errors import ProtocolError, StorageError
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic
    from emulator.broker.topic_directory.inactivity import InactivityTracker

logger = logging.getLogger(__name__)

OBEYS = (RETENTION, MESSAGE_TTL, BACKLOG_QUOTAS, INACTIVE_TOPICS, SUBSCRIPTION_EXPIRATION)
"""Policies that this module enforces (PO1)."""

TOPICS_PER_STEP = 50
"""Maximum number of topics that a round visits per iteration of the event loop. A topic from which nothing is deleted
takes up to about 20 µs."""


@lru_cache(maxsize=16)
def _deletes_data(policies: TopicPolicies) -> bool:
    """Return whether any policy may delete data of a topic, or the topic. Computed once for topics that share their
    policies."""
    if policies[RETENTION].is_limited or policies[MESSAGE_TTL] or policies[BACKLOG_QUOTAS]:
        return True
    return bool(policies[INACTIVE_TOPICS].delete or policies[SUBSCRIPTION_EXPIRATION])


class TrackedTopic:
    """A loaded topic and the state of its housekeeping."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._inactivity: InactivityTracker | None = None

    @property
    def inactivity(self) -> InactivityTracker:
        """Created at the first use: few topics have a policy that needs it."""
        if self._inactivity is None:
            self._inactivity = self.topic.region.environment.components.lifetime.inactivity(self.topic)
        return self._inactivity

    @property
    def has_policies(self) -> bool:
        return _deletes_data(self.topic.policies)

    @property
    def needs_rounds(self) -> bool:
        """Whether rounds have to visit the topic."""
        return _deletes_data(self.topic.policies) or self.topic.retention.quota_refusal is not None

    @property
    def has_work(self) -> bool:
        """Whether a policy may delete data of the topic without new publishes; such a topic stays loaded."""
        topic = self.topic
        if self.topic.policies[INACTIVE_TOPICS].delete:
            return True
        if self.topic.policies[SUBSCRIPTION_EXPIRATION] and topic.subscriptions:
            return True
        holds_entries = topic.log.first_entry_id < topic.log.next_entry_id
        if self.topic.policies[RETENTION].is_limited and holds_entries:
            return True
        return self._deletes_by_age and any(one.backlog() for one in topic.subscriptions.values())

    @property
    def _deletes_by_age(self) -> bool:
        """Whether unacknowledged messages expire by age. A quota by size evicts nothing without new publishes."""
        by_age = self.topic.policies[BACKLOG_QUOTAS].get(QuotaKind.AGE)
        return bool(self.topic.policies[MESSAGE_TTL]) or (
            by_age is not None and by_age.action is QuotaAction.EVICT and by_age.limit_seconds >= 0
        )

    async def apply(self, now_ms: int) -> None:
        """Expire messages, enforce quotas, trim the log and expire subscriptions, by the policies. StorageError."""
        topic, retention = self.topic, self.topic.retention
        if ttl_seconds := topic.policies[MESSAGE_TTL]:
            await retention.expire(ttl_seconds * 1000, now_ms)
        await self.check_quotas(now_ms)
        if topic.policies[RETENTION].is_limited:
            await retention.trim(topic.policies[RETENTION], now_ms)
        if minutes := topic.policies[SUBSCRIPTION_EXPIRATION]:
            await self.inactivity.expire_subscriptions(minutes, now_ms)

    def prepare_deletion(self, now_ms: int) -> bool:
        """Return whether a policy deletes the topic now. If the topic has been unused for long enough, this also closes
        its replicators' producers in other regions, which must happen before."""
        policy = self.topic.policies[INACTIVE_TOPICS]
        return (
            policy.delete
            and self.inactivity.check_unused(policy, now_ms)
            and self.inactivity.close_remote_producers()
        )

    async def check_quotas(self, now_ms: int) -> None:
        """Enforce the topic's backlog quotas, or accept producers again after the quotas were removed. StorageError."""
        quotas = self.topic.policies[BACKLOG_QUOTAS]
        if quotas or self.topic.retention.quota_refusal is not None:
            await self.topic.retention.enforce_quotas(quotas, now_ms)

    async def before_producers(self) -> None:
        """Enforce the quotas, or notice that they were removed, before a producer attaches."""
        if not self.topic.closed:
            await self.check_quotas(self.topic.region.environment.wall_clock_ms())


class HousekeptRegion(RegionServices, Protocol):
    """The region, as this module needs it."""

    directory: TopicDirectory


class IdleSweeper:
    """Unloads topics that no request has acquired for `topic_idle_ms`, and that have no clients, no replicators of
    other regions and no pending work. Checks all loaded topics twice in that time, until it is closed."""

    def __init__(self, region: HousekeptRegion) -> None:
        self._region = region
        self._idle_seconds = region.config.settings.topic_idle_ms / 1000
        """Seconds that an unused topic stays loaded; 0: it is never unloaded."""
        self._closed = False

    def start(self) -> None:
        if self._idle_seconds > 0:
            asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._sweep)

    def close(self) -> None:
        self._closed = True

    def _sweep(self) -> None:
        if self._closed:
            return
        try:
            for name, topic in list(self._region.directory.serving.items()):
                if self._is_idle(topic):
                    self._region.spawn(self._unload(name))
        finally:
            self.start()

    def _is_idle(self, topic: Topic) -> bool:
        latest = asyncio.get_running_loop().time() - self._idle_seconds
        return self._region.directory.is_unused_since(topic, latest)

    async def _unload(self, name: str) -> None:
        try:
            await self._region.directory.unload(name, "it is inactive", only_if=self._is_idle)
        except StorageError as failure:
            logger.warning("topic %s is not unloaded: %s", name, failure)


class Housekeeper:
    """The housekeeper of one region: runs the rounds over its loaded topics."""

    def __init__(self, region: HousekeptRegion) -> None:
        self._region = region
        self.idle = IdleSweeper(region)
        self._tracked: dict[str, TrackedTopic] = {}
        """Loaded topics by full name."""
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._closed = False

    def follow(self, topic: Topic) -> None:
        """Apply the topic's policies from now on."""
        tracked = self._tracked[topic.full_name] = TrackedTopic(topic)
        topic.retention.before_producers = tracked.before_producers
        if tracked.needs_rounds:
            self._wake()

    def policies_changed(self, topic_name: str) -> None:
        """Schedule a round if the changed policies of a topic require it."""
        if topic_name in self._tracked and self._tracked[topic_name].needs_rounds:
            self._wake()

    @staticmethod
    def concerned(policies: Policies, names: Iterable[str]) -> list[str]:
        """Return the topics among `names` that must be loaded because a policy may delete data of them."""
        return [name for name in names if _deletes_data(policies.of_topic(TopicName.parse(name)))]

    def forget(self, topic: Topic) -> None:
        """Stop applying policies to a topic that is unloaded."""
        self._tracked.pop(topic.full_name, None)

    def has_work(self, topic: Topic) -> bool:
        tracked = self._tracked.get(topic.full_name)
        return tracked is not None and tracked.has_policies and tracked.has_work

    def _now_ms(self) -> int:
        return self._region.environment.wall_clock_ms()

    # Requests.

    async def check_quotas(self) -> None:
        """Enforce the backlog quotas of every loaded topic now. StorageError."""
        for tracked in list(self._tracked.values()):
            if not tracked.topic.closed:
                await tracked.check_quotas(self._now_ms())

    async def trim(self, topic: Topic) -> None:
        """Trim a topic's log now, as far as its retention policy allows. StorageError."""
        tracked = self._tracked.get(topic.full_name)
        if tracked is not None and tracked.topic.policies[RETENTION].is_limited:
            await tracked.topic.retention.trim(tracked.topic.policies[RETENTION], self._now_ms())

    async def truncate(self, topic: Topic) -> None:
        """Move every durable subscription to the end of the log, and trim the entries that no other component needs.
        StorageError."""
        tracked = self._tracked.get(topic.full_name)
        if tracked is not None:
            await tracked.topic.retention.truncate()

    # Rounds.

    def _wake(self) -> None:
        """Schedule a round, unless one is scheduled or running."""
        if self._timer is None and not self._running and not self._closed:
            seconds = self._region.config.settings.housekeeping_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_round)

    def _begin_round(self) -> None:
        self._timer, self._running = None, True
        self._region.spawn(self._round())

    async def _round(self) -> None:
        try:
            for number, tracked in enumerate(list(self._tracked.values()), start=1):
                if tracked.needs_rounds:
                    await self._apply_to(tracked)
                if number % TOPICS_PER_STEP == 0:
                    await asyncio.sleep(0)
        finally:  # rounds continue after a failed one
            self._running = False
            if any(tracked.needs_rounds for tracked in self._tracked.values()):
                self._wake()

    async def _apply_to(self, tracked: TrackedTopic) -> None:
        if tracked.topic.closed:
            return
        try:
            await tracked.apply(self._now_ms())
            if tracked.prepare_deletion(self._now_ms()):
                logger.info("topic %s is deleted: it is inactive", tracked.topic.full_name)
                with contextlib.suppress(ProtocolError):  # it is in use again, or does not exist any more
                    await self._region.directory.delete(tracked.topic.full_name, force=False, for_good=False)
        except StorageError as failure:
            # A failed write may still have been stored, so the state in memory may be wrong.
            if not tracked.topic.closed:
                logger.warning(
                    "topic %s: retention, expiry and inactivity checks failed: %s",
                    tracked.topic.full_name,
                    failure,
                )
                tracked.topic.failed(failure)
        except Exception as problem:  # any: an error must not keep the other topics from being processed
            logger.error(
                "topic %s: retention, expiry and inactivity checks failed",
                tracked.topic.full_name,
                exc_info=problem,
            )

    def close(self) -> None:
        self._closed = True
        self.idle.close()
        if self._timer is not None:
            self._timer.cancel()
