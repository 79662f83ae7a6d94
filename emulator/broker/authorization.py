"""Whether somebody may do something: the one place that decides, for commands and for the admin API.

Today everything that the region offers to clients is allowed to every client, and what regions do among each other to
proven peers only.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple

from emulator.errors import ProtocolError, ServerError


class TrustLevel(IntEnum):
    """What the region knows of the other side of a connection."""

    UNAUTHENTICATED = auto()
    """It has not said CONNECT."""
    CLIENT = auto()
    PEER = auto()
    """It proved to be another region of the run. May all that a client may."""


class Action(Enum):
    """What somebody wants to do with a resource."""

    LOOK_UP = auto()
    PRODUCE = auto()
    CONSUME = auto()
    READ = auto()
    """Ask the admin API about it."""
    CHANGE = auto()
    """Change it by the admin API."""
    REPLICATE = auto()
    """Act for another region."""


class ResourceScope(Enum):
    """The kind of resource that a path of the admin API addresses."""

    REGION = "region"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class ProtectedResource(NamedTuple):
    """What it is done to."""

    kind: str
    """`topic`, `namespace`, `tenant` or `region`."""
    name: str


def authorize(trust: TrustLevel, action: Action, resource: ProtectedResource) -> None:
    """ProtocolError AuthorizationError when this is not allowed."""
    if action is Action.REPLICATE and trust is not TrustLevel.PEER:
        raise ProtocolError(
            ServerError.AuthorizationError,
            f"{resource.kind} {resource.name}: only another region of the run may replicate into it",
        )
