"""Permissions of roles: stored and returned, not enforced."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Resource, changes, reads, stored_only
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.stored_only import PERMISSIONS
from emulator.model.values import TopicName
from emulator.net.http_server import HttpError

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
GRANTS_MAX: Final = 10_000
Grants = dict[str, Any]
OF_NAMESPACE, OF_TOPIC, OF_SUBSCRIPTION = "namespace_auth", "topic_auth", "subscription_auth_roles"
"""Pulsar's names of the kinds of grants."""


def _grants_of(call: AdminRequest, kind: str) -> Mapping[str, Any]:
    found = call.region.policies.stored_value(call.namespace_path(), PERMISSIONS) or {}
    of_kind: Mapping[str, Any] = found.get(kind, {})
    return of_kind


async def _change(call: AdminRequest, kind: str, change: Callable[[Grants], object]) -> None:
    """Change the grants of one kind atomically. HttpError 412 for more than GRANTS_MAX in the namespace."""

    def grants(present: Mapping[str, Any] | None) -> Mapping[str, Any]:
        grants_now = copy.deepcopy(dict(present or {}))
        change(grants_now.setdefault(kind, {}))
        count = sum(
            len(one) if isinstance(one, dict) else 1 for of in grants_now.values() for one in of.values()
        )
        if count > GRANTS_MAX:
            raise HttpError(412, f"a namespace may have {GRANTS_MAX} grants at most")
        return grants_now

    await call.region.policies.change(call.namespace_path(), PERMISSIONS, grants)


def _list(call: AdminRequest) -> list[str]:
    names: list[str] = call.required_body("a list")
    return names


async def of_namespace(call: AdminRequest) -> Content:
    return _grants_of(call, OF_NAMESPACE)


async def grant_namespace(call: AdminRequest) -> None:
    actions, role = _list(call), call.names["role"]
    await _change(call, OF_NAMESPACE, lambda grants: grants.update({role: actions}))


async def revoke_namespace(call: AdminRequest) -> None:
    await _change(call, OF_NAMESPACE, lambda grants: grants.pop(call.names["role"], None))


async def of_topic(call: AdminRequest) -> Content:
    """Return the permissions of a topic by role, combined with those of its namespace."""
    of_topic = _grants_of(call, OF_TOPIC).get(str(call.topic_name()), {})
    roles = {**_grants_of(call, OF_NAMESPACE)}
    for role, actions in of_topic.items():
        roles[role] = sorted({*roles.get(role, ()), *actions})
    return roles


async def grant_topic(call: AdminRequest) -> None:
    topic, role, actions = str(call.topic_name()), call.names["role"], _list(call)
    await _change(call, OF_TOPIC, lambda grants: grants.setdefault(topic, {}).update({role: actions}))


async def revoke_topic(call: AdminRequest) -> None:
    topic, role = str(call.topic_name()), call.names["role"]
    if role not in _grants_of(call, OF_TOPIC).get(topic, {}):
        raise HttpError(412, f"Permissions are not set at the topic level for {role}")
    await _change(call, OF_TOPIC, lambda grants: grants.get(topic, {}).pop(role, None))


async def grant_topics(call: AdminRequest) -> None:
    await _each(call, grant_topic)


async def revoke_topics(call: AdminRequest) -> None:
    await _each(call, revoke_topic)


async def _each(call: AdminRequest, change: Callable[[AdminRequest], Awaitable[None]]) -> None:
    """Change the permissions of each topic and role in the body. HttpError at the first failure; earlier changes
    stay."""
    for one in call.required_body("a list"):
        topic = TopicName.parse(one["topic"])
        tenant, namespace = topic.tenant, topic.namespace
        names = {"tenant": tenant, "namespace": namespace, "topic": topic.topic, "role": one["role"]}
        call.context.resource(ResourceScope.TOPIC, names)
        await change(replace(call, names=names, body=one.get("actions")))


async def of_subscriptions(call: AdminRequest) -> Content:
    return _grants_of(call, OF_SUBSCRIPTION)


