"""Checks of policies for a consumer that subscribes."""

from __future__ import annotations

import asyncio

from emulator.broker.topic.topic import Topic
from emulator.core.dispatch import SubscriptionType
from emulator.core.policies.subscribing import (
    AUTO_SUBSCRIPTION_CREATION,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_TYPES_ENABLED,
)
from emulator.errors import ProtocolError, ServerError
from emulator.wire.commands import Subscribe

OBEYS = (AUTO_SUBSCRIPTION_CREATION, SUBSCRIBE_RATE, SUBSCRIPTION_TYPES_ENABLED)
"""Policies that this module acts upon (P1)."""
_NAMES = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}


def check_rate(topic: Topic, host: str, command: Subscribe) -> None:
    """ProtocolError for a consumer that subscribes too often. Rejected attempts count too."""
    rate = topic.policies[SUBSCRIBE_RATE]
    consumer = (host, command.consumer_name, command.consumer_id)
    now_ms = asyncio.get_running_loop().time() * 1000
    if not topic.subscriptions.arrivals.admit(consumer, rate, now_ms):
        raise ProtocolError(
            ServerError.NotAllowedError,
            "Subscribe limited by subscribe rate limit per consumer. "
            f"It is {rate.messages} in {rate.period_seconds} s of {topic.full_name}",
        )


def check_policies(topic: Topic, command: Subscribe, type_: SubscriptionType) -> None:
    """ProtocolError for a subscription that the topic's policies do not allow."""
    enabled = topic.policies[SUBSCRIPTION_TYPES_ENABLED]
    if enabled and _NAMES[type_] not in enabled:
        raise ProtocolError(
            ServerError.NotAllowedError,
            f"Topic[{topic.full_name}] doesn't support {_NAMES[type_]} sub type! It has {', '.join(enabled)}",
        )
    is_new = command.durable and command.subscription not in topic.subscriptions
    if is_new and not topic.policies[AUTO_SUBSCRIPTION_CREATION]:
        raise ProtocolError(
            ServerError.SubscriptionNotFound,
            f"Subscription does not exist: {command.subscription}, and {topic.full_name} has none created on use",
        )
