"""The rule of authorization: whether a principal has the permission that an operation requires.

It is Pulsar's: a superuser may do everything, an admin of a tenant everything in the tenant; other roles need a grant
of the namespace, of the topic, or both of the topic and of the subscription. For a role of a proxy, the proxy and the
client for which it acts need the permission. A principal without a role has no permission.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final, NamedTuple

from emulator.core.authorization.grants import NO_GRANTS, ActionsByRole, Grants
from emulator.model.principals import Principal
from emulator.model.values import TopicName


class Permission(Enum):
    """The permission that an operation requires. Superusers have each of them, tenant admins each but `SUPERUSER` on
    what belongs to their tenant."""

    PUBLIC = "none, not even authentication"
    ANY_ROLE = "any authenticated role"
    SUPERUSER = "superuser"
    TENANT_ADMIN = "admin of the tenant"
    NAMESPACE_CONSUME = "consume on the namespace"
    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "produce or consume"


class Target(NamedTuple):
    """The object of an operation; empty parts are not named by the operation."""

    tenant: str = ""
    namespace: str = ""
    """`tenant/namespace`."""
    topic: TopicName | None = None
    subscription: str = ""


class SpecialRoles(NamedTuple):
    """Roles with a meaning of their own in a region, and the way in which roles are matched."""

    superusers: Collection[str] = ()
    proxies: Collection[str] = ()
    wildcards: bool = False
    """Whether a grant to `name*`, `*name` or `*` is one to all roles that begin or end so, or to all."""


class AccessPolicies(NamedTuple):
    """The policies of a tenant and a namespace that decide about access."""

    admins: Collection[str] = ()
    """Admin roles of the tenant."""
    grants: Grants = NO_GRANTS
    needs_role_prefix: bool = False
    """`subscriptionAuthMode` Prefix: the name of a subscription must begin with the role."""


def topic_target(topic: TopicName, subscription: str = "") -> Target:
    """Return a topic, or a subscription of it, as a target."""
    return Target(topic.tenant, topic.full_namespace, topic, subscription)


def namespace_target(namespace: str) -> Target:
    """Return a namespace as a target. `namespace`: `tenant/namespace`."""
    return Target(namespace.partition("/")[0], namespace)


NOTHING_GRANTED: Final = AccessPolicies()
_ACTIONS: Final = {
    Permission.PRODUCE: ("produce",),
    Permission.CONSUME: ("consume",),
    Permission.LOOKUP: ("produce", "consume"),
}


def refusal(
    principal: Principal,
    permission: Permission,
    target: Target,
    special: SpecialRoles,
    policies: AccessPolicies = NOTHING_GRANTED,
) -> str | None:
    """Return why a principal lacks a permission on a target; None if it has the permission. `policies`: those of the
    target's tenant and namespace."""
    if permission is Permission.PUBLIC:
        return None
    if not principal.role:
        return "the sender has no role"
    if principal.role in special.proxies:
        if not principal.original:
            return f"proxy {principal.role} does not name the role for which it acts"
        if principal.original in special.proxies:
            return f"proxy {principal.role} acts for {principal.original}, which is a proxy, too"
    for role in dict.fromkeys(filter(None, principal)):
        reason = _refusal_of_role(role, permission, target, special, policies)
        if reason is not None:
            return reason
    return None


def _refusal_of_role(
    role: str, permission: Permission, target: Target, special: SpecialRoles, policies: AccessPolicies
) -> str | None:
    if permission is Permission.ANY_ROLE or role in special.superusers:
        return None
    if permission is Permission.SUPERUSER:
        return f"role {role} is no superuser"
    if target.tenant and role in policies.admins:
        return None
    if permission is Permission.TENANT_ADMIN:
        return f"role {role} is no admin of tenant {target.tenant}"
    if permission is Permission.NAMESPACE_CONSUME:
        allowed = _has_action(policies.grants.by_role, role, "consume", special.wildcards)
        return None if allowed else f"role {role} lacks consume on namespace {target.namespace}"
    return _refusal_on_topic(role, permission, target, special, policies)


def _refusal_on_topic(
    role: str, permission: Permission, target: Target, special: SpecialRoles, policies: AccessPolicies
) -> str | None:
    name = target.subscription
    if permission is Permission.CONSUME and name:
        roles = policies.grants.by_subscription.get(name)
        if roles and role not in roles:
            return f"role {role} may not use subscription {name}"
        if policies.needs_role_prefix and not name.startswith(role):
            return f"the name of subscription {name} must begin with the role {role}"
    granted = _grants_on(target.topic, policies.grants)
    actions = _ACTIONS[permission]
    if any(_has_action(by_role, role, one, special.wildcards) for by_role in granted for one in actions):
        return None
    return f"role {role} lacks {' and '.join(actions)} on {target.topic}"


def _grants_on(topic: TopicName | None, grants: Grants) -> list[ActionsByRole]:
    """Return the grants that apply to a topic: of its namespace, of itself, and of the topic whose partition it is."""
    if topic is None:
        return [grants.by_role]
    names = {str(topic), str(topic.partitioned or topic)}
    return [grants.by_role, *(grants.by_topic[name] for name in names if name in grants.by_topic)]


def _has_action(by_role: ActionsByRole, role: str, action: str, wildcards: bool) -> bool:
    if action in by_role.get(role, ()):
        return True
    return wildcards and any(
        action in actions and _matches(pattern, role) for pattern, actions in by_role.items()
    )


def _matches(pattern: str, role: str) -> bool:
    return (pattern.endswith("*") and role.startswith(pattern[:-1])) or (
        pattern.startswith("*") and role.endswith(pattern[1:])
    )
