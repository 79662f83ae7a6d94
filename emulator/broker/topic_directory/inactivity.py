"""Detection of inactive topics and subscriptions, which policies delete after a time (docs/components/life.md, L7)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sized
from typing import Protocol

from emulator.core.access.machine import Access
from emulator.core.cursor.cursor import Cursor
from emulator.core.policies.lifetime import MS_PER_MINUTE, DeleteMode, Inactivity

logger = logging.getLogger(__name__)


class UsedSubscription(Protocol):
    name: str
    durable: bool
    closed: bool

    @property
    def consumers(self) -> Sized: ...
    @property
    def cursor(self) -> Cursor: ...

    def backlog(self) -> int: ...
    async def delete(self) -> None: ...


class UsedProducer(Protocol):
    @property
    def source_region(self) -> str | None: ...


class UsedReplicator(Protocol):
    @property
    def backlog(self) -> int: ...

    def rest(self) -> None: ...
    def wake(self) -> None: ...


class UsedAccess(Protocol):
    @property
    def machine(self) -> Access: ...


class UsedTopic(Protocol):
    """The topic, as the inactivity tracker sees it."""

    full_name: str
    closed: bool

    @property
    def access(self) -> UsedAccess: ...
    @property
    def subscriptions(self) -> Mapping[str, UsedSubscription]: ...
    @property
    def producers(self) -> Mapping[str, UsedProducer]: ...
    @property
    def replicators(self) -> Mapping[str, UsedReplicator]: ...


class InactivityTracker:
    """The inactivity of one loaded topic and of its subscriptions. The times count from the first check after loading,
    because they are not stored."""

    def __init__(self, topic: UsedTopic) -> None:
        self._topic = topic
        self._topic_since_ms: int | None = None
        self._subscriptions_since_ms: dict[UsedSubscription, int] = {}

    # Subscriptions.

    async def expire_subscriptions(self, minutes: int, now_ms: int) -> None:
        """Delete the durable subscriptions, replicated ones excepted, that had no consumer for `minutes`.
        StorageError."""
        unused = [one for one in self._topic.subscriptions.values() if _may_expire(one)]
        since = {one: self._subscriptions_since_ms.get(one, now_ms) for one in unused}
        self._subscriptions_since_ms = since
        for subscription in unused:
            if now_ms - since[subscription] < minutes * MS_PER_MINUTE or not _may_expire(subscription):
                continue
            logger.info(
                "%s: subscription %s is deleted: it had no consumer for %d minutes",
                self._topic.full_name,
                subscription.name,
                minutes,
            )
            await subscription.delete()

    # The topic.

    def check_unused(self, policy: Inactivity, now_ms: int) -> bool:
        """Return whether the topic has been unused for as long as the policy requires. Each check records the begin of
        the unused time; if the topic is in use, it ends that time and wakes the replicators."""
        if not self._is_idle(policy.mode):
            self._topic_since_ms = None
            for replicator in self._topic.replicators.values():
                replicator.wake()
            return False
        if self._topic_since_ms is None:
            self._topic_since_ms = now_ms
        return now_ms - self._topic_since_ms >= policy.seconds * 1000

    def _is_idle(self, mode: DeleteMode) -> bool:
        """Whether no client uses the topic, no other region lacks any of its entries, and, depending on the mode, it
        has no subscription, or none with a consumer, a backlog or replication."""
        topic = self._topic
        if topic.closed or topic.access.machine.is_in_use:
            return False
        if any(producer.source_region is None for producer in topic.producers.values()):
            return False
        if any(replicator.backlog for replicator in topic.replicators.values()):
            return False
        subscriptions = topic.subscriptions.values()
        if mode is DeleteMode.NO_SUBSCRIPTIONS:
            return not subscriptions
        return not any(one.consumers or one.cursor.replicated or one.backlog() for one in subscriptions)

    def close_remote_producers(self) -> bool:
        """Close the replicators' producers in other regions, so that those may delete the topic as well. Return whether
        the other regions have closed their producers here, so that this topic may be deleted."""
        for replicator in self._topic.replicators.values():
            replicator.rest()
        return not self._topic.producers


def _may_expire(subscription: UsedSubscription) -> bool:
    """Whether a durable subscription has no consumer and may expire. As upstream, a replicated one may not: its
    consumers may be in another region."""
    return (
        subscription.durable
        and not subscription.closed
        and not subscription.consumers
        and not subscription.cursor.replicated
    )
