"""Policies: what each is, and what applies to a topic when several places set it.

One declaration a policy: its name, form, default, where it may be set, how the places are merged, and which module
obeys it (PO1). Unset and "set to the default" are different: only what is set hides what a wider place says (PO2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
BELOW_ZERO: Final = "{} must be 0 or more"
"""`Policy.below_zero` of most numbers."""


class OutOfRange(ValueError):
    """A value of the right form that cannot be meant. Tools expect another answer than for what is no value."""


class OutOfRangeVerbatim(OutOfRange):
    """An OutOfRange whose sentence is Pulsar's, word for word: clients compare it."""


class Scope(Enum):
    """Where a policy may be set, the widest first."""

    BROKER = "broker"
    """For all regions of the cluster."""
    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How a value stands in JSON."""

    decode: Callable[[Any], T]
    """ValueError, with the rule, for what is none."""
    encode: Callable[[T], Any]
    schema: Mapping[str, Any]
    """JSON Schema of it."""


def nearest(values: Sequence[T]) -> T:
    """Topic over namespace over broker."""
    return values[-1]


@dataclass(frozen=True, slots=True)
class Policy(Generic[T]):
    name: str
    codec: Codec[T]
    default: T
    scopes: frozenset[Scope]
    doc: str
    obeyed_by: str = ""
    """The module that acts on it; it lists the policy in `OBEYS`. Empty: it is only stored."""
    kept: str = ""
    """Why no region acts on it, although tools may set it and read it back. Empty: it is obeyed."""
    own_rows: bool = False
    """Its rows in the admin API are written by hand: they are no GET, POST and DELETE of one value."""
    unset: Any = None
    """The JSON of a response where nothing sets it. None: no content (204)."""
    at_namespace: str = ""
    """The last segment of its path in the admin API, if it may be set there; Pulsar names them."""
    namespaces_put: bool = False
    """Pulsar's tools set it at namespaces by PUT; by POST it can be set everywhere."""
    at_topic: str = ""
    at_broker: str = ""
    """What Pulsar calls it among a broker's settings, if it may be set there while regions run."""
    below_zero: str = ""
    """What Pulsar says of a negative number, which clients compare; `{}` is the last segment of the path."""
    set_without_body: bool = False
    """To set it is to say yes: tools send no body."""
    query_at_topic: str = ""
    """Tools send a topic's value behind the `?`, under this name, and no body."""
    merge: Callable[[Sequence[T]], T] = nearest
    """Of the values that are set, the widest scope first; there is at least one."""


def effective(policy: Policy[T], places: Mapping[Scope, Mapping[str, Any]]) -> T:
    """What applies, given what each place sets (by policy name, as in JSON). ValueError for a value that is none."""
    values = [
        policy.codec.decode(places[scope][policy.name])
        for scope in Scope
        if scope in policy.scopes and policy.name in places.get(scope, {})
    ]
    return policy.merge(values) if values else policy.default
