"""Authorization of commands and of admin requests.

Every client may use everything that the region offers to clients. Operations between regions are reserved for
authenticated peers.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple

from emulator.errors import ProtocolError, ServerError


class TrustLevel(IntEnum):
    """The level to which the other side of a connection is authenticated."""

    UNAUTHENTICATED = auto()
    """A connection that has not sent CONNECT."""
    CLIENT = auto()
    PEER = auto()
    """A connection that is authenticated as another region of the run. It may do everything that a client may."""
    CONTROL = auto()
    """The programs of geoemu that control the run, at the HTTP port. They may do everything that a superuser may."""


class Action(Enum):
    """An operation on a resource."""

    LOOK_UP = auto()
    PRODUCE = auto()
    CONSUME = auto()
    READ = auto()
    """Read a resource through the admin API."""
    CHANGE = auto()
    """Change a resource through the admin API."""
    REPLICATE = auto()
    """Replicate into a resource, as another region."""


class ResourceScope(Enum):
    """The kind of resource that a path of the admin API addresses."""

    REGION = "region"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class ProtectedResource(NamedTuple):
    """The resource of an operation."""

    kind: str
    """`topic`, `namespace`, `tenant` or `region`."""
    name: str


def authorize(trust: TrustLevel, action: Action, resource: ProtectedResource) -> None:
    """Raise ProtocolError (AuthorizationError) for replication that is not by an authenticated peer. Every other action
    is allowed."""
    if action is Action.REPLICATE and trust is not TrustLevel.PEER:
        raise ProtocolError(
            ServerError.AuthorizationError,
            f"{resource.kind} {resource.name}: only another region of the run may replicate into it",
        )
