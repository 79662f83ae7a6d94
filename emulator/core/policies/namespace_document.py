"""A namespace's policies as one JSON document, the form in which Pulsar's tools create and read namespaces.

Fields have other names there than the paths of their policies. Fields that Pulsar does not have are ignored. A field
that Pulsar has and no policy here stands for may have its default value; any other value is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.core.policies.declaration import Policy, Scope

FIELD_OF: Final = {
    "replication": "replication_clusters",
    "allowedClusters": "allowed_clusters",
    "deduplication": "deduplicationEnabled",
    "deduplicationSnapshotInterval": "deduplicationSnapshotIntervalSeconds",
    "autoTopicCreation": "autoTopicCreationOverride",
    "autoSubscriptionCreation": "autoSubscriptionCreationOverride",
    "messageTTL": "message_ttl_in_seconds",
    "subscriptionExpirationTime": "subscription_expiration_time_minutes",
    "retention": "retention_policies",
    "backlogQuotaMap": "backlog_quota_map",
    "persistence": "persistence",
    "offloadPolicies": "offload_policies",
    "offloadThreshold": "offload_threshold",
    "offloadThresholdInSeconds": "offload_threshold_in_seconds",
    "offloadDeletionLagMs": "offload_deletion_lag_ms",
    "compactionThreshold": "compaction_threshold",
    "schemaCompatibilityStrategy": "schema_compatibility_strategy",
    "schemaAutoUpdateCompatibilityStrategy": "schema_auto_update_compatibility_strategy",
    "schemaValidationEnforced": "schema_validation_enforced",
    "isAllowAutoUpdateSchema": "is_allow_auto_update_schema",
    "maxProducersPerTopic": "max_producers_per_topic",
    "maxConsumersPerTopic": "max_consumers_per_topic",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxUnackedMessagesPerConsumer": "max_unacked_messages_per_consumer",
    "maxUnackedMessagesPerSubscription": "max_unacked_messages_per_subscription",
    "maxSubscriptionsPerTopic": "max_subscriptions_per_topic",
    "maxTopicsPerNamespace": "max_topics_per_namespace",
    "delayedDelivery": "delayed_delivery_policies",
    "inactiveTopicPolicies": "inactive_topic_policies",
    "encryptionRequired": "encryption_required",
    "subscriptionAuthMode": "subscription_auth_mode",
    "subscriptionTypesEnabled": "subscription_types_enabled",
    "publishRate": "publishMaxMessageRate",
    "dispatchRate": "topicDispatchRate",
    "subscriptionDispatchRate": "subscriptionDispatchRate",
    "replicatorDispatchRate": "replicatorDispatchRate",
    "subscribeRate": "clusterSubscribeRate",
    "permissions": "auth_policies",
    "properties": "properties",
    "resourcegroup": "resource_group_name",
    "entryFilters": "entryFilters",
    "bundles": "bundles",
    "antiAffinity": "antiAffinityGroup",
    "dispatcherPauseOnAckStatePersistent": "dispatcherPauseOnAckStatePersistentEnabled",
}
"""By the segment of a policy's path."""
BY_REGION: Final = frozenset(
    {"publishRate", "dispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate", "subscribeRate"}
)
"""Policies that the document has for each region."""
_MEANS_NOTHING: Final[Mapping[str, Any]] = {
    "deleted": False,
    "migrated": False,
    "schema_validation_enforced": False,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_auto_update_compatibility_strategy": "Full",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "subscription_auth_mode": "None",
    "encryption_required": False,
    "is_allow_auto_update_schema": True,
    "resource_group_name": "",
    "antiAffinityGroup": "",
}
"""Fields that tools send without a request of the user."""
_KNOWN: Final = frozenset({*FIELD_OF.values(), *_MEANS_NOTHING})
_OLD_NAMES: Final = {"clusterDispatchRate": "topicDispatchRate"}
"""Names of fields that Pulsar reads where the newer name is absent."""


def field_of(policy: Policy[Any]) -> str:
    """Its name in the document."""
    return FIELD_OF.get(policy.at_namespace, policy.name)


def written(policies: Mapping[str, Any], registry: Mapping[str, Policy[Any]], region: str) -> dict[str, Any]:
    """The document of a namespace that sets these policies (by name, as JSON), as region `region` gives it out."""
    document: dict[str, Any] = {
        "auth_policies": {"namespace_auth": {}, "topic_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": [],
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
        "backlog_quota_map": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }
    for name, value in policies.items():
        policy = registry.get(name)
        if policy is None or not policy.at_namespace:
            continue
        shown = {region: value} if policy.at_namespace in BY_REGION else value
        if policy.name == "permissions":
            shown = {**document["auth_policies"], **value}
        document[field_of(policy)] = shown
    return document


def read(document: Any, registry: Mapping[str, Policy[Any]], region: str) -> dict[str, Any]:
    """The policies (by name, as JSON) that a document sets. ValueError names the field that cannot be."""
    if not isinstance(document, dict):
        raise ValueError(f"{str(document)[:100]} is not a JSON object")
    fields = {field_of(policy): policy for policy in registry.values() if Scope.NAMESPACE in policy.scopes}
    set_: dict[str, Any] = {}
    for name, value in _renamed(document).items():
        if value is None or value == {} or value == [] or _MEANS_NOTHING.get(name, ...) == value:
            continue
        policy = fields.get(name)
        if policy is None and name not in _KNOWN:
            continue
        if policy is None:
            raise ValueError(f"{name}: {value!r} is not supported by this region")
        if policy.at_namespace in BY_REGION:
            if not isinstance(value, dict):
                raise ValueError(f"{name}: {value!r} is not a JSON object of regions")
            value = value.get(region)
            if value is None:
                continue
        try:
            set_[policy.name] = policy.codec.encode(policy.codec.decode(value))
        except ValueError as problem:
            raise ValueError(f"{name}: {problem}") from None
    return set_


def _renamed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by their present names."""
    old = {_OLD_NAMES[name]: value for name, value in document.items() if name in _OLD_NAMES}
    present = {name: value for name, value in document.items() if name not in _OLD_NAMES}
    return present | {name: value for name, value in old.items() if not present.get(name)}
