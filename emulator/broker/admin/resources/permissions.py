"""Permissions of roles: grants on namespaces, topics and subscriptions. Regions with authorization enforce them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Resource, changes, reads
from emulator.broker.authorizer import Requirement
from emulator.core.authorization.grants import (
    ACTIONS,
    GRANTS_MAX,
    NO_GRANTS,
    ActionsByRole,
    Grants,
    actions_as_json,
)
from emulator.core.authorization.rule import Permission
from emulator.core.policies.permissions import PERMISSIONS
from emulator.model.values import TopicName
from emulator.net.http_server import HttpError


def _grants(call: AdminRequest) -> Grants:
    return call.region.policies.of_namespace(call.namespace(), PERMISSIONS)


async def _change(call: AdminRequest, change: Callable[[Grants], Grants]) -> None:
    """Change the grants of a namespace atomically. HttpError 412 for more than GRANTS_MAX."""

    def changed(present: Grants | None) -> Grants:
        grants = change(present or NO_GRANTS)
        if grants.total > GRANTS_MAX:
            raise HttpError(412, f"a namespace may have {GRANTS_MAX} grants at most")
        return grants

    await call.region.policies.change(call.namespace_path(), PERMISSIONS, changed)


def _set(call: AdminRequest) -> frozenset[str]:
    names: Iterable[str] = call.required_body("a list")
    return frozenset(names)


async def of_namespace(call: AdminRequest) -> Content:
    return actions_as_json(_grants(call).by_role)


async def grant_namespace(call: AdminRequest) -> None:
    given = {call.names["role"]: _set(call)}
    await _change(call, lambda grants: grants._replace(by_role={**grants.by_role, **given}))


async def revoke_namespace(call: AdminRequest) -> None:
    role = call.names["role"]
    await _change(call, lambda grants: grants._replace(by_role=_without(grants.by_role, role)))


def _without(by_role: ActionsByRole, role: str) -> ActionsByRole:
    return {one: actions for one, actions in by_role.items() if one != role}


async def of_topic(call: AdminRequest) -> Content:
    """Return the permissions of a topic by role, combined with those of its namespace."""
    grants = _grants(call)
    roles = dict(grants.by_role)
    for role, actions in grants.by_topic.get(str(call.topic_name()), {}).items():
        roles[role] = roles.get(role, frozenset()) | actions
    return actions_as_json(roles)


async def grant_topic(call: AdminRequest) -> None:
    given = {call.names["role"]: _set(call)}
    await _change_topic(call, lambda present: {**present, **given})


async def revoke_topic(call: AdminRequest) -> None:
    topic, role = str(call.topic_name()), call.names["role"]
    if role not in _grants(call).by_topic.get(topic, {}):
        raise HttpError(412, f"Permissions are not set at the topic level for {role}")
    await _change_topic(call, lambda present: _without(present, role))


async def _change_topic(call: AdminRequest, change: Callable[[ActionsByRole], ActionsByRole]) -> None:
    topic = str(call.topic_name())

    def changed(grants: Grants) -> Grants:
        roles = change(grants.by_topic.get(topic, {}))
        others = {name: one for name, one in grants.by_topic.items() if name != topic}
        return grants._replace(by_topic={**others, topic: roles} if roles else others)

    await _change(call, changed)


async def grant_topics(call: AdminRequest) -> None:
    await _each(call, grant_topic)


async def revoke_topics(call: AdminRequest) -> None:
    await _each(call, revoke_topic)


async def _each(call: AdminRequest, change: Callable[[AdminRequest], Awaitable[None]]) -> None:
    """Change the permissions of each topic and role in the body, as an admin of the topic's tenant. HttpError or
    ProtocolError at the first failure; earlier changes stay."""
    for one in call.required_body("a list"):
        topic = TopicName.parse(one["topic"])
        tenant, namespace = topic.tenant, topic.namespace
        names = {"tenant": tenant, "namespace": namespace, "topic": topic.topic, "role": one["role"]}
        requirement = Requirement(Permission.TENANT_ADMIN, call.context.target(names))
        call.context.authorize(call.sender, requirement)
        await change(replace(call, names=names, body=one.get("actions")))


async def of_subscriptions(call: AdminRequest) -> Content:
    return {name: sorted(roles) for name, roles in _grants(call).by_subscription.items()}


async def grant_subscription(call: AdminRequest) -> None:
    given = {call.names["subscription"]: _set(call)}
    await _change(call, lambda grants: grants._replace(by_subscription={**grants.by_subscription, **given}))


async def revoke_subscription(call: AdminRequest) -> None:
    name, role = call.names["subscription"], call.names["role"]

    def revoke(grants: Grants) -> Grants:
        remaining = grants.by_subscription.get(name, frozenset()) - {role}
        others = {one: roles for one, roles in grants.by_subscription.items() if one != name}
        return grants._replace(by_subscription={**others, name: remaining} if remaining else others)

    await _change(call, revoke)


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
_ADMIN_OF_EACH = "Requires an admin of each topic's tenant."

RESOURCES = (
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
        post=changes(
            grant_topics,
            f"Grant roles actions on several topics. {_ADMIN_OF_EACH}",
            body=_OPTIONS,
            permission=Permission.ANY_ROLE,
        ),
    ),
    Resource(
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        post=changes(
            revoke_topics,
            f"Revoke roles' actions on several topics; stops at the first role without any. {_ADMIN_OF_EACH}",
            body=_OPTIONS,
            permission=Permission.ANY_ROLE,
        ),
    ),
    Resource(_TOPIC, get=reads(of_topic, "Permissions by role, of the namespace and the topic.")),
    Resource(
        f"{_TOPIC}/{{role}}",
        post=changes(grant_topic, "Grant a role these actions on the topic.", body=_ACTIONS),
        delete=changes(revoke_topic, "Revoke a role's actions on the topic; 412 if it has none."),
    ),
)
