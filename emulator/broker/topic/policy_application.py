"""How policies limit the users of a topic and its speed (docs/components/limits.md)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from emulator.broker.topic.publishing import limits_of
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
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_MESSAGE_SIZE,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    PUBLISH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
)
from emulator.core.policies.topic_policies import TopicPolicies

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.producer import Producer
    from emulator.core.admission import Limits
    from emulator.core.dispatch import Limits as DispatchLimits
    from emulator.core.flow.rate_limit import Pace, Throttle
    from emulator.core.topic.limits import Caps

CAPS = (MAX_PRODUCERS, MAX_CONSUMERS, MAX_CONSUMERS_PER_SUBSCRIPTION, MAX_SUBSCRIPTIONS)
DISPATCH = (DELAYED_DELIVERY, UNACKED_PER_CONSUMER, UNACKED_PER_SUBSCRIPTION)
SUBSCRIPTION_RATES = (SUBSCRIPTION_DISPATCH_RATE, DISPATCH_RATES_BY_SUBSCRIPTION)
OBEYS = (*CAPS, *DISPATCH, *SUBSCRIPTION_RATES, MAX_MESSAGE_SIZE, PUBLISH_RATE, DISPATCH_RATE)
"""Policies that this module acts upon (P1)."""

UNACKED_OF_SUBSCRIPTION_MAX: Final = 200_000
"""Unless a policy says otherwise. Upstream's number."""
_UNSET: Final = Delays(active=True, tick_ms=TICK_MS, delay_ms_max=0)


class LimitedTopic(Protocol):
    """The topic."""

    caps: Caps
    client_limits: Limits
    publish_throttle: Throttle | None
    dispatch_throttle: Throttle | None

    @property
    def region(self) -> RegionServices: ...
    @property
    def producers(self) -> Mapping[str, Producer]: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def dispatch_limits(self) -> DispatchLimits: ...

    def publish_rate(self) -> tuple[float, float]: ...
    def subscription_rate_of(self, name: str) -> Pace: ...
    def pump(self) -> None: ...


def apply_limits(topic: LimitedTopic, old: TopicPolicies | None, new: TopicPolicies) -> None:
    """Limit the users of a topic and its speed by `new`."""
    parts = topic.region.environment.components
    now_ms = asyncio.get_running_loop().time() * 1000
    if new.differs(old, *CAPS):
        topic.caps = parts.caps(*(new[policy] for policy in CAPS))
    if new.differs(old, *DISPATCH):
        _limit_dispatch(topic, new)
    if new.differs(old, MAX_MESSAGE_SIZE):
        limits, most = limits_of(topic.region.config), new[MAX_MESSAGE_SIZE]
        if most:
            limits = replace(limits, payload_bytes=min(most, limits.payload_bytes))
        topic.client_limits = limits
    if new.differs(old, PUBLISH_RATE):
        topic.publish_throttle = parts.throttle_of(new[PUBLISH_RATE], now_ms)
        for producer in topic.producers.values():
            producer.connection.flow_control.speed_up()
    if new.differs(old, DISPATCH_RATE):
        topic.dispatch_throttle = parts.throttle_of(new[DISPATCH_RATE], now_ms, topic.publish_rate)
        topic.pump()
    if new.differs(old, *SUBSCRIPTION_RATES):
        for subscription in topic.subscriptions.values():
            subscription.handing_out.set_rate(topic.subscription_rate_of(subscription.name))


def _limit_dispatch(topic: LimitedTopic, policies: TopicPolicies) -> None:
    delays = policies[DELAYED_DELIVERY] or _UNSET
    of_region = topic.region.config.settings.max_unacked_messages_per_consumer
    limits = topic.dispatch_limits
    limits.delays, limits.tick_ms = delays.active, delays.tick_ms
    limits.unacked_messages_per_consumer_max = _number(policies[UNACKED_PER_CONSUMER], of_region)
    limits.unacked_messages_max = _number(policies[UNACKED_PER_SUBSCRIPTION], UNACKED_OF_SUBSCRIPTION_MAX)
    for subscription in topic.subscriptions.values():
        subscription.handing_out.limits_changed()


def _number(policy: int | None, unset: int) -> int:
    """0 is Pulsar's word for: any number."""
    return (unset if policy is None else policy) or sys.maxsize
