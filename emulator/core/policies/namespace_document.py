"""A namespace's policies as one JSON document, the form in which Pulsar's tools create and read namespaces.

The names of fields differ from the paths of their policies. Fields that Pulsar does not have are ignored. A field of
Pulsar without a policy here may be empty or have its default value; any other value is rejected.
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
"""Last path segment of a policy (`Policy.at_namespace`) -> its field in the document."""
BY_REGION: Final = frozenset(
    {"publishRate", "dispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate", "subscribeRate"}
)
"""Policies of which the document has one value per region."""
_DEFAULT_VALUES: Final[Mapping[str, Any]] = {
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
"""Field -> value that tools send although the user did not set it, and that sets no policy."""
_KNOWN: Final = frozenset({*FIELD_OF.values(), *_DEFAULT_VALUES})
_OLD_NAMES: Final = {"clusterDispatchRate": "topicDispatchRate"}
"""Older name of a field -> newer name. Pulsar reads the older one if the newer one is absent."""


def field_of(policy: Policy[Any]) -> str:
    """Return the name of a policy's field in the document."""
    return FIELD_OF.get(policy.at_namespace, policy.name)


def written(policies: Mapping[str, Any], registry: Mapping[str, Policy[Any]], region: str) -> dict[str, Any]:
    """Return the document of a namespace with these policies (JSON values by name). `region`: the region that returns
    it, under whose name the policies of BY_REGION appear."""
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
    """Return the policies that a document sets (JSON values by name). Of the policies of BY_REGION, the value for
    `region` is used. Raises ValueError, naming the field, for an invalid or unsupported value."""
    if not isinstance(document, dict):
        raise ValueError(f"{str(document)[:100]} is not a JSON object")
    fields = {field_of(policy): policy for policy in registry.values() if Scope.NAMESPACE in policy.scopes}
    policies: dict[str, Any] = {}
    for name, value in _renamed(document).items():
        if value is None or value == {} or value == [] or _DEFAULT_VALUES.get(name, ...) == value:
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
            policies[policy.name] = policy.codec.encode(policy.codec.decode(value))
        except ValueError as problem:
            raise ValueError(f"{name}: {problem}") from None
    return policies


def _renamed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields by their newer names."""
    older = {_OLD_NAMES[name]: value for name, value in document.items() if name in _OLD_NAMES}
    newer = {name: value for name, value in document.items() if name not in _OLD_NAMES}
    return newer | {name: value for name, value in older.items() if not newer.get(name)}
