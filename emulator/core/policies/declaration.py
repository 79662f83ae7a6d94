"""Declarations of policies, and the effective value of a policy that is set at several scopes.

Each policy has one declaration: its name, JSON form, default, scopes, how the values of several scopes are merged, and
the module that enforces it (PO1). "Unset" differs from "set to the default": only a value that is set overrides that of
a wider scope (PO2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
BELOW_ZERO: Final = "{} must be 0 or more"
"""`Policy.below_zero` of most numeric policies."""


class OutOfRange(ValueError):
    """A value of the right type that is not permitted. The admin API responds with 412, and with 400 to other invalid
    values."""


class OutOfRangeVerbatim(OutOfRange):
    """An OutOfRange with Pulsar's message, which clients compare."""


class Scope(Enum):
    """Scopes at which a policy may be set, the widest first."""

    BROKER = "broker"
    """All regions of the cluster."""
    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """The JSON form of a policy's values."""

    decode: Callable[[Any], T]
    """Returns the value of a JSON value. Raises ValueError, naming the violated rule, for an invalid one."""
    encode: Callable[[T], Any]
    schema: Mapping[str, Any]
    """JSON Schema of the form."""


def nearest(values: Sequence[T]) -> T:
    """Return the value of the narrowest scope: topic over namespace over broker."""
    return values[-1]


@dataclass(frozen=True, slots=True)
class Policy(Generic[T]):
    """The declaration of one policy. Paths and names of the admin API are Pulsar's."""

    name: str
    codec: Codec[T]
    default: T
    scopes: frozenset[Scope]
    doc: str
    obeyed_by: str = ""
    """The module that enforces the policy and lists it in `OBEYS`. Empty: the policy is stored only."""
    kept: str = ""
    """Why no region enforces the policy, although tools may set and read it. Empty: it is enforced."""
    own_rows: bool = False
    """Whether its operations of the admin API are declared separately, because they are not GET, POST and DELETE of one
    value."""
    unset: Any = None
    """JSON of the response to GET when the policy is not set. None: no content (204)."""
    at_namespace: str = ""
    """Last segment of its path at a namespace, in the admin API; empty: the admin API has no such path."""
    namespaces_put: bool = False
    """Whether PUT sets the policy at namespaces, too, as Pulsar's tools do."""
    at_topic: str = ""
    """Last segment of its path at a topic; empty: the admin API has no such path."""
    at_broker: str = ""
    """Name of the dynamic configuration that sets it for all regions of the cluster; empty: there is none."""
    at_broker_factor: int = 1
    """The policy is this multiple of the dynamic configuration, which has another unit."""
    below_zero: str = ""
    """Pulsar's message for a negative number, which clients compare; `{}` is the last segment of the path."""
    set_without_body: bool = False
    """Whether a request without a body sets the policy to true."""
    query_at_topic: str = ""
    """Name of the query parameter by which tools send a topic's value, in place of a body."""
    merge: Callable[[Sequence[T]], T] = nearest
    """Returns the effective value of at least one value, the widest scope first."""


def effective(policy: Policy[T], by_scope: Mapping[Scope, Mapping[str, Any]]) -> T:
    """Return the effective value of a policy; its default if no scope sets it. `by_scope`: what each scope sets, as
    JSON by policy name. Raises ValueError for an invalid value."""
    values = [
        policy.codec.decode(by_scope[scope][policy.name])
        for scope in Scope
        if scope in policy.scopes and policy.name in by_scope.get(scope, {})
    ]
    return policy.merge(values) if values else policy.default
