"""Settings of Pulsar's standalone broker, and the region that they configure.

A region applies a setting (`APPLIED`), or behaves in one way only and rejects another value (`FIXED`). It ignores all
others, which concern parts of Pulsar that a region does not have, such as BookKeeper. An empty value means not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from emulator.broker.standalone.security_settings import SECURITY_DEFAULTS, security_config, tls_port
from emulator.broker.standalone.setting_reader import NUMBER_MAX, SettingReader
from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import ConfigurationConfig, LogConfig, NamespaceConfig, RegionConfig
from emulator.core.policies.broker_settings import DYNAMIC
from emulator.core.policies.declaration import Policy
from emulator.core.policies.lifetime import INACTIVE_TOPICS, MESSAGE_TTL, RETENTION, SUBSCRIPTION_EXPIRATION
from emulator.core.policies.schemas import SCHEMA_COMPATIBILITY, SCHEMA_UPDATES, SCHEMA_VALIDATION
from emulator.core.policies.topics import AUTO_TOPIC_CREATION
from emulator.model.values import is_valid_name
from emulator.net.addresses import HOST_RULE, is_host

NAMESPACE: Final = "public/default"
DEFAULTS: Final[Mapping[str, str]] = {
    "clusterName": "standalone",
    "bindAddress": "0.0.0.0",
    "advertisedAddress": "localhost",
    "brokerServicePort": "6650",
    "webServicePort": "8080",
    "maxMessageSize": "5242880",
    "keepAliveIntervalSeconds": "30",
    "maxUnackedMessagesPerConsumer": "50000",
    "activeConsumerFailoverDelayTimeMillis": "1000",
    "brokerMaxConnections": "0",
    "brokerMaxConnectionsPerIp": "0",
    "maxHttpServerConnections": "2048",
    "maxTenants": "0",
    "maxNamespacesPerTenant": "0",
    "transactionCoordinatorEnabled": "false",
    "allowAutoTopicCreation": "true",
    "allowAutoTopicCreationType": "non-partitioned",
    "defaultNumPartitions": "1",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "brokerDeleteInactiveTopicsMode": "delete_when_no_subscriptions",
    "brokerDeleteInactiveTopicsFrequencySeconds": "60",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "",
    **SECURITY_DEFAULTS,
}
"""Settings that a region applies together, with their defaults: Pulsar's, except that nothing is ever deleted."""
POLICIES: Final[Mapping[str, Policy[Any]]] = {
    **DYNAMIC,
    "ttlDurationDefaultInSeconds": MESSAGE_TTL,
    "subscriptionExpirationTimeMinutes": SUBSCRIPTION_EXPIRATION,
    "schemaCompatibilityStrategy": SCHEMA_COMPATIBILITY,
    "isSchemaValidationEnforced": SCHEMA_VALIDATION,
    "isAllowAutoUpdateSchemaEnabled": SCHEMA_UPDATES,
}
"""Settings that are the default of one policy."""
FIXED: Final[Mapping[str, tuple[str, str]]] = {
    "authorizationProvider": (
        "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
        "a region has the rules of Pulsar's own provider",
    ),
    "tokenSettingPrefix": ("", "a region reads the settings of tokens without a prefix"),
    "tokenAllowedClockSkewSeconds": ("0", "a region compares the times of a token with its clock"),
    "tlsEnabledWithKeyStore": ("false", "a region reads certificates and keys from PEM files"),
    "functionsWorkerEnabled": ("false", "a region runs no functions and no connectors"),
    "webSocketServiceEnabled": ("false", "a region does not support WebSocket"),
    "enablePersistentTopics": ("true", "a region has persistent topics"),
    "enableNonPersistentTopics": ("true", "a region has non-persistent topics"),
    "enableReplicatedSubscriptions": ("true", "consumers decide whether a subscription is replicated"),
    "delayedDeliveryEnabled": ("true", "a region always delays messages as their producers request"),
    "topicLevelPoliciesEnabled": ("true", "policies can always be set at topics"),
    "systemTopicEnabled": ("true", "policies can always be set at topics"),
    "subscriptionKeySharedEnable": ("true", "all types of subscriptions are enabled"),
    "acknowledgmentAtBatchIndexLevelEnabled": (
        "true",
        "a region always stores acknowledgements of single messages of a batch",
    ),
}
"""Setting -> its only value, and the reason."""
APPLIED: Final = frozenset({*DEFAULTS, *POLICIES})
KNOWN: Final = APPLIED | FIXED.keys()


