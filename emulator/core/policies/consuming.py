"""What consumers are given, and when."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from emulator.core.policies.codecs import MILLISECONDS_MAX
from emulator.core.policies.declaration import BELOW_ZERO, Codec, Policy, Scope

TICK_MS: Final = 1
"""By default as exact as the clock."""
DELAY_MS_MAX: Final = 2**53
"""Numbers in JSON are no larger."""
UNACKED_MAX: Final = 2**31 - 1


class Delays(NamedTuple):
    """Whether messages wait until they are due."""

    active: bool
    tick_ms: int
    """What is due within one tick is delivered at its end."""
    delay_ms_max: int
    """Longer ones are not taken from clients; 0: any."""


def _whole_number(value: Any, name: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name}: {value!r} is not a whole number of milliseconds, {least} to {most}")
    return value


def _delays(value: Any) -> Delays:
    if not isinstance(value, dict) or not isinstance(value.get("active"), bool):
        raise ValueError(f"{value!r} does not say active: true or false")
    tick_ms, delay_ms_max = value.get("tickTime"), value.get("maxDelayInMillis")
    return Delays(
        value["active"],
        TICK_MS if tick_ms is None else _whole_number(tick_ms, "tickTime", 1, MILLISECONDS_MAX),
        0 if delay_ms_max is None else _whole_number(delay_ms_max, "maxDelayInMillis", 0, DELAY_MS_MAX),
    )


def _delays_as_json(value: Delays | None) -> dict[str, Any]:
    assert value is not None, "only what is set is encoded"
    return {"active": value.active, "tickTime": value.tick_ms, "maxDelayInMillis": value.delay_ms_max}


def _unacked(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= UNACKED_MAX:
        raise ValueError(f"{value!r} is not a number of messages, 0 (any) to {UNACKED_MAX}")
    return value


def _unacked_as_json(value: int | None) -> int:
    assert value is not None, "only what is set is encoded"
    return value


DELAYS: Codec[Delays | None] = Codec(
    _delays,
    _delays_as_json,
    {
        "type": "object",
        "properties": {
            "active": {"type": "boolean"},
            "tickTime": {"type": ["integer", "null"], "minimum": 1, "maximum": MILLISECONDS_MAX},
            "maxDelayInMillis": {"type": ["integer", "null"], "minimum": 0, "maximum": DELAY_MS_MAX},
        },
        "required": ["active"],
    },
)
UNACKED: Codec[int | None] = Codec(
    _unacked, _unacked_as_json, {"type": "integer", "minimum": 0, "maximum": UNACKED_MAX}
)

DELAYED_DELIVERY: Policy[Delays | None] = Policy(
    name="delayed_delivery",
    at_namespace="delayedDelivery",
    at_topic="delayedDelivery",
    codec=DELAYS,
    default=None,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.topic.subscriptions",
    doc=(
        "Delayed delivery of Shared and Key_Shared subscriptions: whether, with which tick, and up to "
        "which delay. Unset: on, to the millisecond, without limit."
    ),
)
UNACKED_PER_CONSUMER: Policy[int | None] = Policy(
    name="max_unacked_messages_per_consumer",
    at_namespace="maxUnackedMessagesPerConsumer",
    at_topic="maxUnackedMessagesOnConsumer",
    below_zero=BELOW_ZERO,
    codec=UNACKED,
    default=None,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.topic.subscriptions",
    doc=(
        "Maximum of unacknowledged messages of a Shared or Key_Shared consumer; above it dispatch to "
        "the consumer pauses. 0: no limit. Unset: the region's setting."
    ),
)
UNACKED_PER_SUBSCRIPTION: Policy[int | None] = Policy(
    name="max_unacked_messages_per_subscription",
    at_namespace="maxUnackedMessagesPerSubscription",
    at_topic="maxUnackedMessagesOnSubscription",
    below_zero=BELOW_ZERO,
    codec=UNACKED,
    default=None,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.topic.subscriptions",
    doc=(
        "Maximum of unacknowledged messages of a Shared or Key_Shared subscription; above it dispatch "
        "pauses. 0: no limit. Unset: 200,000."
    ),
)

POLICIES = (DELAYED_DELIVERY, UNACKED_PER_CONSUMER, UNACKED_PER_SUBSCRIPTION)
