"""Grants: the permissions that a namespace gives to roles, in Pulsar's JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
"""Pulsar's actions. A region runs no functions and no connectors and stores no packages, so only the first two have
operations."""
GRANTS_MAX: Final = 10_000
"""Maximum number of grants of a namespace."""
OF_NAMESPACE: Final = "namespace_auth"
OF_TOPIC: Final = "topic_auth"
OF_SUBSCRIPTION: Final = "subscription_auth_roles"
_FIELDS: Final = {
    OF_NAMESPACE: OF_NAMESPACE,
    "namespaceAuthentication": OF_NAMESPACE,
    OF_TOPIC: OF_TOPIC,
    "destination_auth": OF_TOPIC,
    "topicAuthentication": OF_TOPIC,
    OF_SUBSCRIPTION: OF_SUBSCRIPTION,
    "subscriptionAuthentication": OF_SUBSCRIPTION,
}
"""Field of the JSON form -> the field under which it is stored: Pulsar has an older name of one, and its Java client
writes other names."""

ActionsByRole = Mapping[str, frozenset[str]]
_NONE: Final[Mapping[str, Any]] = {}


class Grants(NamedTuple):
    """The grants of one namespace."""

    by_role: ActionsByRole = _NONE
    """Role -> its actions on all topics of the namespace."""
    by_topic: Mapping[str, ActionsByRole] = _NONE
    """Full name of a topic, partitioned or not, or of a partition -> role -> its actions."""
    by_subscription: Mapping[str, frozenset[str]] = _NONE
    """Name of a subscription -> the roles that may use it; any role with `consume` if it is not listed."""

    @property
    def total(self) -> int:
        """The number of grants."""
        return (
            len(self.by_role)
            + sum(map(len, self.by_topic.values()))
            + sum(map(len, self.by_subscription.values()))
        )


NO_GRANTS: Final = Grants()


def parse_grants(value: Any) -> Grants:
    """Return the grants of a JSON form; unknown fields are ignored. Raises ValueError, naming the field, for an invalid
    one."""
    fields = _objects(value, "permissions")
    merged: dict[str, dict[str, Any]] = {OF_NAMESPACE: {}, OF_TOPIC: {}, OF_SUBSCRIPTION: {}}
    for field, content in fields.items():
        if field in _FIELDS and content is not None:
            merged[_FIELDS[field]].update(_objects(content, field))
    grants = Grants(
        _actions_by_role(merged[OF_NAMESPACE], OF_NAMESPACE),
        {topic: _actions_by_role(roles, topic) for topic, roles in merged[OF_TOPIC].items()},
        {name: _names(roles, name) for name, roles in merged[OF_SUBSCRIPTION].items()},
    )
    if grants.total > GRANTS_MAX:
        raise ValueError(f"a namespace may have {GRANTS_MAX:,} grants at most, not {grants.total:,}")
    return grants


def grants_as_json(grants: Grants) -> dict[str, Any]:
    """Return the JSON form: fields without a grant are absent."""
    fields = {
        OF_NAMESPACE: actions_as_json(grants.by_role),
        OF_TOPIC: {topic: actions_as_json(roles) for topic, roles in grants.by_topic.items() if roles},
        OF_SUBSCRIPTION: {name: sorted(roles) for name, roles in grants.by_subscription.items()},
    }
    return {field: content for field, content in fields.items() if content}


def actions_as_json(roles: ActionsByRole) -> dict[str, list[str]]:
    """Return roles with their actions, in Pulsar's order of the actions."""
    return {role: [one for one in ACTIONS if one in actions] for role, actions in roles.items()}


def _actions_by_role(raw: Any, where: str) -> ActionsByRole:
    return {role: parse_actions(actions, where) for role, actions in _objects(raw, where).items()}


def parse_actions(raw: Any, where: str = "actions") -> frozenset[str]:
    """Return the actions of a list. Raises ValueError for an unknown one."""
    actions = _names(raw, where)
    wrong = sorted(actions - set(ACTIONS))
    if wrong:
        raise ValueError(f"{where[:100]}: {wrong[0][:100]!r} is none of {', '.join(ACTIONS)}")
    return actions


def _objects(raw: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict) or not all(isinstance(name, str) and name for name in raw):
        raise ValueError(
            f"{where[:100]}: {str(raw)[:100]} is not a JSON object with names that are not empty"
        )
    return raw


def _names(raw: Any, where: str) -> frozenset[str]:
    if not isinstance(raw, list):
        raise ValueError(f"{where[:100]}: {str(raw)[:100]} is not a list of names")
    if not all(isinstance(name, str) and name for name in raw):
        raise ValueError(f"{where[:100]}: {str(raw)[:100]} has an element that is not a name")
    return frozenset(raw)
