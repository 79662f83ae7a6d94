"""Policies of the broker scope by Pulsar's names of settings, and their values as text.

Pulsar has two kinds of such settings: dynamic ones, which the admin API changes and the configuration store keeps, and
those of the broker's configuration file. A dynamic one outranks that of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.core.policies.declaration import Policy
from emulator.core.policies.topic_policies import REGISTRY

DYNAMIC: Final[Mapping[str, Policy[Any]]] = {
    policy.at_broker: policy for policy in REGISTRY.values() if policy.at_broker
}
"""Pulsar's name of a dynamic setting -> the policy that it sets for all topics of the cluster."""


def value_from_text(policy: Policy[Any], text: str) -> Any:
    """Return the value of a policy, as JSON, for the text of its setting. Raises ValueError, naming the violated rule,
    for an invalid one."""
    as_json = parse_value(text)
    if _is_field(policy):
        as_json = {policy.at_broker: as_json}
    elif isinstance(as_json, int) and not isinstance(as_json, bool):
        as_json *= policy.at_broker_factor
    policy.codec.decode(as_json)
    return as_json


def value_as_text(policy: Policy[Any], as_json: Any) -> str:
    """Inverse of `value_from_text`."""
    if _is_field(policy):
        return as_text(as_json[policy.at_broker])
    if policy.at_broker_factor == 1:
        return as_text(as_json)
    return f"{as_json / policy.at_broker_factor:g}"


def parse_value(text: str) -> Any:
    """Return the JSON value of text: a Boolean, a number or the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else text


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_field(policy: Policy[Any]) -> bool:
    """Whether the setting is one field of the policy, which is a JSON object in other scopes."""
    return policy.at_broker in policy.codec.schema.get("properties", {})
