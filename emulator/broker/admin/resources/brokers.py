"""The region's broker: its state, its settings, and its stats in Pulsar's JSON; `/metrics` has more."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final
from urllib.parse import unquote

from emulator import __version__
from emulator.broker.admin import stats
from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Query, Resource, changes, reads
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE
from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.config.region import RegionConfig
from emulator.core.authorization.rule import Permission
from emulator.core.policies.broker_settings import DYNAMIC, as_text, value_as_text, value_from_text
from emulator.core.policies.declaration import Policy
from emulator.model.stored_keys import BROKER_POLICIES_PATH
from emulator.net.http_server import HttpError

logger = logging.getLogger(__name__)

RESPONSE_SECONDS: Final = 0.1
"""Seconds between the response to a shutdown request and the shutdown, so that the client receives the response."""
SETTINGS: Final = {
    "maxMessageSize": "max_message_bytes",
    "maxUnackedMessagesPerConsumer": "max_unacked_messages_per_consumer",
    "activeConsumerFailoverDelayTimeMillis": "failover_delay_ms",
    "brokerMaxConnections": "connections_max",
    "brokerMaxConnectionsPerIp": "connections_per_host_max",
    "maxHttpServerConnections": "http_connections_max",
    "maxTenants": "tenants_max",
    "maxNamespacesPerTenant": "namespaces_per_tenant_max",
}
"""Pulsar's name of a setting -> the region's setting with the same meaning."""


async def health(call: AdminRequest) -> Content:
    return "ok"


async def version(call: AdminRequest) -> Content:
    return __version__


def broker_id(call: AdminRequest) -> str:
    """Return the broker's id in Pulsar: host and port of its HTTP server."""
    return call.url.partition("://")[2]


async def active(call: AdminRequest) -> Content:
    """Return the region's broker. HttpError 404 for any other cluster; another region has its own HTTP port."""
    cluster = call.names.get("cluster")
    if cluster is not None and cluster != call.region.config.region:
        raise HttpError(
            404, f"Cluster {cluster} does not exist or is another region: send the request to that region"
        )
    return [broker_id(call)]


async def leader(call: AdminRequest) -> Content:
    return {"brokerId": broker_id(call), "serviceUrl": call.url}


async def owned_namespaces(call: AdminRequest) -> Content:
    namespaces = call.region.policies.namespaces()
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return {f"{name}/{WHOLE_BUNDLE}": status for name in namespaces}


async def get_internal_configuration(call: AdminRequest) -> Content:
    config = call.region.config
    return {
        "metadataStoreUrl": config.configuration.path or "memory",
        "configurationMetadataStoreUrl": config.configuration.path or "memory",
        "bookkeeperMetadataServiceUri": "",
        "stateStorageServiceUrl": "",
        "region": config.region,
        "cluster": config.cluster,
        "logBackend": config.log.backend,
    }


async def shut_down(call: AdminRequest) -> None:
    """Stop the region in an orderly way, as SIGTERM does, after the response was sent. The request's options for
    unloading have no effect, because a region has one broker."""
    region = call.region
    logger.info("this region was stopped by an admin call")
    asyncio.get_running_loop().call_later(RESPONSE_SECONDS, region.end.set)


async def check_quotas(call: AdminRequest) -> None:
    await call.region.housekeeper.check_quotas()


# Settings.


async def dynamic_names(call: AdminRequest) -> Content:
    return sorted(DYNAMIC)


async def dynamic_values(call: AdminRequest) -> Content:
    return _dynamic(call.region)


def _dynamic(region: Region) -> dict[str, str]:
    """Return the dynamic settings that were changed, with their values as text."""
    stored = region.policies.stored_policies(BROKER_POLICIES_PATH)
    return {
        name: value_as_text(policy, stored[policy.name])
        for name, policy in DYNAMIC.items()
        if policy.name in stored
    }


