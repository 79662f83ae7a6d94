"""Which regions share a topic's messages, who publishes to it, how often the same message is stored, and whether topics
are created when a client uses them."""

from __future__ import annotations

from typing import Any, NamedTuple

from emulator.core.partitions import Partitioned
from emulator.core.policies.codecs import BOOLEAN, MILLISECONDS, REGION_NAMES, REGION_OR_NONE
from emulator.core.policies.declaration import Codec, OutOfRangeVerbatim, Policy, Scope
from emulator.model.values import PARTITIONS_MAX

REPLICATION_CLUSTERS: Policy[tuple[str, ...]] = Policy(
    name="replication_clusters",
    at_namespace="replication",
    at_topic="replication",
    codec=REGION_NAMES,
    default=(),
    scopes=frozenset({Scope.NAMESPACE, Scope.TOPIC}),
    obeyed_by="emulator.broker.topic.replicators",
    doc=(
        "Regions that the topic is replicated to (to Pulsar a region is a cluster). Only one: no "
        "replication. A region that is not in the list sends nothing to others."
    ),
)
DEDUPLICATION: Policy[bool] = Policy(
    name="deduplication",
    at_namespace="deduplication",
    at_topic="deduplicationEnabled",
    at_broker="brokerDeduplicationEnabled",
    codec=BOOLEAN,
    default=False,
    scopes=frozenset(Scope),
    obeyed_by="emulator.broker.topic.publishing",
    doc="Whether repeated messages of a producer are stored once, from the moment it is set.",
)
KEEP_ALIVE_INTERVAL: Policy[int] = Policy(
    name="keep_alive_interval_ms",
    at_namespace="keepAliveInterval",
    codec=MILLISECONDS,
    default=0,
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic.publishing",
    doc=(
        "Keep-alive interval for clients with a producer here; a client without a response until the "
        "next PING is disconnected. 0: the region's interval."
    ),
)
EXCLUSIVE_HOME: Policy[str] = Policy(
    name="exclusive_home",
    at_namespace="exclusiveHome",
    codec=REGION_OR_NONE,
    default="",
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic.topic",
    doc=(
        "The only region in which clients may publish to the namespace's topics, so that an exclusive "
        "producer is the only one in all regions. In other regions exclusive producers wait, and other "
        "producers are refused. Empty: each region on its own."
    ),
)

ALLOWED_CLUSTERS: Policy[tuple[str, ...]] = Policy(
    name="allowed_clusters",
    at_namespace="allowedClusters",
    codec=REGION_NAMES,
    default=(),
    unset=[],
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.admin.resources.clusters",
    doc=(
        "Regions that `replication_clusters` of the namespace and its topics may contain. Empty: those "
        "of the tenant."
    ),
)


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
        raise OutOfRangeVerbatim(
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

POLICIES = (
    REPLICATION_CLUSTERS,
    DEDUPLICATION,
    KEEP_ALIVE_INTERVAL,
    EXCLUSIVE_HOME,
    ALLOWED_CLUSTERS,
    AUTO_TOPIC_CREATION,
)
