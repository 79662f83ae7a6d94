"""Policies that delete unused topics and subscriptions, and compact topics. The forms are Pulsar's."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.core.policies.declaration import BELOW_ZERO, Codec, Policy, Scope
from emulator.core.policies.lifetime import fields_of, whole_number


class DeleteMode(Enum):
    """What a topic must be like to count as unused; the value is Pulsar's name."""

    NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    CAUGHT_UP = "delete_when_subscriptions_caught_up"


class Inactivity(NamedTuple):
    delete: bool
    seconds: int
    mode: DeleteMode


NEVER: Final = Inactivity(False, 60, DeleteMode.NO_SUBSCRIPTIONS)


def _inactivity(value: Any) -> Inactivity:
    found = fields_of(value, ("maxInactiveDurationSeconds", "deleteWhileInactive"))
    delete, mode = found["deleteWhileInactive"], found.get("inactiveTopicDeleteMode")
    if not isinstance(delete, bool):
        raise ValueError(f"deleteWhileInactive: {delete!r} is neither true nor false")
    seconds = whole_number(found["maxInactiveDurationSeconds"], "maxInactiveDurationSeconds", least=1)
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


def _minutes(value: Any) -> int:
    return whole_number(value, "minutes")


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
        "Whether and when unused topics are deleted: without subscriptions, or with subscriptions that "
        "have no consumers and no backlog. Unset: never, so that a run can be verified."
    ),
)
SUBSCRIPTION_EXPIRATION: Policy[int] = Policy(
    name="subscription_expiration_minutes",
    at_namespace="subscriptionExpirationTime",
    below_zero="Invalid value for subscription expiration time",
    codec=Codec(_minutes, int, {"type": "integer", "minimum": 0}),
    default=0,
    scopes=frozenset({Scope.BROKER, Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic_directory.housekeeper",
    doc=(
        "Minutes after which a subscription without consumers is deleted, unless it is replicated. 0: never."
    ),
)

BYTES_MAX: Final = 2**63 - 1


def _threshold(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= BYTES_MAX:
        raise ValueError(f"{value!r} is not a whole number of bytes, 0 to {BYTES_MAX}")
    return value


BYTES: Codec[int] = Codec(_threshold, int, {"type": "integer", "minimum": 0, "maximum": BYTES_MAX})
COMPACTION_THRESHOLD: Policy[int] = Policy(
    name="compaction_threshold",
    at_namespace="compactionThreshold",
    namespaces_put=True,
    at_topic="compactionThreshold",
    below_zero=BELOW_ZERO,
    codec=BYTES,
    default=0,
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.topic.topic",
    doc="Bytes by which a topic's log must grow before it is compacted again. 0: only on request.",
)

POLICIES = (INACTIVE_TOPICS, SUBSCRIPTION_EXPIRATION, COMPACTION_THRESHOLD)
