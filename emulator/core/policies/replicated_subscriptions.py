"""Policies of replicated subscriptions (PIP-33): how often snapshots are taken, and which subscriptions are replicated.

Every policy is optional at each scope. If no scope sets it, the region's setting of the same name applies
(`TopicPolicies.or_setting`): a region, a cluster, a namespace and a topic may each have a value.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from emulator.core.policies.codecs import BOOLEAN, DURATION_OR_EMPTY, counts, one_of
from emulator.core.policies.declaration import Codec, Policy, Scope
from emulator.model.values import SNAPSHOT_SCHEDULES, SUBSCRIPTION_REPLICATION_BOUNDS

T = TypeVar("T")

_SNAPSHOTS: Final = "emulator.broker.subscription.snapshots"
_INDIVIDUAL_ACKS: Final = "emulator.broker.subscription.individual_acks"
_SUBSCRIPTIONS: Final = "emulator.broker.topic.subscriptions"


def _number(name: str, unit: str = "") -> Codec[int]:
    return counts(*SUBSCRIPTION_REPLICATION_BOUNDS[name], unit)


def _policy(name: str, path: str, codec: Codec[T], obeyed_by: str, doc: str, **more: Any) -> Policy[T | None]:
    """Return a policy of every scope. `path`: last segment of its paths in the admin API. `more`: further fields."""
    return Policy(
        name=name,
        codec=codec,
        default=None,
        scopes=frozenset(Scope),
        doc=f"{doc} Unset: the region's setting of this name.",
        obeyed_by=obeyed_by,
        at_namespace=path,
        at_topic=path,
        **more,
    )


REPLICATE_SUBSCRIPTION_STATE = _policy(
    "replicate_subscription_state",
    "replicateSubscriptionState",
    BOOLEAN,
    _SUBSCRIPTIONS,
    "Whether every durable subscription is replicated, also if its consumers do not request it, except one whose "
    "replication an administrator disabled. False: as consumers request it (PIP-398).",
    at_broker="replicateSubscriptionState",
)
SNAPSHOT_INTERVAL = _policy(
    "snapshot_interval_ms",
    "snapshotInterval",
    _number("snapshot_interval_ms", "milliseconds"),
    _SNAPSHOTS,
    "Interval of the snapshots of replicated subscriptions while there is traffic, in milliseconds.",
    at_broker="replicatedSubscriptionsSnapshotFrequencyMillis",
)
SNAPSHOT_TIMEOUT = _policy(
    "snapshot_timeout_ms",
    "snapshotTimeout",
    _number("snapshot_timeout_ms", "milliseconds"),
    _SNAPSHOTS,
    "Time after which a snapshot that lacks a response is dropped, in milliseconds.",
    at_broker="replicatedSubscriptionsSnapshotTimeoutSeconds",
    at_broker_factor=1_000,
)
SNAPSHOT_TIMEOUT_GROWTH = _policy(
    "snapshot_timeout_growth_max",
    "snapshotTimeoutGrowthMax",
    _number("snapshot_timeout_growth_max"),
    _SNAPSHOTS,
    "Maximum factor by which the timeout grows while snapshots time out although links are up. 1: it never grows.",
)
SNAPSHOT_CACHE_SIZE = _policy(
    "snapshot_cache_size",
    "snapshotCacheSize",
    _number("snapshot_cache_size", "snapshots"),
    _SNAPSHOTS,
    "Number of snapshots that each replicated subscription remembers.",
    at_broker="replicatedSubscriptionsSnapshotMaxCachedPerSubscription",
)
SNAPSHOT_SCHEDULE = _policy(
    "snapshot_schedule",
    "snapshotSchedule",
    one_of(*SNAPSHOT_SCHEDULES),
    _SNAPSHOTS,
    "When snapshots are taken: `periodic`, at the interval while there is traffic; `adaptive`, earlier when traffic "
    "pauses or consumers have caught up, for at most a tenth more entries, and later when no subscription would gain.",
)
PARTIAL_SNAPSHOTS_AFTER = _policy(
    "partial_snapshots_after",
    "partialSnapshotsAfter",
    DURATION_OR_EMPTY,
    _SNAPSHOTS,
    "Absence of a region after which snapshots continue without it, such as 10m. Its messages then stay unacknowledged "
    "in other regions. Empty: never.",
)
REPLICATE_INDIVIDUAL_ACKS = _policy(
    "replicate_individual_acks",
    "replicateIndividualAcks",
    BOOLEAN,
    _INDIVIDUAL_ACKS,
    "Whether messages that a replicated subscription acknowledged beyond its position are not delivered again in other "
    "regions.",
)
INDIVIDUAL_ACK_INTERVAL = _policy(
    "individual_ack_interval_ms",
    "individualAckInterval",
    _number("individual_ack_interval_ms", "milliseconds"),
    _INDIVIDUAL_ACKS,
    "Minimum time between two updates with such acknowledgements of a subscription, in milliseconds.",
)
INDIVIDUAL_ACKS_MAX = _policy(
    "individual_acks_max",
    "individualAcksMax",
    _number("individual_acks_max"),
    _INDIVIDUAL_ACKS,
    "Maximum number of ranges of entries and of partly acknowledged batches in such an update.",
)

POLICIES = (
    REPLICATE_SUBSCRIPTION_STATE,
    SNAPSHOT_INTERVAL,
    SNAPSHOT_TIMEOUT,
    SNAPSHOT_TIMEOUT_GROWTH,
    SNAPSHOT_CACHE_SIZE,
    SNAPSHOT_SCHEDULE,
    PARTIAL_SNAPSHOTS_AFTER,
    REPLICATE_INDIVIDUAL_ACKS,
    INDIVIDUAL_ACK_INTERVAL,
    INDIVIDUAL_ACKS_MAX,
)