async def grant_subscription(call: AdminRequest) -> None:
    roles, name = _list(call), call.names["subscription"]
    await _change(call, OF_SUBSCRIPTION, lambda grants: grants.update({name: roles}))


async def revoke_subscription(call: AdminRequest) -> None:
    name, role = call.names["subscription"], call.names["role"]

    def revoke(grants: Grants) -> None:
        remaining = [one for one in grants.pop(name, []) if one != role]
        if remaining:
            grants[name] = remaining

    await _change(call, OF_SUBSCRIPTION, revoke)


# Bodies.


def _parse_list(raw: Any, kind: type, what: str) -> list[Any] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > 1_000 or not all(isinstance(one, kind) for one in raw):
        raise HttpError(400, f"{str(raw)[:100]} must be a list of at most 1000 {what}")
    return raw


def _parse_roles(raw: Any) -> list[str] | None:
    roles = _parse_list(raw, str, "names")
    return None if roles is None else list(dict.fromkeys(roles))


def _parse_actions(raw: Any) -> list[str] | None:
    actions = _parse_roles(raw)
    wrong = [one for one in actions or [] if one not in ACTIONS]
    if wrong:
        raise HttpError(400, f"{wrong[0]!r} is none of {', '.join(ACTIONS)}")
    return actions


def _parse_options(raw: Any) -> list[dict[str, Any]] | None:
    options = _parse_list(raw, dict, "JSON objects")
    return None if options is None else [_option(one) for one in options]


def _option(raw: dict[str, Any]) -> dict[str, Any]:
    for name in ("topic", "role"):
        if not isinstance(raw.get(name), str):
            raise HttpError(400, f"{name}: {str(raw.get(name))[:100]!r} must be a text")
    try:
        TopicName.parse(raw["topic"])
    except ValueError as problem:
        raise HttpError(400, f"topic: {problem}") from None
    return {"topic": raw["topic"], "role": raw["role"], "actions": _parse_actions(raw.get("actions"))}


_ACTIONS = Body(_parse_actions, {"type": "array", "items": {"enum": list(ACTIONS)}})
_OPTIONS = Body(
    _parse_options,
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "topic": {"type": "string"},
                "role": {"type": "string"},
                "actions": {"type": "array", "items": {"enum": list(ACTIONS)}},
            },
            "required": ["topic", "role"],
        },
    },
)
_ROLES = Body(_parse_roles, {"type": "array", "items": {"type": "string"}})
_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}/permissions"
_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/permissions"


RESOURCES = stored_only(
    PERMISSIONS.kept,
    Resource(_NAMESPACE, get=reads(of_namespace, "Permissions by role.")),
    Resource(
        f"{_NAMESPACE}/{{role}}",
        post=changes(grant_namespace, "Grant a role these actions.", body=_ACTIONS),
        delete=changes(revoke_namespace, "Revoke a role's actions."),
    ),
    Resource(f"{_NAMESPACE}/subscription", get=reads(of_subscriptions, "Permitted roles by subscription.")),
    Resource(
        f"{_NAMESPACE}/subscription/{{subscription}}",
        post=changes(grant_subscription, "Permit these roles to use a subscription.", body=_ROLES),
    ),
    Resource(
        f"{_NAMESPACE}/{{subscription}}/{{role}}",
        delete=changes(revoke_subscription, "Revoke one role of a subscription."),
    ),
    Resource(
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        post=changes(grant_topics, "Grant roles actions on several topics.", body=_OPTIONS),
    ),
    Resource(
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        post=changes(
            revoke_topics,
            "Revoke roles' actions on several topics; stops at the first role without any.",
            body=_OPTIONS,
        ),
    ),
    Resource(_TOPIC, get=reads(of_topic, "Permissions by role, of the namespace and the topic.")),
    Resource(
        f"{_TOPIC}/{{role}}",
        post=changes(grant_topic, "Grant a role these actions on the topic.", body=_ACTIONS),
        delete=changes(revoke_topic, "Revoke a role's actions on the topic; 412 if it has none."),
    ),
)
