"""The context of admin handlers: the region, its links, its own address, and authorization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emulator.broker.admin.http import HttpError, RequestHead
from emulator.broker.authorization import Action, ProtectedResource, ResourceScope, TrustLevel, authorize
from emulator.broker.region import Region
from emulator.broker.replication.link_emulation import EmulatedLink
from emulator.model.values import PERSISTENT, is_valid_name
from emulator.net.addresses import in_url

Authorize = Callable[[RequestHead, Action, ProtectedResource], None]
"""Checks that the sender of a request may do something. ProtocolError (authentication or authorization) if not."""


def allow_clients(head: RequestHead, action: Action, resource: ProtectedResource) -> None:
    """Authorize every sender as a client: requests are not authenticated yet."""
    authorize(TrustLevel.CLIENT, action, resource)


@dataclass(slots=True)
class AdminContext:
    """Created by `Admin`, one per region."""

    region: Region
    links: dict[str, EmulatedLink]
    """By peer region; empty where links are not emulated in the region."""
    authorize: Authorize = allow_clients
    port: int = 0
    """The server's port; known once it listens."""

    def url(self, came_by: str) -> str:
        """The admin URL for clients outside, of which one connected to our address `came_by`."""
        config = self.region.config
        host = in_url(config.advertised_host or came_by)
        return f"http://{host}:{config.advertised_admin_port or self.port}"

    def resource(self, scope: ResourceScope, names: Mapping[str, str]) -> ProtectedResource:
        """Return the resource that a row addresses with these names in its path. HttpError 412 for an impossible name:
        with a slash inside, two different paths would address the same topic."""
        for kind in ("tenant", "namespace"):
            if not is_valid_name(names.get(kind, "none")):
                raise HttpError(412, f"{names[kind]!r} is not a valid {kind} name")
        match scope:
            case ResourceScope.REGION:
                return ProtectedResource(scope.value, self.region.config.region)
            case ResourceScope.TENANT:
                return ProtectedResource(scope.value, names["tenant"])
            case ResourceScope.NAMESPACE:
                return ProtectedResource(scope.value, f"{names['tenant']}/{names['namespace']}")
            case ResourceScope.TOPIC:
                return ProtectedResource(scope.value, topic_name(names))

    def namespace(self, tenant: str, namespace: str) -> str:
        """The full name of a namespace. HttpError 404 when it does not exist."""
        name = f"{tenant}/{namespace}"
        if not self.region.policies.has_namespace(name):
            missing = "Namespace" if tenant in self.region.policies.tenants() else "Tenant"
            raise HttpError(404, f"{missing} does not exist")
        return name


def topic_name(names: Mapping[str, str]) -> str:
    """The full name of the topic in a path."""
    domain = names.get("domain", PERSISTENT)
    return f"{domain}://{names['tenant']}/{names['namespace']}/{names['topic']}"
