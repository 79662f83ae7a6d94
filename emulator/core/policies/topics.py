"""Policies of replication, deduplication, keep-alive, the home region of exclusive producers, and automatic creation of
topics."""

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
        "Regions among which the topic is replicated (to Pulsar a region is a cluster). A single region: no "
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
    doc="Whether a message that a producer sends again is stored only once; applies from when it is set.",
)
KEEP_ALIVE_INTERVAL: Policy[int] = Policy(
    name="keep_alive_interval_ms",
    at_namespace="keepAliveInterval",
    codec=MILLISECONDS,
    default=0,
    scopes=frozenset({Scope.NAMESPACE}),
    obeyed_by="emulator.broker.topic.publishing",
    doc=(
        "Maximum keep-alive interval of connections with a producer in the namespace. A client that does not respond "
        "to a PING before the next one is due is disconnected. 0, or more than the region's interval: that interval."
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
        "producer is exclusive in all regions. In other regions producers with WaitForExclusive wait, and all other "
        "producers are rejected. Empty: clients may publish in every region, and access is exclusive per region."
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
    """Number of partitions of a created topic; 0: the topic is not partitioned."""


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
        "Whether a topic is created when a client first uses it, and its number of partitions. Unset: the region's "
        "setting `allow_auto_topic_creation`; created topics are not partitioned."
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
