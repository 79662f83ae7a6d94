"""Policies of an architecture that regions do not have. Tools set them and read them back; each states why it has no
other effect. A value that a test would rely on, and that a region cannot apply, is rejected by its encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.core.policies.codecs import BOOLEAN, TEXT, TEXT_BY_NAME, TEXTS, counts, objects_of, one_of
from emulator.core.policies.declaration import Codec, Policy, Scope

NAMESPACE: Final = frozenset({Scope.NAMESPACE})
NAMESPACE_AND_TOPIC: Final = frozenset({Scope.NAMESPACE, Scope.TOPIC})
_NO_BOOKIES = "A region keeps its log in one store of its own: there are no bookies to spread entries over."
_NO_OFFLOADING = "A region does not offload."
_NOT_ENFORCED = "Requests are not authorized yet: every client may do everything."
LONG_MAX: Final = 2**63 - 1


def _nonnegative(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LONG_MAX:
        raise ValueError(f"{value!r} is not a number, 0 or more")
    return value


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


def _permissions(value: Any) -> Mapping[str, Any]:
    return {
        kind: {
            name: dict(one) if isinstance(one, dict) else list(TEXTS.decode(one)) for name, one in of.items()
        }
        for kind, of in objects_of(
            {kind: Codec(_object, dict, {"type": "object"}) for kind in PERMISSION_KINDS}
        )
        .decode(value)
        .items()
    }


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > 1_000:
        raise ValueError(f"{str(value)[:100]} is not a JSON object of at most 1000 fields")
    return value


PERMISSION_KINDS: Final = (
    "namespace_auth",
    "topic_auth",
    "subscription_auth_roles",
    "destination_auth",
    "namespaceAuthentication",
    "topicAuthentication",
    "subscriptionAuthentication",
)
"""Whom a grant is about; Java's client and the wire name them differently."""

PERSISTENCE: Policy[Mapping[str, Any] | None] = Policy(
    name="persistence",
    at_namespace="persistence",
    at_topic="persistence",
    codec=Codec(_persistence, lambda value: dict(value or {}), _PERSISTENCE_FIELDS.schema),
    default=None,
    scopes=NAMESPACE_AND_TOPIC,
    obeyed_by="",
    kept=_NO_BOOKIES,
    doc="On how many bookies entries are stored.",
)
_AFFINITY_FIELDS = objects_of(
    {"bookkeeperAffinityGroupPrimary": TEXT, "bookkeeperAffinityGroupSecondary": TEXT}
)
BOOKIE_AFFINITY: Policy[Mapping[str, Any] | None] = Policy(
    name="bookie_affinity",
    at_namespace="persistence/bookieAffinity",
    codec=Codec(_AFFINITY_FIELDS.decode, lambda value: dict(value or {}), _AFFINITY_FIELDS.schema),
    default=None,
    scopes=NAMESPACE,
    obeyed_by="",
    kept=_NO_BOOKIES,
    doc="On which bookies entries are stored.",
)
OFFLOAD_POLICIES: Policy[Mapping[str, Any] | None] = Policy(
    name="offload_policies",
    at_namespace="offloadPolicies",
    at_topic="offloadPolicies",
    codec=Codec(_offloading, lambda value: dict(value or {}), {"type": "object"}),
    default=None,
    scopes=NAMESPACE_AND_TOPIC,
    obeyed_by="",
    kept=_NO_OFFLOADING,
    doc="Where old entries are offloaded to.",
)
_ANY_LONG = counts(-LONG_MAX - 1, LONG_MAX)


def _offload_figure(name: str, at_namespace: str, doc: str) -> Policy[int | None]:
    return Policy(
        name=name,
        at_namespace=at_namespace,
        codec=_ANY_LONG,  # type: ignore[arg-type]
        default=None,
        unset=-1,
        scopes=NAMESPACE,
        obeyed_by="",
        kept=_NO_OFFLOADING,
        doc=doc,
    )


