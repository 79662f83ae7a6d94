"""Who may subscribe, and how."""

from __future__ import annotations

from typing import Any, Final

from emulator.core.policies.codecs import BOOLEAN
from emulator.core.policies.declaration import Codec, Policy, Scope

TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")


def _auto_creation(value: Any) -> bool:
    if not isinstance(value, dict) or list(value) != ["allowAutoSubscriptionCreation"]:
        raise ValueError(f"{str(value)[:100]} does not say allowAutoSubscriptionCreation, and nothing else")
    return BOOLEAN.decode(value["allowAutoSubscriptionCreation"])


def _types(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{str(value)[:100]} is no list of types of subscriptions")
    wrong = [one for one in value if one not in TYPES]
    if wrong:
        raise ValueError(f"{wrong[0][:100]!r} is none of {', '.join(TYPES)}")
    return tuple(dict.fromkeys(value))


AUTO_SUBSCRIPTION_CREATION: Policy[bool] = Policy(
    name="auto_subscription_creation",
    at_namespace="autoSubscriptionCreation",
    at_topic="autoSubscriptionCreation",
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
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.commands.subscribing",
    doc="Whether a durable subscription is created when a consumer asks for it; otherwise by the admin API only.",
)
SUBSCRIPTION_TYPES_ENABLED: Policy[tuple[str, ...]] = Policy(
    name="subscription_types_enabled",
    at_namespace="subscriptionTypesEnabled",
    at_topic="subscriptionTypesEnabled",
    codec=Codec(_types, list, {"type": "array", "items": {"type": "string", "enum": list(TYPES)}}),
    default=(),
    unset=[],
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.commands.subscribing",
    doc="Which types of subscriptions consumers may use. Empty: all.",
)

POLICIES = (AUTO_SUBSCRIPTION_CREATION, SUBSCRIPTION_TYPES_ENABLED)