def standalone_config(values: Mapping[str, str], data: Path) -> RegionConfig:
    """Return the configuration of a region with these settings that stores everything in the folder `data`. Raises
    ValueError, naming setting, value and rule, for a value that it cannot apply."""
    given = {name: value for name, value in values.items() if value != ""}
    for name in sorted(given.keys() & FIXED.keys()):
        only, reason = FIXED[name]
        if given[name].lower() != only.lower():
            raise ValueError(
                f"{name}={given[name]}: {reason}; remove it" + (f" or set {only}" if only else "")
            )
    read = SettingReader({**DEFAULTS, **given})
    name = read.parsed("clusterName", _name)
    return RegionConfig(
        region=name,
        cluster=name,
        bind_host=read.parsed("bindAddress", _host),
        advertised_host=read.parsed("advertisedAddress", _host),
        service_port=read.number("brokerServicePort", 1, 65_535),
        admin_port=read.number("webServicePort", 1, 65_535),
        service_port_tls=tls_port(read, "brokerServicePortTls"),
        admin_port_tls=tls_port(read, "webServicePortTls"),
        log=LogConfig("sqlite", path=str(data / "log.sqlite")),
        configuration=ConfigurationConfig(str(data / "configuration.sqlite")),
        settings=_settings(read),
        tenants=("public", "pulsar"),
        namespaces=tuple(
            NamespaceConfig(namespace, (name,), deduplication=None)
            for namespace in (NAMESPACE, "pulsar/system")
        ),
        broker_policies=_broker_policies(read, given),
        security=security_config(read, data),
    )


def ignored(values: Mapping[str, str]) -> list[str]:
    """Return the names of settings that have a value and that a region does not know."""
    return sorted(name for name, value in values.items() if value != "" and name not in KNOWN)


def _settings(read: SettingReader) -> BrokerSettings:
    defaults = BrokerSettings()
    return BrokerSettings(
        max_message_bytes=read.number("maxMessageSize", 1),
        keep_alive_interval_ms=read.number("keepAliveIntervalSeconds", 1, 1_000_000) * 1_000,
        max_unacked_messages_per_consumer=read.number("maxUnackedMessagesPerConsumer", 0) or NUMBER_MAX,
        failover_delay_ms=read.number("activeConsumerFailoverDelayTimeMillis", 0),
        connections_max=read.number("brokerMaxConnections", 0),
        connections_per_host_max=read.number("brokerMaxConnectionsPerIp", 0),
        http_connections_max=read.number("maxHttpServerConnections", 0),
        tenants_max=read.number("maxTenants", 0),
        namespaces_per_tenant_max=read.number("maxNamespacesPerTenant", 0),
        allow_auto_topic_creation=read.flag("allowAutoTopicCreation"),
        transaction_coordinators=defaults.transaction_coordinators
        if read.flag("transactionCoordinatorEnabled")
        else 0,
        proxy_through_service_url=True,
    )


def _broker_policies(read: SettingReader, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the policies that are set, as JSON by name."""
    found = {policy.name: read.policy(name, policy) for name, policy in POLICIES.items() if name in given}
    creation = {
        "allowAutoTopicCreation": read.flag("allowAutoTopicCreation"),
        "topicType": read.text("allowAutoTopicCreationType").lower(),
        "defaultNumPartitions": read.number("defaultNumPartitions", 1),
    }
    read.parsed("allowAutoTopicCreationType", lambda _: AUTO_TOPIC_CREATION.codec.decode(creation))
    found[AUTO_TOPIC_CREATION.name] = creation
    kept = tuple(read.number(f"defaultRetention{name}", -1) for name in ("TimeInMinutes", "SizeInMB"))
    if kept == (0, 0):  # Pulsar's default, as in its own files: it deletes whole ledgers only, after hours
        kept = (-1, -1)
    retention = dict(zip(("retentionTimeInMinutes", "retentionSizeInMB"), kept, strict=True))
    RETENTION.codec.decode(retention)
    found[RETENTION.name] = retention
    if read.flag("brokerDeleteInactiveTopicsEnabled"):
        found[INACTIVE_TOPICS.name] = _inactive_topics(read)
    return found


def _inactive_topics(read: SettingReader) -> dict[str, Any]:
    longest = "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"
    policy = {
        "inactiveTopicDeleteMode": read.text("brokerDeleteInactiveTopicsMode"),
        "maxInactiveDurationSeconds": read.number(
            longest if read.text(longest) else "brokerDeleteInactiveTopicsFrequencySeconds", 1
        ),
        "deleteWhileInactive": True,
    }
    read.parsed("brokerDeleteInactiveTopicsMode", lambda _: INACTIVE_TOPICS.codec.decode(policy))
    return policy


def _name(text: str) -> str:
    if not is_valid_name(text):
        raise ValueError("a cluster's name has letters, digits and any of _ - = : .")
    return text


def _host(text: str) -> str:
    if not is_host(text):
        raise ValueError(HOST_RULE)
    return text
