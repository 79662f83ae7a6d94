"""The subscriptions of one topic: creates, finds and removes them, and limits their dispatch."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from emulator.broker.subscription.cursor_store import StoredCursor
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.view import TopicView
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.types import DispatchLimits
from emulator.core.flow.rate_limit import FairQueue, RateLimit, Throttle
from emulator.core.policies.consuming import (
    DELAYED_DELIVERY,
    TICK_MS,
    UNACKED_PER_CONSUMER,
    UNACKED_PER_SUBSCRIPTION,
    Delays,
)
from emulator.core.policies.limits import (
    DISPATCH_RATE,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    SUBSCRIPTION_DISPATCH_RATE,
)
from emulator.core.policies.replicated_subscriptions import POLICIES as REPLICATION
from emulator.core.policies.replicated_subscriptions import REPLICATE_SUBSCRIPTION_STATE
from emulator.core.policies.topic_policies import DEFAULTS, TopicPolicies
from emulator.core.topic.limits import SubscribeRateLimiter
from emulator.errors import ProtocolError, ServerError
from emulator.model.reasons import Cause, Reason
from emulator.model.stored_keys import CursorKey

if TYPE_CHECKING:
    from emulator.broker.subscription.individual_acks import TopicIndividualAcks
    from emulator.broker.subscription.replicated import ReplicatedSubscriptions
    from emulator.broker.topic.stored_entry import StoredEntry

DISPATCH: Final = (DELAYED_DELIVERY, UNACKED_PER_CONSUMER, UNACKED_PER_SUBSCRIPTION)
SUBSCRIPTION_RATES: Final = (SUBSCRIPTION_DISPATCH_RATE, DISPATCH_RATES_BY_SUBSCRIPTION)
OBEYS = (*DISPATCH, *SUBSCRIPTION_RATES, DISPATCH_RATE, REPLICATE_SUBSCRIPTION_STATE)
"""Policies that this module acts upon (PO1)."""

UNACKED_OF_SUBSCRIPTION_MAX: Final = 200_000
"""Maximum number of unacknowledged messages of a subscription without a policy: Pulsar's default."""
_UNSET: Final = Delays(active=True, tick_ms=TICK_MS, delay_ms_max=0)


