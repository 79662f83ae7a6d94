"""Who may subscribe, and how."""

from __future__ import annotations

from typing import Any, Final

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.policies.codecs import BOOLEAN
from emulator.core.policies.declaration import Codec, OutOfRange, Policy, Scope
from emulator.core.policies.lifetime import fields_of, whole_number

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
    wrong = [one for one in value if one not in TYPES]
    if wrong:
        raise ValueError(f"{wrong[0][:100]!r} is none of {', '.join(TYPES)}")
    return tuple(dict.fromkeys(value))


def _rate(value: Any) -> RateLimit:
    """-1 and 0: as often as it wants."""
    found = fields_of(value, ())
    times = max(0, whole_number(found.get(RATE_NAMES[0], -1), RATE_NAMES[0], least=-1))
    seconds = whole_number(found.get(RATE_NAMES[1], 30), RATE_NAMES[1], least=1)
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
    doc="Whether a consumer may create a durable subscription; otherwise only the admin API may.",
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
    doc="How often each consumer may subscribe or reconnect within a period in seconds. -1: no limit.",
)

POLICIES = (AUTO_SUBSCRIPTION_CREATION, SUBSCRIPTION_TYPES_ENABLED, SUBSCRIBE_RATE)
