"""Policies that are stored but not enforced: regions lack the part of Pulsar's architecture that they configure.

Tools may set and read these policies. Their codecs reject values that a test would rely on and that a region cannot
apply, such as required encryption.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from emulator.core.policies.codecs import BOOLEAN, TEXT, TEXT_BY_NAME, counts, objects_of
from emulator.core.policies.declaration import Codec, Policy, Scope

_NO_BOOKIES = "A region keeps its log in one store of its own: there are no bookies to spread entries over."
_NO_OFFLOADING = "A region does not offload."
LONG_MAX: Final = 2**63 - 1


def _nonnegative(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LONG_MAX:
        raise ValueError(f"{value!r} is not a number, 0 or more")
    return value


def _as_object(value: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(value or {})


RATE: Codec[float] = Codec(_nonnegative, lambda value: value, {"type": "number", "minimum": 0})
_PERSISTENCE_FIELDS = objects_of(
    {
        "bookkeeperEnsemble": counts(),
        "bookkeeperWriteQuorum": counts(),
        "bookkeeperAckQuorum": counts(),
        "managedLedgerMaxMarkDeleteRate": RATE,
        "managedLedgerStorageClassName": TEXT,
    }
)


def _persistence(value: Any) -> Mapping[str, Any]:
    fields = _PERSISTENCE_FIELDS.decode(value)
    ensemble, write, ack = (
        fields.get(f"bookkeeper{name}", 0) for name in ("Ensemble", "WriteQuorum", "AckQuorum")
    )
    if not ensemble >= write >= ack:
        raise ValueError(
            f"Bookkeeper-Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack}) must hold"
        )
    return fields


def _offloading(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or len(value) > 100:
        raise ValueError(f"{str(value)[:100]} is not a JSON object of at most 100 fields")
    return {name: one for name, one in value.items() if one is not None}


def _only_false(value: Any) -> bool:
    if BOOLEAN.decode(value):
        raise ValueError(
            "true: a region does not check whether messages are encrypted, so it cannot require it"
        )
    return False


_FILTERS = objects_of({"entryFilterNames": TEXT})


def _no_filters(value: Any) -> Mapping[str, Any]:
    fields = _FILTERS.decode(value)
    if fields.get("entryFilterNames"):
        raise ValueError(
            f"entryFilterNames: {fields['entryFilterNames']!r}: filters are Java classes, which a region cannot run"
        )
    return fields


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > 1_000:
        raise ValueError(f"{str(value)[:100]} is not a JSON object of at most 1000 fields")
    return value


_AFFINITY_FIELDS = objects_of(
    {"bookkeeperAffinityGroupPrimary": TEXT, "bookkeeperAffinityGroupSecondary": TEXT}
)
_PERSISTENCE = Codec(_persistence, _as_object, _PERSISTENCE_FIELDS.schema)
_AFFINITY = Codec(_AFFINITY_FIELDS.decode, _as_object, _AFFINITY_FIELDS.schema)
_OFFLOADING = Codec(_offloading, _as_object, {"type": "object"})
_ANY_LONG = counts(-LONG_MAX - 1, LONG_MAX)
_BUNDLES = Codec(_object, _as_object, {"type": "object"})


def _row(
    path: str, type_: Codec[Any], why: str, doc: str, *, topics: bool = False, name: str = "", **more: Any
) -> Policy[Any]:
    """Return a stored-only policy of namespaces, and of topics if `topics` is true. `path`: last segment of its path in
    the admin API; `name` defaults to it, in snake case. `why`: why no region enforces it. `more`: further fields."""
    name = name or re.sub("([A-Z])", r"_\1", path).lower()
    scopes = frozenset({Scope.NAMESPACE, Scope.TOPIC} if topics else {Scope.NAMESPACE})
    at_topic = path if topics else ""
    more = {"default": None, **more}
    return Policy(name, type_, scopes=scopes, kept=why, doc=doc, at_namespace=path, at_topic=at_topic, **more)


PERSISTENCE = _row(
    "persistence", _PERSISTENCE, _NO_BOOKIES, "Number of bookies that store each entry.", topics=True
)
RESOURCE_GROUP = _row(
    "resourcegroup",
    TEXT,
    "Rates of a group are shared by the brokers of a Pulsar cluster; a region is one broker.",
    "The resource group whose rates limit the namespace.",
    name="resource_group",
    own_rows=True,
)
BUNDLES = _row(
    "bundles",
    _BUNDLES,
    "A region is one broker that serves all topics: nothing is distributed among brokers.",
    "Number of bundles by which topics are distributed among brokers.",
    own_rows=True,
)
PROPERTIES = _row(
    "properties",
    TEXT_BY_NAME,
    "Properties are annotations of users and tools. Neither a Pulsar broker nor a region acts on them.",
    "Properties of the namespace: text by name.",
    own_rows=True,
)
ANTI_AFFINITY = _row(
    "antiAffinity",
    TEXT,
    "A region is one broker that serves all namespaces: none can be separated from another.",
    "The anti-affinity group of the namespace: different brokers serve the namespaces of one group.",
    name="anti_affinity_group",
    own_rows=True,
)

POLICIES: tuple[Policy[Any], ...] = (
    PERSISTENCE,
    _row(
        "persistence/bookieAffinity",
        _AFFINITY,
        _NO_BOOKIES,
        "Groups of bookies that store entries.",
        name="bookie_affinity",
    ),
    _row("offloadPolicies", _OFFLOADING, _NO_OFFLOADING, "Storage for old entries.", topics=True),
    _row("offloadThreshold", _ANY_LONG, _NO_OFFLOADING, "Size above which entries are offloaded.", unset=-1),
    _row(
        "offloadThresholdInSeconds",
        _ANY_LONG,
        _NO_OFFLOADING,
        "Age above which entries are offloaded.",
        unset=-1,
    ),
    _row(
        "offloadDeletionLagMs",
        _ANY_LONG,
        _NO_OFFLOADING,
        "Time after which offloaded entries are deleted locally.",
    ),
    RESOURCE_GROUP,
    BUNDLES,
    PROPERTIES,
    _row(
        "deduplicationSnapshotInterval",
        counts(),
        "A region stores deduplication state on its own and loses none of it in a crash.",
        "Interval of deduplication snapshots in seconds.",
        topics=True,
    ),
    _row(
        "encryptionRequired",
        Codec(_only_false, bool, {"type": "boolean"}),
        "Only `false` is accepted: a region does not check whether messages are encrypted.",
        "Whether messages must be encrypted.",
        default=False,
        unset=False,
    ),
    _row(
        "entryFilters",
        Codec(_no_filters, _as_object, _FILTERS.schema),
        "Only an empty list is accepted: filters are Java classes, which a region cannot run.",
        "Filters that select the entries that consumers receive.",
        topics=True,
    ),
    ANTI_AFFINITY,
    _row(
        "dispatcherPauseOnAckStatePersistent",
        BOOLEAN,
        "A region stores all individual acknowledgements, so dispatch never has to pause because some "
        "could not be stored.",
        "Whether dispatch pauses while there are more individual acknowledgements than can be stored.",
        topics=True,
        default=False,
        unset=False,
        set_without_body=True,
    ),
)