class Subscriptions(dict[str, Subscription]):
    """Subscriptions of one topic, by name."""

    def __init__(self, topic: TopicView) -> None:
        super().__init__()
        self._topic = topic
        self._components = topic.region.environment.components
        self.replicated: ReplicatedSubscriptions | None = None
        """Replicated subscriptions (PIP-33); None until the topic is replicated for the first time since it was
        loaded."""
        settings = topic.region.config.settings
        self.limits = DispatchLimits(
            _limit_of(None, settings.max_unacked_messages_per_consumer),
            settings.failover_delay_ms,
            UNACKED_OF_SUBSCRIPTION_MAX,
            partition_index=topic.name.partition_index,
        )
        self.throttle: Throttle | None = None
        """Rate limit of all consumers of the topic together; None: no limit."""
        self._fair_queue: FairQueue | None = None
        self._subscribe_limiter: SubscribeRateLimiter | None = None

    @property
    def fair_queue(self) -> FairQueue:
        """Subscriptions that wait for the topic's dispatch rate. Created at the first use, because few topics have
        one."""
        if self._fair_queue is None:
            self._fair_queue = FairQueue()
        return self._fair_queue

    @property
    def subscribe_limiter(self) -> SubscribeRateLimiter:
        """Limits how often each consumer subscribes. Created at the first use."""
        if self._subscribe_limiter is None:
            self._subscribe_limiter = SubscribeRateLimiter()
        return self._subscribe_limiter

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> None:
        """Apply changed policies; `old` is None for a topic that was just loaded, which has no subscriptions and the
        default rate."""
        if new.differs(old, *DISPATCH):
            self._limit_dispatch(new)
        if new.differs(DEFAULTS if old is None else old, DISPATCH_RATE):
            now_ms = asyncio.get_running_loop().time() * 1000
            publish_rate = self._topic.metrics.publish_rate
            self.throttle = self._components.topics.throttle_of(new[DISPATCH_RATE], now_ms, publish_rate)
            for subscription in list(self.values()):
                subscription.dispatch_loop.pump()
        if old is None:
            return
        if new.differs(old, *REPLICATION):
            self._replication_changed()
        if new.differs(old, *SUBSCRIPTION_RATES):
            for subscription in self.values():
                subscription.dispatch_loop.set_rate(self.rate_of(subscription.name))

    def _limit_dispatch(self, policies: TopicPolicies) -> None:
        delays = policies[DELAYED_DELIVERY] or _UNSET
        of_region = self._topic.region.config.settings.max_unacked_messages_per_consumer
        limits = self.limits
        limits.delays, limits.tick_ms = delays.active, delays.tick_ms
        limits.unacked_messages_per_consumer_max = _limit_of(policies[UNACKED_PER_CONSUMER], of_region)
        limits.unacked_messages_max = _limit_of(
            policies[UNACKED_PER_SUBSCRIPTION], UNACKED_OF_SUBSCRIPTION_MAX
        )
        for subscription in self.values():
            subscription.dispatch_loop.limits_changed()

    def _replication_changed(self) -> None:
        if self.replicated is not None:
            self.replicated.policies_changed()
        for subscription in list(self.values()):
            self._replicate_by_default(subscription)

    def _replicate_by_default(self, subscription: Subscription) -> None:
        """Replicate a subscription if policies require that all are: not one whose replication an administrator
        disabled, nor one that is not durable. The subscription of the metadata event topic belongs to the region."""
        settings, cursor = self._topic.region.config.settings, subscription.cursor
        if (
            self._topic.policies.or_setting(REPLICATE_SUBSCRIPTION_STATE, settings)
            and self.are_replicable
            and self._topic.keeps_messages
            and subscription.durable
            and not (cursor.replicated or cursor.replication_disabled or subscription.closed)
            and self._topic.full_name != settings.configuration_metadata_sync_event_topic
        ):
            self.replicate(subscription)

    def rate_of(self, name: str) -> RateLimit:
        """Return the dispatch rate of a subscription: its own policy, else the policy for all subscriptions."""
        policies = self._topic.policies
        return policies[DISPATCH_RATES_BY_SUBSCRIPTION].get(name, policies[SUBSCRIPTION_DISPATCH_RATE])

    # Creating and removing.

    def create(self, name: str, cursor: Cursor, *, durable: bool = True) -> Subscription:
        """Add a subscription that does not exist yet. With `durable` it is stored once its `persisted` has returned.
        CheckpointDamaged: see `TopicReading.remember_from`."""
        assert name not in self
        parts = self._components.subscriptions.cursor_parts(cursor)
        return self.add(StoredCursor(CursorKey(self._topic.full_name, name), parts), durable=durable)

    def add(self, stored: StoredCursor, *, durable: bool = True) -> Subscription:
        """Add a subscription with a new or a stored cursor. CheckpointDamaged: see `TopicReading.remember_from`."""
        name = stored.key.subscription
        subscription = Subscription(self._topic, name, stored, durable=durable)
        self._topic.reading.remember_from(subscription.cursor.mark_delete + 1)
        self[name] = subscription
        self._replicate_by_default(subscription)
        return subscription

    def remove(self, name: str) -> None:
        """Remove a subscription: it was deleted, or it is not durable and its last consumer left."""
        self.pop(name, None)
        if self.replicated is not None:
            self.replicated.subscription_removed(name)

    # Replication (PIP-33).

    @property
    def are_replicable(self) -> bool:
        """Whether the region replicates subscriptions."""
        return self._topic.region.config.settings.replicated_subscriptions

    def check_region_replicates(self) -> None:
        """Raise ProtocolError if the region does not replicate subscriptions."""
        if not self.are_replicable:
            sentence = str(Cause.REPLICATED_SUBSCRIPTIONS_OFF(here=self._topic.region.config.region))
            raise ProtocolError(ServerError.NotAllowedError, f"{sentence}: replicated_subscriptions is off")

    def why_not_replicated(self, subscription: Subscription) -> Reason:
        """Return why other regions do not get the subscription's position."""
        if not self.are_replicable:
            return Cause.REPLICATED_SUBSCRIPTIONS_OFF(here=self._topic.region.config.region)
        if self.replicated is not None:
            return self.replicated.why_not(subscription)
        is_replicated = subscription.cursor.replicated
        return Cause.SNAPSHOT_NO_REMOTES() if is_replicated else Cause.SUBSCRIPTION_NOT_REPLICATED()

    def check_replicable(self, subscription: Subscription) -> None:
        """Raise ProtocolError unless the subscription can be replicated."""
        self.check_region_replicates()
        self._components.replication.check_replicable(subscription.name, durable=subscription.durable)

    def replicate(self, subscription: Subscription) -> None:
        """Send the subscription's position to the other regions from now on, and apply theirs. ProtocolError when it is
        not durable."""
        self.check_replicable(subscription)
        subscription.move(lambda cursor: cursor.set_replicated(True))
        if self.replicated is not None:
            self.replicated.subscription_added(subscription)

    def disable_replication(self, subscription: Subscription) -> None:
        """Stop sending and applying the subscription's position until an administrator enables replication again."""
        subscription.move(lambda cursor: cursor.disable_replication())
        if self.replicated is not None:
            self.replicated.subscription_removed(subscription.name)

    def links_changed(self) -> None:
        """Schedule a snapshot: a replicator to or from a remote region connected."""
        if self.replicated is not None:
            self.replicated.snapshots.schedule()

    def link_lost(self, remote: str) -> None:
        """Handle a replicator to or from a remote region that lost its connection."""
        if self.replicated is not None:
            self.replicated.snapshots.link_lost(remote)

    # Events of a subscription.

    def entries_read(self, name: str, entries: Sequence[StoredEntry]) -> None:
        """Find snapshots among entries, markers included, that were read for a replicated subscription's consumers."""
        subscription = self.get(name)
        if self.replicated is not None and subscription is not None and subscription.cursor.replicated:
            self.replicated.entries_read(subscription, entries)

    def entries_claimed(self, name: str, entries: Sequence[StoredEntry]) -> None:
        """Acknowledge what other regions claim of entries that were read for a subscription's consumers."""
        subscription = self.get(name)
        if subscription is not None and self._individual_acks is not None:
            self._individual_acks.entries_read(subscription, entries)

    def mark_delete_moved(self, name: str) -> None:
        """Replicate a mark-delete position that a subscription's consumers moved."""
        subscription = self.get(name)
        if self.replicated is not None and subscription is not None and subscription.cursor.replicated:
            self.replicated.mark_delete_moved(subscription)

    def consumers_left(self, name: str) -> None:
        """Pass the markers that the consumers did not read."""
        if self.replicated is not None:
            self.replicated.pass_markers(name)

    def skipped(self, name: str) -> None:
        """Handle entries that the broker acknowledged instead of consumers, for example because they expired."""
        subscription = self.get(name)
        if subscription is not None and self._individual_acks is not None:
            self._individual_acks.skipped(subscription)

    @property
    def _individual_acks(self) -> TopicIndividualAcks | None:
        return None if self.replicated is None else self.replicated.individual

    def cursor_reset(self, name: str) -> None:
        """Handle a cursor that a consumer or an administrator reset. CheckpointDamaged: see
        `TopicReading.remember_from`."""
        subscription = self.get(name)
        if subscription is None:
            return
        self._topic.reading.remember_from(subscription.cursor.mark_delete + 1)
        if self.replicated is not None:
            self.replicated.cursor_reset(subscription)


def _limit_of(policy: int | None, unset: int) -> int:
    """Return the limit of a policy, else `unset`; 0 means no limit, as in Pulsar."""
    return (unset if policy is None else policy) or sys.maxsize
