"""Looks after topics whose policies let something go: retention, TTL, quotas (docs/components/life.md).

One a region, with one timer that runs only while some topic in memory has such a policy. Topics are looked after one
after the other, so that housekeeping never takes more than a small part of a region.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from emulator.broker.environment import RegionServices
from emulator.broker.metadata.policies import Policies
from emulator.broker.topic.backlogs import Backlogs
from emulator.core.policies.inactivity import INACTIVE_TOPICS, SUBSCRIPTION_EXPIRATION
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, MESSAGE_TTL, RETENTION, QuotaAction, QuotaKind
from emulator.core.policies.topic_policies import TopicPolicies
from emulator.errors import StorageError
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic

logger = logging.getLogger(__name__)

OBEYS = (RETENTION, MESSAGE_TTL, BACKLOG_QUOTAS, INACTIVE_TOPICS, SUBSCRIPTION_EXPIRATION)
"""Policies that this module acts upon (P1)."""


def _lets_go(policies: TopicPolicies) -> bool:
    """Return whether any policy lets something of a topic go."""
    if policies[RETENTION].lets_go or policies[MESSAGE_TTL] or policies[BACKLOG_QUOTAS]:
        return True
    return bool(policies[INACTIVE_TOPICS].delete or policies[SUBSCRIPTION_EXPIRATION])


class TrackedTopic:
    """One topic that is looked after."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.backlogs = Backlogs(topic)
        self.disuse = topic.region.environment.components.disuse(topic)

    @property
    def is_wanted(self) -> bool:
        return _lets_go(self.topic.policies)

    @property
    def has_work(self) -> bool:
        """Whether something is left that a policy may let go of: such a topic stays in memory."""
        topic = self.topic
        if self.topic.policies[INACTIVE_TOPICS].delete:
            return True
        if self.topic.policies[SUBSCRIPTION_EXPIRATION] and topic.subscriptions:
            return True
        holds_entries = topic.log.first_entry_id < topic.log.next_entry_id
        if self.topic.policies[RETENTION].lets_go and holds_entries:
            return True
        return self._lets_go_by_age and any(one.backlog() for one in topic.subscriptions.values())

    @property
    def _lets_go_by_age(self) -> bool:
        """Of messages that nobody acknowledged. A quota by size lets nothing go while nothing is published."""
        by_age = self.topic.policies[BACKLOG_QUOTAS].get(QuotaKind.AGE)
        return bool(self.topic.policies[MESSAGE_TTL]) or (
            by_age is not None and by_age.action is QuotaAction.EVICT and by_age.limit_seconds >= 0
        )

    async def look(self, now_ms: int) -> None:
        """Let go of what may go. StorageError."""
        topic, backlogs = self.topic, self.backlogs
        if ttl_seconds := topic.policies[MESSAGE_TTL]:
            await backlogs.expire(ttl_seconds * 1000, now_ms)
        await self.look_at_quotas(now_ms)
        if topic.policies[RETENTION].lets_go:
            await backlogs.trim(topic.policies[RETENTION], now_ms)
        if minutes := topic.policies[SUBSCRIPTION_EXPIRATION]:
            await self.disuse.expire_subscriptions(minutes, now_ms)

    def is_to_be_deleted(self, now_ms: int) -> bool:
        """Nobody has used it for so long that it goes."""
        policy = self.topic.policies[INACTIVE_TOPICS]
        return policy.delete and self.disuse.is_unused(policy, now_ms) and self.disuse.rest()

    async def look_at_quotas(self, now_ms: int) -> None:
        """StorageError."""
        quotas = self.topic.policies[BACKLOG_QUOTAS]
        if quotas or self.topic.quota_refusal is not None:
            await self.backlogs.hold_to(quotas, now_ms)


