"""Policies of consuming: delayed delivery, unacknowledged messages, subscription types, creation and rate of
subscriptions."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.policies.codecs import BOOLEAN, MILLISECONDS_MAX, fields_of, whole_number
from emulator.core.policies.declaration import BELOW_ZERO, Codec, OutOfRange, Policy, Scope

TICK_MS: Final = 1
"""Default tick: the precision of the clock."""
DELAY_MS_MAX: Final = 2**53
"""Maximum of `maxDelayInMillis`: some JSON tools round larger numbers."""
UNACKED_MAX: Final = 2**31 - 1


class Delays(NamedTuple):
    """Settings of delayed delivery."""

    active: bool
    """Whether messages wait until they are due."""
    tick_ms: int
    """Messages that become due within one tick are dispatched at its end."""
    delay_ms_max: int
    """Maximum delay of a client's message; a message with a longer one is rejected. 0: no limit."""


def _milliseconds(value: Any, name: str, minimum: int, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise ValueError(f"{name}: {value!r} is not a whole number of milliseconds, {minimum} to {maximum}")
    return value


def _delays(value: Any) -> Delays:
    if not isinstance(value, dict) or not isinstance(value.get("active"), bool):
        raise ValueError(f"{value!r} does not say active: true or false")
    tick_ms, delay_ms_max = value.get("tickTime"), value.get("maxDelayInMillis")
    return Delays(
        value["active"],
        TICK_MS if tick_ms is None else _milliseconds(tick_ms, "tickTime", 1, MILLISECONDS_MAX),
        0 if delay_ms_max is None else _milliseconds(delay_ms_max, "maxDelayInMillis", 0, DELAY_MS_MAX),
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
        "Delayed delivery by Shared and Key_Shared subscriptions: whether it is active, its tick, and the maximum "
        "delay that clients may request (0: no limit). Unset: active, a tick of 1 ms, no limit."
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
        "Maximum number of unacknowledged messages of a Shared or Key_Shared consumer; at the maximum dispatch to "
        "the consumer pauses. 0: no limit. Unset: the region's setting of this name."
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
        "Maximum number of unacknowledged messages of a Shared or Key_Shared subscription; at the maximum dispatch "
        "pauses. 0: no limit. Unset: 200,000."
    ),
)


TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
PERIOD_SECONDS_MAX: Final = 86_400
RATE_NAMES: Final = ("subscribeThrottlingRatePerConsumer", "ratePeriodInSecond")


def _auto_creation(value: Any) -> bool:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:100]} must be a JSON object with allowAutoSubscriptionCreation")
    try:
        return BOOLEAN.decode(value.get("allowAutoSubscriptionCreation"))
    except ValueError as problem:
        raise ValueError(f"allowAutoSubscriptionCreation: {problem}") from None


def _types(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{str(value)[:100]} is not a list of types of subscriptions")
    invalid = [one for one in value if one not in TYPES]
    if invalid:
        raise ValueError(f"{invalid[0][:100]!r} is none of {', '.join(TYPES)}")
    return tuple(dict.fromkeys(value))


def _rate(value: Any) -> RateLimit:
    """Decode a subscribe rate; -1 and 0: unlimited."""
    found = fields_of(value, ())
    times = max(0, whole_number(found.get(RATE_NAMES[0], -1), RATE_NAMES[0], minimum=-1))
    seconds = whole_number(found.get(RATE_NAMES[1], 30), RATE_NAMES[1], minimum=1)
    if seconds > PERIOD_SECONDS_MAX:
        raise OutOfRange(f"{RATE_NAMES[1]}: {seconds} is more than a day")
    return RateLimit(times, 0, seconds)


def _rate_as_json(rate: RateLimit) -> dict[str, int]:
    return dict(zip(RATE_NAMES, (rate.messages or -1, rate.period_seconds), strict=True))


AUTO_SUBSCRIPTION_CREATION: Policy[bool] = Policy(
    name="auto_subscription_creation",
    at_namespace="autoSubscriptionCreation",
    at_topic="autoSubscriptionCreation",
    at_broker="allowAutoSubscriptionCreation",
    codec=Codec(
        _auto_creation,
        lambda value: {"allowAutoSubscriptionCreation": value},
        {
            "type": "object",
            "properties": {"allowAutoSubscriptionCreation": {"type": "boolean"}},
            "required": ["allowAutoSubscriptionCreation"],
        },
    ),
    default=True,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.connection.consumers",
    doc="Whether a consumer may create a durable subscription by subscribing.",
)
SUBSCRIPTION_TYPES_ENABLED: Policy[tuple[str, ...]] = Policy(
    name="subscription_types_enabled",
    at_namespace="subscriptionTypesEnabled",
    at_topic="subscriptionTypesEnabled",
    codec=Codec(_types, list, {"type": "array", "items": {"type": "string", "enum": list(TYPES)}}),
    default=(),
    unset=[],
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.connection.consumers",
    doc="Permitted subscription types. Empty: all.",
)
SUBSCRIBE_RATE: Policy[RateLimit] = Policy(
    name="subscribe_rate",
    at_namespace="subscribeRate",
    at_topic="subscribeRate",
    codec=Codec(
        _rate,
        _rate_as_json,
        {"type": "object", "properties": {name: {"type": "integer"} for name in RATE_NAMES}},
    ),
    default=UNLIMITED,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.connection.consumers",
    doc="Number of times that each consumer may subscribe or reconnect per period, in seconds. -1: no limit.",
)

POLICIES = (
    DELAYED_DELIVERY,
    UNACKED_PER_CONSUMER,
    UNACKED_PER_SUBSCRIPTION,
    AUTO_SUBSCRIPTION_CREATION,
    SUBSCRIPTION_TYPES_ENABLED,
    SUBSCRIBE_RATE,
)
