"""Policies of the lifetime of data: retention, message TTL, backlog quotas, compaction, deletion of unused topics and
subscriptions. The JSON forms are Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.core.policies.codecs import counts, fields_of, whole_number, whole_numbers
from emulator.core.policies.declaration import BELOW_ZERO, Codec, OutOfRange, Policy, Scope

BYTES_PER_MEGABYTE: Final = 1_048_576
MS_PER_MINUTE: Final = 60_000


class Retention(NamedTuple):
    """Limits of the age and size of messages that every subscription has acknowledged. -1: no limit; both 0: none are
    kept."""

    minutes: int
    megabytes: int

    @property
    def is_limited(self) -> bool:
        """Whether acknowledged messages are ever deleted."""
        return self.minutes >= 0 or self.megabytes >= 0

    @property
    def keeps_nothing(self) -> bool:
        return self.minutes == 0 and self.megabytes == 0


KEEP_EVERYTHING: Final = Retention(-1, -1)


class QuotaKind(Enum):
    """The quantity that a quota limits; the value is Pulsar's name."""

    SIZE = "destination_storage"
    AGE = "message_age"


class QuotaAction(Enum):
    """The action when a backlog exceeds its quota; the value is Pulsar's name."""

    HOLD = "producer_request_hold"
    """Producers are rejected with an error after which clients retry."""
    EXCEPTION = "producer_exception"
    """Producers are rejected with an error after which clients fail."""
    EVICT = "consumer_backlog_eviction"
    """Subscriptions skip their oldest messages."""


class Quota(NamedTuple):
    """A quota of backlogs. Only the limit of its kind is used."""

    limit_bytes: int
    """Limit of a SIZE quota; -1: none."""
    limit_seconds: int
    """Limit of an AGE quota; -1: none."""
    action: QuotaAction


Quotas = Mapping[QuotaKind, Quota]


def _retention(value: Any) -> Retention:
    found = fields_of(value, ("retentionTimeInMinutes", "retentionSizeInMB"))
    minutes = whole_number(found["retentionTimeInMinutes"], "retentionTimeInMinutes", minimum=-1)
    megabytes = whole_number(found["retentionSizeInMB"], "retentionSizeInMB", minimum=-1)
    if (minutes == 0) != (megabytes == 0):
        raise OutOfRange(
            "retentionTimeInMinutes and retentionSizeInMB: one of them is 0 and the other one is not; both 0 keep "
            "nothing, -1 is no limit"
        )
    return Retention(minutes, megabytes)


def _retention_as_json(value: Retention) -> dict[str, int]:
    return {"retentionTimeInMinutes": value.minutes, "retentionSizeInMB": value.megabytes}


def quota_of(value: Any) -> Quota:
    """Decode a quota in the form that tools send. Raises ValueError."""
    found = fields_of(value, ("policy",))
    size = found.get("limitSize")
    if size is None:
        size = found.get("limit")  # its name before Pulsar 2.8
    seconds = found.get("limitTime")
    try:
        action = QuotaAction(found["policy"])
    except ValueError:
        known = ", ".join(one.value for one in QuotaAction)
        raise ValueError(f"policy: {found['policy']!r} is none of {known}") from None
    return Quota(
        -1 if size is None else whole_number(size, "limitSize", minimum=-1),
        -1 if seconds is None else whole_number(seconds, "limitTime", minimum=-1),
        action,
    )


def _quota_as_json(quota: Quota) -> dict[str, Any]:
    return {
        "limit": quota.limit_bytes,
        "limitSize": quota.limit_bytes,
        "limitTime": quota.limit_seconds,
        "policy": quota.action.value,
    }


def quota_kind_of(name: str) -> QuotaKind:
    """Return the kind with this name; SIZE for an empty name. Raises ValueError for any other name."""
    try:
        return QuotaKind(name or QuotaKind.SIZE.value)
    except ValueError:
        known = ", ".join(one.value for one in QuotaKind)
        raise ValueError(f"backlogQuotaType: {name!r} is none of {known}") from None


def _quotas(value: Any) -> Quotas:
    return {quota_kind_of(name): quota_of(one) for name, one in fields_of(value, ()).items()}


def _quotas_as_json(quotas: Quotas) -> dict[str, Any]:
    return {kind.value: _quota_as_json(quota) for kind, quota in quotas.items()}


_QUOTA_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "limitSize": {"type": "integer"},
        "limitTime": {"type": "integer"},
        "policy": {"enum": [action.value for action in QuotaAction]},
    },
    "required": ["policy"],
}
QUOTA: Codec[Quota] = Codec(quota_of, _quota_as_json, _QUOTA_SCHEMA)

_NAMESPACE_AND_TOPIC = frozenset({Scope.BROKER, Scope.NAMESPACE, Scope.TOPIC})

