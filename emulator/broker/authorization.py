"""Levels of trust, actions and resources of commands and admin requests. `authorizer` checks permissions of roles."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple


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
    """Whether an operation of the admin API changes something."""

    READ = auto()
    CHANGE = auto()


class ResourceScope(Enum):
    """The kind of resource that a path of the admin API addresses."""

    REGION = "region"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class ProtectedResource(NamedTuple):
    """The resource of a command, as refusals name it."""

    kind: str
    """`topic`, `namespace`, `region`, …"""
    name: str
