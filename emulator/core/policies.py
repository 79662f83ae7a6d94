"""Policies: what each is, and what applies to a topic when several places set it.

One declaration a policy: its name, form, default, where it may be set, how the places are merged, and which module
obeys it (P1). Unset and "set to the default" are different: only what is set hides what a wider place says (P2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from emulator.core.partitions import PARTITIONS_MAX, Partitioned
from emulator.model import is_valid_name

T = TypeVar("T")

MILLISECONDS_MAX: Final = 3_600_000
"""An hour: what is longer was meant in another unit."""


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
    obeyed_by: str
    """The module that acts on it; it lists the policy in `OBEYS`."""
    doc: str
    merge: Callable[[Sequence[T]], T] = nearest
    """Of the values that are set, the widest scope first; there is at least one."""


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _region_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} is no list of region names")
    wrong = [name for name in value if not is_valid_name(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no name of a region")
    return tuple(dict.fromkeys(value))  # a set to Pulsar, too: naming a region twice means nothing more


def _milliseconds(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MILLISECONDS_MAX:
        raise ValueError(f"{value!r} is no whole number of milliseconds, 0 to {MILLISECONDS_MAX}")
    return value


def _region_or_none(value: Any) -> str:
    if not isinstance(value, str) or (value and not is_valid_name(value)):
        raise ValueError(f"{value!r} is no name of a region")
    return value


class AutoCreation(NamedTuple):
    """Whether topics are created when somebody uses them."""

    allowed: bool
    partitions: int
    """0: a topic without partitions."""


def _auto_creation(value: Any) -> AutoCreation:
    if not isinstance(value, dict) or not isinstance(value.get("allowAutoTopicCreation"), bool):
        raise ValueError(f"{value!r} does not say allowAutoTopicCreation: true or false")
    kind, count = value.get("topicType") or "non-partitioned", value.get("defaultNumPartitions")
    if kind not in ("partitioned", "non-partitioned"):
        raise ValueError(f"topicType: {kind!r} is neither partitioned nor non-partitioned")
    if kind == "non-partitioned":
        return AutoCreation(value["allowAutoTopicCreation"], 0)
    return AutoCreation(value["allowAutoTopicCreation"], Partitioned(1 if count is None else count).count)


def _auto_creation_as_json(value: AutoCreation | None) -> dict[str, Any]:
    assert value is not None, "only what is set is encoded"
    return {
        "allowAutoTopicCreation": value.allowed,
        "topicType": "partitioned" if value.partitions else "non-partitioned",
        "defaultNumPartitions": value.partitions or None,
    }


BOOLEAN = Codec(_boolean, bool, {"type": "boolean"})
REGION_NAMES: Codec[tuple[str, ...]] = Codec(
    _region_names, list, {"type": "array", "items": {"type": "string"}}
)

MILLISECONDS: Codec[int] = Codec(
    _milliseconds, int, {"type": "integer", "minimum": 0, "maximum": MILLISECONDS_MAX}
)
REGION_OR_NONE: Codec[str] = Codec(_region_or_none, str, {"type": "string"})

AUTO_CREATION: Codec[AutoCreation | None] = Codec(
    _auto_creation,
    _auto_creation_as_json,
    {
        "type": "object",
        "properties": {
            "allowAutoTopicCreation": {"type": "boolean"},
            "topicType": {"enum": ["partitioned", "non-partitioned"]},
            "defaultNumPartitions": {"type": ["integer", "null"], "minimum": 1, "maximum": PARTITIONS_MAX},
        },
        "required": ["allowAutoTopicCreation"],
    },
)

REPLICATION_CLUSTERS: Policy[tuple[str, ...]] = Policy(
    name="replication_clusters",
    codec=REGION_NAMES,
    default=(),
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.topic_assembly",
    doc="Regions that share the messages (to Pulsar a region is a cluster). Only one: no replication. A region that is "
    "not among them sends nobody anything.",
)
DEDUPLICATION: Policy[bool] = Policy(
    name="deduplication",
    codec=BOOLEAN,
    default=False,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.topic_assembly",
    doc="Store a producer's message once, however often it is sent; from the moment it is set on.",
)
KEEP_ALIVE_INTERVAL: Policy[int] = Policy(
    name="keep_alive_interval_ms",
    codec=MILLISECONDS,
    default=0,
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic_assembly",
    doc="Clients with a producer here are asked so often whether they live; one that says nothing until the next time "
    "is gone. 0: as the region asks everybody.",
)
EXCLUSIVE_HOME: Policy[str] = Policy(
    name="exclusive_home",
    codec=REGION_OR_NONE,
    default="",
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic_assembly",
    doc="The one region in which clients publish to the namespace's topics, so that an exclusive producer is the only "
    "one in all regions. In others exclusive producers wait, and all else is refused. Empty: each region for itself.",
)
AUTO_TOPIC_CREATION: Policy[AutoCreation | None] = Policy(
    name="auto_topic_creation",
    codec=AUTO_CREATION,
    default=None,
    scopes=frozenset({Scope.BROKER, Scope.NAMESPACE}),
    obeyed_by="emulator.broker.partitions",
    doc="Whether topics are created when somebody uses them, and with how many partitions. Unset: as the region's "
    "settings say, without partitions.",
)

REGISTRY: Mapping[str, Policy[Any]] = {
    policy.name: policy
    for policy in (
        REPLICATION_CLUSTERS,
        DEDUPLICATION,
        KEEP_ALIVE_INTERVAL,
        EXCLUSIVE_HOME,
        AUTO_TOPIC_CREATION,
    )
}


def effective(policy: Policy[T], places: Mapping[Scope, Mapping[str, Any]]) -> T:
    """What applies, given what each place sets (by policy name, as in JSON). ValueError for a value that is none."""
    values = [
        policy.codec.decode(places[scope][policy.name])
        for scope in Scope
        if scope in policy.scopes and policy.name in places.get(scope, {})
    ]
    return policy.merge(values) if values else policy.default