def _default_as_text(policy: Policy[Any], config: RegionConfig) -> str:
    """Return the value that applies while the dynamic setting is not set."""
    if policy.name in config.broker_policies:
        return value_as_text(policy, config.broker_policies[policy.name])
    as_json = (
        getattr(config.settings, policy.name)
        if policy.default is None
        else policy.codec.encode(policy.default)
    )
    return value_as_text(policy, as_json)


async def runtime(call: AdminRequest) -> Content:
    region = call.region
    config, settings = region.config, region.config.settings
    return {
        "clusterName": config.region,
        "advertisedAddress": config.advertised_host or call.local_address,
        **_ports(call),
        "keepAliveIntervalSeconds": as_text(settings.keep_alive_interval_ms / 1_000),
        "allowAutoTopicCreation": as_text(settings.allow_auto_topic_creation),
        **{name: as_text(getattr(settings, field)) for name, field in SETTINGS.items()},
        **{name: _default_as_text(one, config) for name, one in DYNAMIC.items()},
        **_dynamic(region),
    }


def _ports(call: AdminRequest) -> dict[str, str]:
    """Return the ports by their setting in Pulsar, without those that the region does not have."""
    open_at, context = call.region.clients.ports, call.context
    ports = {
        "brokerServicePort": open_at.service_port,
        "brokerServicePortTls": open_at.service_port_tls,
        "webServicePort": context.port,
        "webServicePortTls": context.port_tls,
    }
    return {name: str(port) for name, port in ports.items() if port}


async def set_dynamic(call: AdminRequest) -> None:
    policy = _dynamic_policy(call)
    text = unquote(call.names["value"])
    try:
        value = policy.codec.decode(value_from_text(policy, text))
    except ValueError as problem:
        raise HttpError(412, f"{call.names['name']}: {problem}") from None
    await call.region.policies.set(BROKER_POLICIES_PATH, policy, value)


async def unset_dynamic(call: AdminRequest) -> None:
    await call.region.policies.set(BROKER_POLICIES_PATH, _dynamic_policy(call), None)


def _dynamic_policy(call: AdminRequest) -> Policy[Any]:
    name = call.names["name"]
    if name not in DYNAMIC:
        raise HttpError(
            412,
            f"Can't update non-dynamic configuration {name}; these may be changed: {', '.join(sorted(DYNAMIC))}",
        )
    return DYNAMIC[name]


_BROKERS = "/admin/v2/brokers"
_TOPIC_VERSION = Query("topicVersion", "Ignored.", str)

# Stats.


async def topics(call: AdminRequest) -> Content:
    """Load all topics, and return their stats by namespace, bundle and domain."""
    found: dict[str, Any] = {}
    for topic in await call.region.every_topic():
        bundle = found.setdefault(topic.name.full_namespace, {}).setdefault(WHOLE_BUNDLE, {})
        bundle.setdefault(topic.name.domain, {})[topic.full_name] = stats.topic_stats(topic)
    return found


async def nothing(call: AdminRequest) -> Content:
    return []


async def no_bookies(call: AdminRequest) -> Content:
    return {}


async def allocator(call: AdminRequest) -> None:
    raise HttpError(
        404, f"allocator {call.names['allocator']} does not exist: a region does not run on a JVM"
    )


async def load_report(call: AdminRequest) -> Content:
    topics = await call.region.every_topic()
    unlimited = {"usage": 0.0, "limit": 0.0}
    return {
        "loadReportType": "LocalBrokerData",
        "webServiceUrl": call.urls[0],
        "webServiceUrlTls": call.urls[1],
        "pulsarServiceUrl": call.service_urls.plain,
        "pulsarServiceUrlTls": call.service_urls.secured,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        **dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), unlimited),
        "lastUpdate": call.region.environment.wall_clock_ms(),
        "lastStats": {},
        "bundles": [],
        "bundleStats": {},
        **_counts(topics),
    }


