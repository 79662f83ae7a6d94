"""Who shares a topic's messages, who publishes to it, and how often the same message is stored."""

from __future__ import annotations

from emulator.core.policies.codecs import BOOLEAN, MILLISECONDS, REGION_NAMES, REGION_OR_NONE
from emulator.core.policies.declaration import Policy, Scope

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

POLICIES = (REPLICATION_CLUSTERS, DEDUPLICATION, KEEP_ALIVE_INTERVAL, EXCLUSIVE_HOME, ALLOWED_CLUSTERS)