RETENTION: Policy[Retention] = Policy(
    name="retention",
    at_namespace="retention",
    at_topic="retention",
    codec=Codec(
        _retention,
        _retention_as_json,
        {
            "type": "object",
            "properties": {
                "retentionTimeInMinutes": {"type": "integer", "minimum": -1},
                "retentionSizeInMB": {"type": "integer", "minimum": -1},
            },
            "required": ["retentionTimeInMinutes", "retentionSizeInMB"],
        },
    ),
    default=KEEP_EVERYTHING,
    scopes=_NAMESPACE_AND_TOPIC,
    obeyed_by="emulator.broker.topic_directory.housekeeper",
    doc=(
        "Limits of the age and size of messages that every subscription has acknowledged and every other region "
        "has. -1: no limit; both 0: such messages are deleted. Unset: no message is deleted, so that a run can be "
        "verified."
    ),
)
MESSAGE_TTL: Policy[int] = Policy(
    name="message_ttl",
    at_namespace="messageTTL",
    at_topic="messageTTL",
    query_at_topic="messageTTL",
    below_zero="Invalid value for message TTL, message TTL must >= 0",
    codec=whole_numbers("seconds"),
    default=0,
    scopes=_NAMESPACE_AND_TOPIC,
    obeyed_by="emulator.broker.topic_directory.housekeeper",
    doc="Seconds after which an unacknowledged message expires in each subscription. 0: never.",
)
BACKLOG_QUOTAS: Policy[Quotas] = Policy(
    name="backlog_quotas",
    unset={},
    at_namespace="backlogQuotaMap",
    at_topic="backlogQuotaMap",
    codec=Codec(_quotas, _quotas_as_json, {"type": "object", "additionalProperties": _QUOTA_SCHEMA}),
    default={},
    scopes=_NAMESPACE_AND_TOPIC,
    obeyed_by="emulator.broker.topic_directory.housekeeper",
    doc=(
        "Maximum size or age of a backlog, and what happens above it: producers wait "
        "(`producer_request_hold`), fail (`producer_exception`), or subscriptions skip their oldest "
        "messages (`consumer_backlog_eviction`). By `destination_storage` (`limitSize`, bytes) and "
        "`message_age` (`limitTime`, seconds)."
    ),
)


class DeleteMode(Enum):
    """The condition of an unused topic's subscriptions; the value is Pulsar's name."""

    NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    """The topic has no subscription."""
    CAUGHT_UP = "delete_when_subscriptions_caught_up"
    """No subscription has a consumer or a backlog, or is replicated."""


class Inactivity(NamedTuple):
    """Whether and when unused topics are deleted."""

    delete: bool
    seconds: int
    """Time that a topic must be unused."""
    mode: DeleteMode


NEVER: Final = Inactivity(False, 60, DeleteMode.NO_SUBSCRIPTIONS)


def _inactivity(value: Any) -> Inactivity:
    found = fields_of(value, ("maxInactiveDurationSeconds", "deleteWhileInactive"))
    delete, mode = found["deleteWhileInactive"], found.get("inactiveTopicDeleteMode")
    if not isinstance(delete, bool):
        raise ValueError(f"deleteWhileInactive: {delete!r} is neither true nor false")
    seconds = whole_number(found["maxInactiveDurationSeconds"], "maxInactiveDurationSeconds", minimum=1)
    try:
        return Inactivity(delete, seconds, DeleteMode(mode or DeleteMode.NO_SUBSCRIPTIONS.value))
    except ValueError:
        known = ", ".join(one.value for one in DeleteMode)
        raise ValueError(f"inactiveTopicDeleteMode: {mode!r} is none of {known}") from None


def _inactivity_as_json(value: Inactivity) -> dict[str, Any]:
    return {
        "inactiveTopicDeleteMode": value.mode.value,
        "maxInactiveDurationSeconds": value.seconds,
        "deleteWhileInactive": value.delete,
    }


INACTIVE_TOPICS: Policy[Inactivity] = Policy(
    name="inactive_topics",
    at_namespace="inactiveTopicPolicies",
    at_topic="inactiveTopicPolicies",
    codec=Codec(
        _inactivity,
        _inactivity_as_json,
        {
            "type": "object",
            "properties": {
                "inactiveTopicDeleteMode": {"enum": [mode.value for mode in DeleteMode]},
                "maxInactiveDurationSeconds": {"type": "integer", "minimum": 1},
                "deleteWhileInactive": {"type": "boolean"},
            },
            "required": ["maxInactiveDurationSeconds", "deleteWhileInactive"],
        },
    ),
    default=NEVER,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.topic_directory.housekeeper",
    doc=(
        "Whether and after which time unused topics are deleted. An unused topic has no producers, other regions "
        "have all its messages, and it has no subscriptions, or only subscriptions without consumers, backlog and "
        "replication. Unset: never, so that a run can be verified."
    ),
)
SUBSCRIPTION_EXPIRATION: Policy[int] = Policy(
    name="subscription_expiration_minutes",
    at_namespace="subscriptionExpirationTime",
    below_zero="Invalid value for subscription expiration time",
    codec=whole_numbers("minutes"),
    default=0,
    scopes=frozenset({Scope.BROKER, Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic_directory.housekeeper",
    doc=(
        "Minutes after which a subscription without consumers is deleted, unless it is replicated. 0: never."
    ),
)

BYTES_MAX: Final = 2**63 - 1


COMPACTION_THRESHOLD: Policy[int] = Policy(
    name="compaction_threshold",
    at_namespace="compactionThreshold",
    namespaces_put=True,
    at_topic="compactionThreshold",
    below_zero=BELOW_ZERO,
    codec=counts(0, BYTES_MAX, "bytes"),
    default=0,
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.topic.topic",
    doc="Bytes by which a topic's log must grow before it is compacted again. 0: only on request.",
)

POLICIES = (
    RETENTION,
    MESSAGE_TTL,
    BACKLOG_QUOTAS,
    INACTIVE_TOPICS,
    SUBSCRIPTION_EXPIRATION,
    COMPACTION_THRESHOLD,
)