def _counts(topics: list[Topic]) -> dict[str, Any]:
    each = [stats.topic_stats(topic) for topic in topics]
    return {
        "numTopics": len(topics),
        "numBundles": len({topic.name.full_namespace for topic in topics}),
        "numProducers": sum(len(topic.producers) for topic in topics),
        "numConsumers": sum(len(one.consumers) for topic in topics for one in topic.subscriptions.values()),
        **{name: sum(one[name] for one in each) for name in _SUMS},
    }


_SUMS = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_STATS = "/admin/v2/broker-stats"

RESOURCES = (
    Resource(_BROKERS, get=reads(active, "The region's one broker.")),
    Resource(f"{_BROKERS}/{{cluster}}", get=reads(active, "The same, for this region's name.")),
    Resource(
        f"{_BROKERS}/health", get=reads(health, "`ok`: the region responds.", _TOPIC_VERSION, text=True)
    ),
    Resource(
        f"{_BROKERS}/ready",
        get=reads(health, "`ok`: the region responds.", text=True, permission=Permission.ANY_ROLE),
    ),
    Resource(
        f"{_BROKERS}/version",
        get=reads(version, "The version of geoemu.", text=True, permission=Permission.ANY_ROLE),
    ),
    Resource(f"{_BROKERS}/leaderBroker", get=reads(leader, "The region's one broker.")),
    Resource(
        f"{_BROKERS}/internal-configuration",
        get=reads(
            get_internal_configuration, "Locations of the region's log and the cluster's configuration store."
        ),
    ),
    Resource(f"{_BROKERS}/configuration", get=reads(dynamic_names, "Names of the dynamic settings.")),
    Resource(
        f"{_BROKERS}/configuration/values",
        get=reads(dynamic_values, "Dynamic settings that were changed, with their values."),
    ),
    Resource(
        f"{_BROKERS}/configuration/runtime",
        get=reads(runtime, "Current values of the settings that Pulsar has, too."),
    ),
    Resource(
        f"{_BROKERS}/configuration/{{name}}/{{value}}",
        post=changes(
            set_dynamic,
            "Change a dynamic setting in all regions of the cluster; 412 for one that only the topology"
            " sets.",
        ),
    ),
    Resource(
        f"{_BROKERS}/configuration/{{name}}", delete=changes(unset_dynamic, "Restore a setting's default.")
    ),
    Resource(
        f"{_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces",
        get=reads(owned_namespaces, "All namespaces, each with its one bundle."),
    ),
    Resource(
        f"{_BROKERS}/shutdown",
        post=changes(
            shut_down,
            "Stop the region's process in an orderly way; `geoemu start` starts it again.",
            Query("maxConcurrentUnloadPerSec", "Ignored: no other broker takes over topics.", str),
            Query("forcedTerminateTopic", "Ignored.", str),
        ),
    ),
    Resource(
        f"{_BROKERS}/backlog-quota-check",
        get=reads(check_quotas, "Enforce the backlog quotas of all loaded topics now."),
    ),
    Resource(
        "/status.html",
        get=reads(health, "`ok`: the region responds.", text=True, permission=Permission.PUBLIC),
    ),
    Resource(f"{_STATS}/topics", get=reads(topics, "Stats of all topics, by namespace.")),
    Resource(f"{_STATS}/metrics", get=reads(nothing, "None: `/metrics` has them.")),
    Resource(f"{_STATS}/mbeans", get=reads(nothing, "None: a region does not run on a JVM.")),
    Resource(f"{_STATS}/bookieops", get=reads(no_bookies, "None: there are no bookies.")),
    Resource(
        f"{_STATS}/allocator-stats/{{allocator}}",
        get=reads(allocator, "404: a region does not run on a JVM."),
    ),
    Resource(
        f"{_STATS}/load-report", get=reads(load_report, "Counts and rates of the region; no resource usage.")
    ),
)