OFFLOAD_THRESHOLD = _offload_figure(
    "offload_threshold", "offloadThreshold", "Size above which entries are offloaded."
)
OFFLOAD_THRESHOLD_SECONDS = _offload_figure(
    "offload_threshold_in_seconds", "offloadThresholdInSeconds", "Age above which entries are offloaded."
)
OFFLOAD_DELETION_LAG: Policy[int | None] = Policy(
    name="offload_deletion_lag_ms",
    at_namespace="offloadDeletionLagMs",
    codec=_ANY_LONG,  # type: ignore[arg-type]
    default=None,
    scopes=NAMESPACE,
    obeyed_by="",
    kept=_NO_OFFLOADING,
    doc="How long offloaded entries are also kept locally.",
)
RESOURCE_GROUP: Policy[str | None] = Policy(
    name="resource_group",
    at_namespace="resourcegroup",
    codec=TEXT,  # type: ignore[arg-type]
    default=None,
    own_rows=True,
    scopes=NAMESPACE,
    obeyed_by="",
    kept="Rates of a group are shared by the brokers of a Pulsar cluster; a region is one broker.",
    doc="The resource group by whose rates the namespace is limited.",
)
PERMISSIONS: Policy[Mapping[str, Any] | None] = Policy(
    name="permissions",
    at_namespace="permissions",
    codec=Codec(_permissions, lambda value: dict(value or {}), {"type": "object"}),
    default=None,
    own_rows=True,
    scopes=NAMESPACE,
    obeyed_by="",
    kept=_NOT_ENFORCED,
    doc="Permissions by role.",
)
SUBSCRIPTION_AUTH_MODE: Policy[str | None] = Policy(
    name="subscription_auth_mode",
    at_namespace="subscriptionAuthMode",
    codec=one_of("None", "Prefix"),  # type: ignore[arg-type]
    default=None,
    unset="None",
    scopes=NAMESPACE,
    obeyed_by="",
    kept=_NOT_ENFORCED,
    doc="Whether subscription names must begin with the role.",
)
BUNDLES: Policy[Mapping[str, Any] | None] = Policy(
    name="bundles",
    at_namespace="bundles",
    codec=Codec(_object, lambda value: dict(value or {}), {"type": "object"}),
    default=None,
    own_rows=True,
    scopes=NAMESPACE,
    obeyed_by="",
    kept="A region is one broker that serves all topics: nothing is distributed among brokers.",
    doc="Number of bundles by which topics are distributed among brokers.",
)
PROPERTIES: Policy[Mapping[str, str] | None] = Policy(
    name="properties",
    at_namespace="properties",
    codec=TEXT_BY_NAME,  # type: ignore[arg-type]
    default=None,
    own_rows=True,
    scopes=NAMESPACE,
    obeyed_by="",
    kept="Properties are annotations of users and tools. Neither a Pulsar broker nor a region acts on them.",
    doc="Notes, by name.",
)
DEDUPLICATION_SNAPSHOT_INTERVAL: Policy[int | None] = Policy(
    name="deduplication_snapshot_interval",
    at_namespace="deduplicationSnapshotInterval",
    at_topic="deduplicationSnapshotInterval",
    codec=counts(),  # type: ignore[arg-type]
    default=None,
    scopes=NAMESPACE_AND_TOPIC,
    obeyed_by="",
    kept="A region stores deduplication state on its own and loses none of it in a crash.",
    doc="Interval of deduplication snapshots in seconds.",
)
ENCRYPTION_REQUIRED: Policy[bool] = Policy(
    name="encryption_required",
    at_namespace="encryptionRequired",
    codec=Codec(_only_false, bool, {"type": "boolean"}),
    default=False,
    unset=False,
    scopes=NAMESPACE,
    obeyed_by="",
    kept="Only `false` is accepted: a region does not check whether messages are encrypted.",
    doc="Whether messages must be encrypted.",
)
ENTRY_FILTERS: Policy[Mapping[str, Any] | None] = Policy(
    name="entry_filters",
    at_namespace="entryFilters",
    at_topic="entryFilters",
    codec=Codec(_no_filters, lambda value: dict(value or {}), _FILTERS.schema),
    default=None,
    scopes=NAMESPACE_AND_TOPIC,
    obeyed_by="",
    kept="Only an empty list is accepted: filters are Java classes, which a region cannot run.",
    doc="Which entries are sent to consumers.",
)
ANTI_AFFINITY: Policy[str | None] = Policy(
    name="anti_affinity_group",
    at_namespace="antiAffinity",
    codec=TEXT,  # type: ignore[arg-type]
    default=None,
    own_rows=True,
    scopes=NAMESPACE,
    obeyed_by="",
    kept="A region is one broker that serves all namespaces: none can be separated from another.",
    doc="Namespaces of one group are served by different brokers.",
)
PAUSE_ON_ACK_STATE: Policy[bool] = Policy(
    name="dispatcher_pause_on_ack_state_persistent",
    at_namespace="dispatcherPauseOnAckStatePersistent",
    at_topic="dispatcherPauseOnAckStatePersistent",
    codec=BOOLEAN,
    default=False,
    unset=False,
    set_without_body=True,
    scopes=NAMESPACE_AND_TOPIC,
    obeyed_by="",
    kept=(
        "A region stores all individual acknowledgements, so dispatch never has to pause because some "
        "could not be stored."
    ),
    doc="Whether dispatch pauses while there are more individual acknowledgements than can be stored.",
)

POLICIES: tuple[Policy[Any], ...] = (
    PERSISTENCE,
    BOOKIE_AFFINITY,
    OFFLOAD_POLICIES,
    OFFLOAD_THRESHOLD,
    OFFLOAD_THRESHOLD_SECONDS,
    OFFLOAD_DELETION_LAG,
    RESOURCE_GROUP,
    PERMISSIONS,
    SUBSCRIPTION_AUTH_MODE,
    BUNDLES,
    PROPERTIES,
    DEDUPLICATION_SNAPSHOT_INTERVAL,
    ENCRYPTION_REQUIRED,
    ENTRY_FILTERS,
    ANTI_AFFINITY,
    PAUSE_ON_ACK_STATE,
)
