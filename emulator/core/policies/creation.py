"""Whether topics are created when a client uses them."""

from __future__ import annotations

from typing import Any, NamedTuple

from emulator.core.partitions import Partitioned
from emulator.core.policies.declaration import Codec, InPulsarsWords, Policy, Scope
from emulator.model.values import PARTITIONS_MAX


class AutoCreation(NamedTuple):
    """Whether topics are created when a client uses them."""

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
    if isinstance(count, int) and count < 1:
        raise InPulsarsWords(
            "Invalid configuration for autoTopicCreationOverride. the detail is [defaultNumPartitions] cannot be less "
            "than 1 for partition type."
        )
    return AutoCreation(value["allowAutoTopicCreation"], Partitioned(1 if count is None else count).count)


def _auto_creation_as_json(value: AutoCreation | None) -> dict[str, Any]:
    assert value is not None, "only what is set is encoded"
    return {
        "allowAutoTopicCreation": value.allowed,
        "topicType": "partitioned" if value.partitions else "non-partitioned",
        "defaultNumPartitions": value.partitions or None,
    }


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
AUTO_TOPIC_CREATION: Policy[AutoCreation | None] = Policy(
    name="auto_topic_creation",
    at_namespace="autoTopicCreation",
    codec=AUTO_CREATION,
    default=None,
    scopes=frozenset({Scope.BROKER, Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic_directory.partitions",
    doc=(
        "Whether topics are created on first use, and with how many partitions. Unset: the region's "
        "setting, without partitions."
    ),
)

POLICIES = (AUTO_TOPIC_CREATION,)
