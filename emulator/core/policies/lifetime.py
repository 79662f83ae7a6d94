"""How long messages are kept: retention, message TTL, backlog quotas. The forms are Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.core.policies.declaration import Codec, OutOfRange, Policy, Scope

NUMBER_MAX: Final = 2**53
"""What JSON tools carry without rounding."""
BYTES_PER_MEGABYTE: Final = 1_048_576
MS_PER_MINUTE: Final = 60_000


class Retention(NamedTuple):
    """How much is kept of messages that every subscription has acknowledged. -1: no limit. Both 0: nothing."""

    minutes: int
    megabytes: int

    @property
    def lets_go(self) -> bool:
        """Whether anything is ever let go."""
        return self.minutes >= 0 or self.megabytes >= 0

    @property
    def keeps_nothing(self) -> bool:
        return self.minutes == 0 and self.megabytes == 0


KEEP_EVERYTHING: Final = Retention(-1, -1)


class QuotaKind(Enum):
    """What a quota limits; the value is Pulsar's name."""

    SIZE = "destination_storage"
    AGE = "message_age"


class QuotaAction(Enum):
    """What becomes of it when a backlog is over its quota."""

    HOLD = "producer_request_hold"
    """Producers wait."""
    EXCEPTION = "producer_exception"
    """Producers fail."""
    EVICT = "consumer_backlog_eviction"
    """Subscriptions skip their oldest messages."""


class Quota(NamedTuple):
    limit_bytes: int
    """-1: none."""
    limit_seconds: int
    """-1: none."""
    action: QuotaAction


Quotas = Mapping[QuotaKind, Quota]


def whole_number(value: Any, what: str, *, least: int = 0) -> int:
    """ValueError for what is not a number, OutOfRange for one that cannot be meant."""
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        value = int(value)  # the command line tool quotes some of them
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what}: {value!r} is not a whole number")
    if not least <= value <= NUMBER_MAX:
        raise OutOfRange(f"{what}: {value} is not between {least} and {NUMBER_MAX}")
    return value


def fields_of(value: Any, required: tuple[str, ...]) -> Mapping[str, Any]:
    """ValueError for what is not a JSON object with these fields. Others are left alone: newer tools send more."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    missing = [name for name in required if value.get(name) is None]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return value


def _retention(value: Any) -> Retention:
    found = fields_of(value, ("retentionTimeInMinutes", "retentionSizeInMB"))
    minutes = whole_number(found["retentionTimeInMinutes"], "retentionTimeInMinutes", least=-1)
    megabytes = whole_number(found["retentionSizeInMB"], "retentionSizeInMB", least=-1)
    if (minutes == 0) != (megabytes == 0):
        raise OutOfRange(
            "retentionTimeInMinutes and retentionSizeInMB: one of them is 0 and the other one is not; both 0 keep "
            "nothing, -1 is no limit"
        )
    return Retention(minutes, megabytes)


def _retention_as_json(value: Retention) -> dict[str, int]:
    return {"retentionTimeInMinutes": value.minutes, "retentionSizeInMB": value.megabytes}


def _seconds(value: Any) -> int:
    return whole_number(value, "seconds")


def quota_of(value: Any) -> Quota:
    """From JSON as tools send it. ValueError."""
    found = fields_of(value, ("policy",))
    size = found.get("limitSize")
    if size is None:
        size = found.get("limit")  # its name of before 2.8
    seconds = found.get("limitTime")
    try:
        action = QuotaAction(found["policy"])
    except ValueError:
        known = ", ".join(one.value for one in QuotaAction)
        raise ValueError(f"policy: {found['policy']!r} is none of {known}") from None
    return Quota(
        -1 if size is None else whole_number(size, "limitSize", least=-1),
        -1 if seconds is None else whole_number(seconds, "limitTime", least=-1),
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
    """ValueError."""
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
        "Time and size for which messages are kept that every subscription has acknowledged and every "
        "other region has. -1: no limit; both 0: removed at once. Unset: everything is kept, so that a "
        "run can be verified."
    ),
)
MESSAGE_TTL: Policy[int] = Policy(
    name="message_ttl",
    at_namespace="messageTTL",
    at_topic="messageTTL",
    query_at_topic="messageTTL",
    below_zero="Invalid value for message TTL, message TTL must >= 0",
    codec=Codec(_seconds, int, {"type": "integer", "minimum": 0}),
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

POLICIES = (RETENTION, MESSAGE_TTL, BACKLOG_QUOTAS)
