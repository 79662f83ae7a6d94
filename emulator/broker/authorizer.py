"""The authorization of a region: applies the rule to its tenants and namespaces, and refuses what a role may not do.

Grants are read when a producer or consumer attaches, at lookups and at requests; not for each message. A revoked grant
therefore does not end producers and consumers that are attached, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from emulator.broker.authorization import TrustLevel
from emulator.broker.metadata.policies import Policies
from emulator.config.security import AuthorizationConfig
from emulator.core.authorization.rule import (
    AccessPolicies,
    Permission,
    SpecialRoles,
    Target,
    refusal,
)
from emulator.core.policies.permissions import PERMISSIONS, PREFIX, SUBSCRIPTION_AUTH_MODE
from emulator.errors import ProtocolError, ServerError
from emulator.model.principals import Principal

OBEYS: Final = (PERMISSIONS, SUBSCRIPTION_AUTH_MODE)
"""Policies that this module enforces (PO1)."""


AdminsOf = Callable[[str], Collection[str] | None]
"""Returns the admin roles of a tenant; None if it does not exist."""
SYSTEM_TENANT: Final = "pulsar"
"""Tenant of the topic of the coordinators, which exists for clients in each region."""
_IN_TENANT: Final = frozenset(Permission) - {Permission.PUBLIC, Permission.ANY_ROLE, Permission.SUPERUSER}
"""Permissions that the admins of a tenant have."""


class Requirement(NamedTuple):
    """A permission that a command or request requires, and on what."""

    permission: Permission
    target: Target = Target()


class Authorizer:
    """Checks permissions in one region with authorization."""

    def __init__(self, config: AuthorizationConfig, policies: Policies, admins_of: AdminsOf) -> None:
        self._special = SpecialRoles(
            frozenset(config.superusers), frozenset(config.proxy_roles), config.wildcards
        )
        self._policies = policies
        self._admins_of = admins_of
        self.refusals: dict[Permission, int] = dict.fromkeys(Permission, 0)
        """Permission -> number of commands and requests that were refused because the sender lacks it."""

    def check(self, trust: TrustLevel, principal: Principal, requirement: Requirement) -> None:
        """Raise ProtocolError for a sender without the permission: AuthorizationError, or, for a role that names a
        tenant which does not exist, TopicNotFound. Other regions and the programs that control the run have all
        permissions."""
        if trust in (TrustLevel.PEER, TrustLevel.CONTROL):
            return
        permission, target = requirement
        reason = refusal(principal, permission, target, self._special, self._policies_of(target))
        if reason is None:
            return
        self.refusals[permission] += 1
        if principal.role and permission in _IN_TENANT and self._is_missing(target.tenant):
            raise ProtocolError(ServerError.TopicNotFound, "Tenant does not exist")  # as in Pulsar
        raise ProtocolError(ServerError.AuthorizationError, f"not authorized: {reason}")

    def _is_missing(self, tenant: str) -> bool:
        return tenant not in ("", SYSTEM_TENANT) and self._admins_of(tenant) is None

    def _policies_of(self, target: Target) -> AccessPolicies:
        """Return the policies that decide about a target. A tenant or namespace that does not exist grants nothing."""
        admins = (self._admins_of(target.tenant) if target.tenant else None) or ()
        if not target.namespace:
            return AccessPolicies(admins)
        of_namespace = self._policies.of_namespace
        return AccessPolicies(
            admins,
            of_namespace(target.namespace, PERMISSIONS),
            of_namespace(target.namespace, SUBSCRIPTION_AUTH_MODE) == PREFIX,
        )
