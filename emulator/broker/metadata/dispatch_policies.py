"""What policies say of dispatch, brought to a topic and its subscriptions."""

from __future__ import annotations

import sys
from typing import Final

from emulator.broker.metadata.policies import Effective
from emulator.broker.topic.topic import Topic
from emulator.core.dispatch import Limits
from emulator.core.policies.consuming import (
    DELAYED_DELIVERY,
    TICK_MS,
    UNACKED_PER_CONSUMER,
    UNACKED_PER_SUBSCRIPTION,
    Delays,
)

OBEYS = (DELAYED_DELIVERY, UNACKED_PER_CONSUMER, UNACKED_PER_SUBSCRIPTION)

UNACKED_OF_SUBSCRIPTION_MAX: Final = 200_000
"""Unless a policy says otherwise. Upstream's number."""
_UNSET: Final = Delays(active=True, tick_ms=TICK_MS, delay_ms_max=0)


def follow(topic: Topic, effective: Effective) -> None:
    """From this step on the topic's subscriptions keep to its policies."""

    def changed() -> None:
        topic.delay_ms_max = (effective[DELAYED_DELIVERY] or _UNSET).delay_ms_max
        topic.limit_dispatch(lambda limits: _set(limits, effective, of_region))

    of_region = topic.region.config.settings.max_unacked_messages_per_consumer
    changed()
    for policy in OBEYS:
        effective.on_change(policy, changed)


def _set(limits: Limits, effective: Effective, of_region: int) -> None:
    delays = effective[DELAYED_DELIVERY] or _UNSET
    limits.delays, limits.tick_ms = delays.active, delays.tick_ms
    limits.unacked_messages_per_consumer_max = _number(effective[UNACKED_PER_CONSUMER], of_region)
    limits.unacked_messages_max = _number(effective[UNACKED_PER_SUBSCRIPTION], UNACKED_OF_SUBSCRIPTION_MAX)


def _number(policy: int | None, unset: int) -> int:
    """0 is Pulsar's word for: any number."""
    return (unset if policy is None else policy) or sys.maxsize
