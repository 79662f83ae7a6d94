"""What policies say of a topic's users and of its speed, brought to the topic (docs/components/limits.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from emulator.broker.metadata.policies import Effective
from emulator.broker.topic.publishing import limits_of
from emulator.broker.topic.topic import Topic
from emulator.core.policies.declaration import Policy
from emulator.core.policies.limits import (
    DISPATCH_RATE,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_MESSAGE_SIZE,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    PUBLISH_RATE,
    REPLICATOR_DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
)

CAPS = (MAX_PRODUCERS, MAX_CONSUMERS, MAX_CONSUMERS_PER_SUBSCRIPTION, MAX_SUBSCRIPTIONS)
OBEYS = (
    *CAPS,
    MAX_MESSAGE_SIZE,
    PUBLISH_RATE,
    DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    DISPATCH_RATES_BY_SUBSCRIPTION,
    REPLICATOR_DISPATCH_RATE,
)


def follow(topic: Topic, effective: Effective) -> None:
    """From this step on the topic keeps to its policies."""
    parts = topic.region.environment.components

    def now_ms() -> float:
        return asyncio.get_running_loop().time() * 1000

    def caps_changed() -> None:
        topic.caps = parts.caps(*(effective[policy] for policy in CAPS))

    def size_changed() -> None:
        limits, most = limits_of(topic.region.config), effective[MAX_MESSAGE_SIZE]
        if most:
            limits = replace(limits, payload_bytes=min(most, limits.payload_bytes))
        topic.client_limits = limits

    def publish_rate_changed() -> None:
        topic.publish_throttle = parts.throttle_of(effective[PUBLISH_RATE], now_ms())
        for producer in topic.producers.values():
            producer.connection.speed_up()

    def dispatch_rate_changed() -> None:
        topic.dispatch_throttle = parts.throttle_of(effective[DISPATCH_RATE], now_ms(), topic.publish_rate)
        topic.pump()

    def subscription_rate_changed() -> None:
        topic.subscription_rate = effective[SUBSCRIPTION_DISPATCH_RATE]
        topic.subscription_rates = effective[DISPATCH_RATES_BY_SUBSCRIPTION]
        for subscription in topic.subscriptions.values():
            subscription.handing_out.set_rate(topic.subscription_rate_of(subscription.name))

    def replicator_rate_changed() -> None:
        topic.replicator_rate = effective[REPLICATOR_DISPATCH_RATE]
        for replicator in topic.replicators.values():
            replicator.set_rate(topic.replicator_rate)

    followed: list[tuple[Policy[Any], Callable[[], None]]] = [(policy, caps_changed) for policy in CAPS]
    followed += [
        (MAX_MESSAGE_SIZE, size_changed),
        (PUBLISH_RATE, publish_rate_changed),
        (DISPATCH_RATE, dispatch_rate_changed),
        (SUBSCRIPTION_DISPATCH_RATE, subscription_rate_changed),
        (DISPATCH_RATES_BY_SUBSCRIPTION, subscription_rate_changed),
        (REPLICATOR_DISPATCH_RATE, replicator_rate_changed),
    ]
    for policy, changed in followed:
        changed()
        effective.on_change(policy, changed)
