"""Permissions of roles: stored and returned, not enforced."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.core.policies.stored_only import PERMISSIONS
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import TopicName

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
GRANTS_MAX: Final = 10_000
Grants = dict[str, Any]


def _place(call: AdminRequest) -> NamespacePath:
    return NamespacePath(call.context.namespace(call.names["tenant"], call.names["namespace"]))


def _present(call: AdminRequest, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = call.context.region.policies.set_at(_place(call)).get(PERMISSIONS.name, {})
    of_kind: Mapping[str, Any] = found.get(kind, {})
    return of_kind


async def _change(call: AdminRequest, kind: str, changed: Callable[[Grants], None]) -> Response:
    """HttpError 412 for too many permissions."""

    def grants(present: Mapping[str, Any] | None) -> Mapping[str, Any]:
        new = copy.deepcopy(dict(present or {}))
        of_kind = new.setdefault(kind, {})
        changed(of_kind)
        count = sum(len(one) if isinstance(one, dict) else 1 for of in new.values() for one in of.values())
        if count > GRANTS_MAX:
            raise HttpError(412, f"a namespace may have {GRANTS_MAX} grants at most")
        return new

    await call.context.region.policies.change(_place(call), PERMISSIONS, grants)
    return Response(status=204)


def _needed(call: AdminRequest) -> list[str]:
    if call.body is None:
        raise HttpError(400, "the body must be a list")
    given: list[str] = call.body
    return given


async def of_namespace(call: AdminRequest) -> Response:
    return Response(_present(call, "namespace_auth"))


async def grant_namespace(call: AdminRequest) -> Response:
    actions, role = _needed(call), call.names["role"]
    return await _change(call, "namespace_auth", lambda grants: grants.update({role: actions}))


async def revoke_namespace(call: AdminRequest) -> Response:
    return await _change(call, "namespace_auth", lambda grants: grants.pop(call.names["role"], None))


async def of_topic(call: AdminRequest) -> Response:
    """Topics inherit the permissions of their namespace."""
    topic = str(call.context.region.check_topic(topic_name(call.names)))
    of_topic = _present(call, "topic_auth").get(topic, {})
    roles = {**_present(call, "namespace_auth")}
    for role, actions in of_topic.items():
        roles[role] = sorted({*roles.get(role, ()), *actions})
    return Response(roles)


async def grant_topic(call: AdminRequest) -> Response:
    topic, role = str(call.context.region.check_topic(topic_name(call.names))), call.names["role"]
    actions = _needed(call)
    return await _change(
        call, "topic_auth", lambda grants: grants.setdefault(topic, {}).update({role: actions})
    )


async def revoke_topic(call: AdminRequest) -> Response:
    topic, role = str(call.context.region.check_topic(topic_name(call.names))), call.names["role"]
    if role not in _present(call, "topic_auth").get(topic, {}):
        raise HttpError(412, f"Permissions are not set at the topic level for {role}")

    def revoke(grants: Grants) -> None:
        grants.get(topic, {}).pop(role, None)

    return await _change(call, "topic_auth", revoke)


async def grant_topics(call: AdminRequest) -> Response:
    return await _each(call, grant_topic)


async def revoke_topics(call: AdminRequest) -> Response:
    return await _each(call, revoke_topic)


async def _each(call: AdminRequest, change: Callable[[AdminRequest], Awaitable[Response]]) -> Response:
    """Change the permissions of each topic in the body. HttpError of the first that fails; earlier ones are done."""
    if call.body is None:
        raise HttpError(400, "the body must be a list")
    for one in call.body:
        topic = TopicName.parse(one["topic"])
        tenant, namespace = topic.tenant, topic.namespace
        names = {"tenant": tenant, "namespace": namespace, "topic": topic.topic, "role": one["role"]}
        call.context.resource(ResourceScope.TOPIC, names)
        await change(replace(call, names=names, body=one.get("actions")))
    return Response(status=204)


async def of_subscriptions(call: AdminRequest) -> Response:
    return Response(_present(call, "subscription_auth_roles"))


async def grant_subscription(call: AdminRequest) -> Response:
    roles, name = _needed(call), call.names["subscription"]
    return await _change(call, "subscription_auth_roles", lambda grants: grants.update({name: roles}))


async def revoke_subscription(call: AdminRequest) -> Response:
    name, role = call.names["subscription"], call.names["role"]

    def revoke(grants: Grants) -> None:
        left = [one for one in grants.pop(name, []) if one != role]
        if left:
            grants[name] = left

    return await _change(call, "subscription_auth_roles", revoke)


def _parse_actions(raw: Any) -> list[str] | None:
    actions = _parse_roles(raw)
    wrong = [one for one in actions or [] if one not in ACTIONS]
    if wrong:
        raise HttpError(400, f"{wrong[0]!r} is none of {', '.join(ACTIONS)}")
    return actions


def _parse_options(raw: Any) -> list[dict[str, Any]] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > 1_000 or not all(isinstance(one, dict) for one in raw):
        raise HttpError(400, f"{str(raw)[:100]} must be a list of at most 1000 JSON objects")
    return [_option(one) for one in raw]


def _option(raw: dict[str, Any]) -> dict[str, Any]:
    for name in ("topic", "role"):
        if not isinstance(raw.get(name), str):
            raise HttpError(400, f"{name}: {str(raw.get(name))[:100]!r} must be a text")
    try:
        TopicName.parse(raw["topic"])
    except ValueError as problem:
        raise HttpError(400, f"topic: {problem}") from None
    return {"topic": raw["topic"], "role": raw["role"], "actions": _parse_actions(raw.get("actions"))}


def _parse_roles(raw: Any) -> list[str] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > 1_000 or not all(isinstance(one, str) for one in raw):
        raise HttpError(400, f"{str(raw)[:100]} is not a list of at most 1000 names")
    return list(dict.fromkeys(raw))


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


def _row(path: str, scope: ResourceScope, **operations: Any) -> Resource:
    return Resource(path, scope, kept=PERMISSIONS.kept, **operations)


RESOURCES = (
    _row(_NAMESPACE, ResourceScope.NAMESPACE, get=reads(of_namespace, "Permissions by role.")),
    _row(
        f"{_NAMESPACE}/{{role}}",
        ResourceScope.NAMESPACE,
        post=changes(grant_namespace, "Grant a role these actions.", body=_ACTIONS),
        delete=changes(revoke_namespace, "Revoke a role's actions."),
    ),
    _row(
        f"{_NAMESPACE}/subscription",
        ResourceScope.NAMESPACE,
        get=reads(of_subscriptions, "Permitted roles by subscription."),
    ),
    _row(
        f"{_NAMESPACE}/subscription/{{subscription}}",
        ResourceScope.NAMESPACE,
        post=changes(grant_subscription, "Permit these roles to use a subscription.", body=_ROLES),
    ),
    _row(
        f"{_NAMESPACE}/{{subscription}}/{{role}}",
        ResourceScope.NAMESPACE,
        delete=changes(revoke_subscription, "Revoke one role of a subscription."),
    ),
    _row(
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        ResourceScope.REGION,
        post=changes(grant_topics, "Grant roles actions on several topics.", body=_OPTIONS),
    ),
    _row(
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        ResourceScope.REGION,
        post=changes(revoke_topics, "Take roles' actions on several topics away.", body=_OPTIONS),
    ),
    _row(
        _TOPIC,
        ResourceScope.TOPIC,
        get=reads(of_topic, "Permissions by role, of the namespace and the topic."),
    ),
    _row(
        f"{_TOPIC}/{{role}}",
        ResourceScope.TOPIC,
        post=changes(grant_topic, "Grant a role these actions on the topic.", body=_ACTIONS),
        delete=changes(revoke_topic, "Revoke a role's actions on the topic; 412 if it has none."),
    ),
)