class Housekeeper:
    """Of a region."""

    def __init__(
        self, region: RegionServices, delete_unused: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        """`delete_unused`: deletes a topic that nobody uses, by its full name. StorageError."""
        self._region = region
        self._delete_unused = delete_unused
        self._kept: dict[str, TrackedTopic] = {}
        """Every topic in memory."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        self._closed = False

    def follow(self, topic: Topic) -> None:
        """From now on the topic is kept as its policies say."""
        kept = self._kept[topic.full_name] = TrackedTopic(topic)
        topic.before_producers = lambda: self._before_producers(kept)
        self._wake((kept,))

    def policies_changed(self, topic_name: str) -> None:
        """A topic follows other policies."""
        if topic_name in self._kept:
            self._wake((self._kept[topic_name],))

    @staticmethod
    def concerned(policies: Policies, names: Iterable[str]) -> list[str]:
        """Of these topics those that have to be in memory, because a policy may let something of them go."""
        return [name for name in names if _lets_go(policies.of_topic(TopicName.parse(name)))]

    def forget(self, topic: Topic) -> None:
        """It leaves memory."""
        self._kept.pop(topic.full_name, None)

    def has_work(self, topic: Topic) -> bool:
        kept = self._kept.get(topic.full_name)
        return kept is not None and kept.is_wanted and kept.has_work

    async def _before_producers(self, kept: TrackedTopic) -> None:
        """A producer wants to attach: what it is told is so now, and not at the last round."""
        if kept.topic.policies[BACKLOG_QUOTAS] and not kept.topic.closed:
            await kept.look_at_quotas(self._now_ms())

    def _now_ms(self) -> int:
        return self._region.environment.wall_clock_ms()

    # What somebody asks for.

    async def look_at_quotas(self) -> None:
        """Compare the backlog of every topic in memory with its quotas now. StorageError."""
        for kept in list(self._kept.values()):
            if not kept.topic.closed:
                await kept.look_at_quotas(self._now_ms())

    async def trim(self, topic: Topic) -> None:
        """Let go now of what retention lets go. StorageError."""
        kept = self._kept.get(topic.full_name)
        if kept is not None and kept.topic.policies[RETENTION].lets_go:
            await kept.backlogs.trim(kept.topic.policies[RETENTION], self._now_ms())

    async def truncate(self, topic: Topic) -> None:
        """Every subscription passes everything that there is, and it goes. StorageError."""
        kept = self._kept.get(topic.full_name)
        if kept is not None:
            await kept.backlogs.truncate()

    # Rounds.

    def _wake(self, changed: Iterable[TrackedTopic]) -> None:
        """Have a round if one of these wants it."""
        if self._timer is not None or self._looking or self._closed:
            return
        if any(kept.is_wanted or kept.topic.quota_refusal for kept in changed):
            seconds = self._region.config.settings.housekeeping_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_round)

    def _begin_round(self) -> None:
        self._timer, self._looking = None, True
        self._region.spawn(self._round())

    async def _round(self) -> None:
        try:
            for kept in list(self._kept.values()):
                if kept.is_wanted or kept.topic.quota_refusal is not None:
                    await self._look_after(kept)
        finally:  # a round that failed is no reason for there to be no other one
            self._looking = False
            self._wake(self._kept.values())

    async def _look_after(self, kept: TrackedTopic) -> None:
        if kept.topic.closed:
            return
        try:
            await kept.look(self._now_ms())
            if kept.is_to_be_deleted(self._now_ms()):
                logger.info("topic %s is deleted: it is inactive", kept.topic.full_name)
                await self._delete_unused(kept.topic.full_name)
        except StorageError as failure:
            # It may have happened all the same, so what is in memory may be wrong.
            if not kept.topic.closed:
                logger.warning(
                    "topic %s: retention, expiry and inactivity checks failed: %s",
                    kept.topic.full_name,
                    failure,
                )
                kept.topic.failed(failure)
        except Exception as problem:  # any: other topics are looked after all the same
            logger.error(
                "topic %s: retention, expiry and inactivity checks failed",
                kept.topic.full_name,
                exc_info=problem,
            )

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
