"""Topics: create, delete, terminate and compact them; their stats and properties.

Also the lookups of clients with an `http://` service URL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from emulator.broker.admin import ledger_stats
from emulator.broker.admin.parsing import PROPERTIES_BODY, limit_properties, message_id_json
from emulator.broker.admin.request import AdminRequest, Content, full_topic_name
from emulator.broker.admin.resource import Query, Resource, changes, reads
from emulator.broker.admin.resources.partitions import (
    EXCLUDED,
    partitioned_topic,
    topic_stats_of,
    wait_for_deletion,
)
from emulator.broker.admin.resources.unsupported import WHOLE_BUNDLE, refuse_shadow
from emulator.broker.compaction.compaction import CompactionStatus
from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.authorization.rule import Permission
from emulator.core.partitions import partition_names
from emulator.model.stored_keys import TopicPropertiesKey
from emulator.model.transaction_names import COORDINATORS
from emulator.model.values import NON_PERSISTENT, PERSISTENT, TopicName
from emulator.net.addresses import in_url
from emulator.net.host_guard import host_in
from emulator.net.http_server import HttpError


async def subscriptions(call: AdminRequest) -> Content:
    return sorted((await call.load()).subscriptions)


async def get_stats(call: AdminRequest) -> Content:
    return topic_stats_of(call, await call.load())


async def get_internal_stats(call: AdminRequest) -> Content:
    return ledger_stats.internal_stats(await call.load())


async def get_internal_info(call: AdminRequest) -> Content:
    return ledger_stats.ledger_info(await call.load())


async def unload(call: AdminRequest) -> None:
    """Unload a topic and disconnect its clients; the first client that reconnects loads it again. HttpError 404 for a
    topic that does not exist."""
    name = str(call.topic_name())
    directory = call.region.directory
    if not directory.exists(name):
        raise HttpError(404, f"Topic {name} not found")
    await directory.unload(name, "requested by the admin API")


async def create(call: AdminRequest) -> None:
    region = call.region
    topic = call.topic_name()
    refuse_shadow(call.body)
    if region.partitioned.get(topic) is not None or region.directory.exists(str(topic)):
        raise HttpError(409, "This topic already exists")
    if topic.full_namespace in region.tenancy.closing:
        raise HttpError(409, "The namespace is being deleted")
    await region.directory.acquire(str(topic), OpenMode.CREATE_BY_COMMAND)
    if call.body:
        properties = call.body
        await change_properties(region, topic, lambda present: properties)


async def delete(call: AdminRequest) -> None:
    region = call.region
    topic = call.topic_name()
    if region.partitioned.get(topic) is not None:
        raise HttpError(412, f"{topic} has partitions: delete .../partitions")
    if not region.directory.exists(str(topic)):
        raise HttpError(404, f"Topic {topic} not found")
    await wait_for_deletion(region.directory.delete(str(topic), force=call.flag("force")))
    if topic.partitioned is None:
        await region.schemas.delete(topic)


# Ending topics, and removing their messages.


async def terminate(call: AdminRequest) -> Content:
    topic = call.topic_name()
    if call.region.partitioned.get(topic) is not None:
        raise HttpError(405, f"{topic} has partitions: terminate .../terminate/partitions")
    last = await (await call.load(str(topic))).termination.terminate()
    return message_id_json(last, topic.partition_index)


async def terminate_partitions(call: AdminRequest) -> Content:
    topic, found = partitioned_topic(call)
    ends: dict[str, Any] = {}
    for index, name in enumerate(partition_names(topic, found.count)):
        partition = await call.load(name, OpenMode.CREATE)
        ends[str(index)] = message_id_json(await partition.termination.terminate(), index)
    return ends


async def _existing_topics(call: AdminRequest) -> list[Topic]:
    """Load the topic, or its existing partitions."""
    topic, exists = str(call.topic_name()), call.region.directory.exists
    return [await call.load(name) for name in call.partition_names() if name == topic or exists(name)]


async def truncate(call: AdminRequest) -> None:
    """Move every durable subscription to the end, and trim all entries that other regions have, regardless of
    policies."""
    for topic in await _existing_topics(call):
        await call.region.housekeeper.truncate(topic)


async def trim(call: AdminRequest) -> None:
    for topic in await _existing_topics(call):
        await call.region.housekeeper.trim(topic)


async def compact(call: AdminRequest) -> None:
    compactions = [topic.compaction for topic in await call.load_partitions()]
    idle = [one for one in compactions if not one.is_running]
    if not idle:
        raise HttpError(409, "Compaction already in progress")
    for one in idle:
        one.begin()


async def compaction_status(call: AdminRequest) -> Content:
    """Return the status of compaction; of several partitions, the first of ERROR, RUNNING, NOT_RUN and SUCCESS."""
    compactions = [topic.compaction for topic in await call.load_partitions()]
    order = (
        CompactionStatus.ERROR,
        CompactionStatus.RUNNING,
        CompactionStatus.NOT_RUN,
        CompactionStatus.SUCCESS,
    )
    furthest = min(compactions, key=lambda one: order.index(one.status))
    return {"status": furthest.status.value, "lastError": furthest.last_error}


# Properties, which users and tools choose freely. Those of partitioned topics are stored in the cluster's configuration
# store, all others in the region's store.


def properties_of(region: Region, topic: TopicName) -> Mapping[str, str]:
    """Return the properties of a topic; empty if it has none."""
    partitioned = region.partitioned.get(topic)
    if partitioned is not None:
        return partitioned.properties
    stored = region.store.get(TopicPropertiesKey(str(topic)).text)
    found: Mapping[str, str] = {} if stored is None else json.loads(stored.value)
    return found


async def change_properties(
    region: Region, topic: TopicName, change: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    """Change the properties of a topic; durable on return. HttpError 412 for too many properties."""
    if region.partitioned.get(topic) is not None:
        await region.partitioned.set_properties(
            topic, lambda present: limit_properties(change(present), "topic")
        )
        return
    key = TopicPropertiesKey(str(topic)).text
    new = limit_properties(change(properties_of(region, topic)), "topic")
    if new:
        await region.store.put(key, json.dumps(new).encode())
    else:
        await region.store.delete(key)


async def get_properties(call: AdminRequest) -> Content:
    return dict(properties_of(call.region, call.existing_topic()))


async def put_properties(call: AdminRequest) -> None:
    properties = call.body or {}
    await change_properties(call.region, call.existing_topic(), lambda present: {**present, **properties})


async def delete_properties(call: AdminRequest) -> None:
    key = call.query.get("key")
    await change_properties(
        call.region,
        call.existing_topic(),
        lambda present: {name: one for name, one in present.items() if key is not None and name != key},
    )


# Lookups.


async def look_up(call: AdminRequest) -> Content:
    region, name = call.region, full_topic_name(call.names)
    if not (name.startswith(COORDINATORS) and region.coordinators.count):
        region.check_topic(name)
    (plain, secured), (http_url, https_url) = call.service_urls, call.urls
    # External and internal clients use the same port; internal ones use the region's internal host name.
    inside = region.config.internal_host.lower()
    if inside and host_in(call.host) == inside:
        plain, secured = region.clients.ports.internal_urls
        http_url, https_url = _internal_web_urls(call)
    # Clients with the C++ library crash (SIGSEGV) if both of the last two fields are missing.
    return {
        "brokerUrl": plain,
        "nativeUrl": plain,
        "httpUrl": http_url,
        **({"httpUrlTls": https_url} if https_url else {}),
        "brokerUrlTls": secured,
        "brokerUrlSsl": secured,
    }


def _internal_web_urls(call: AdminRequest) -> tuple[str, str]:
    """Return the URLs of the HTTP ports by the host name of the request, without and with TLS."""
    port, port_tls = call.context.port, call.context.port_tls
    if not port_tls:
        return f"http://{call.host}", ""
    host = in_url(host_in(call.host))
    return f"http://{host}:{port}" if port else "", f"https://{host}:{port_tls}"


async def bundle(call: AdminRequest) -> Content:
    call.topic_name()
    return WHOLE_BUNDLE


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_FORCE = Query("force", "Even if it has producers or consumers; these are disconnected.")


def _rows(domain: str, created: str) -> tuple[Resource, ...]:
    """Return the rows for the topics of a domain. `created`: documentation of creating a topic in the domain."""
    topic = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    return (
        Resource(
            topic,
            put=changes(create, f"{created} The body: its properties.", body=PROPERTIES_BODY),
            delete=changes(delete, "Delete the topic and all that belongs to it.", _FORCE),
        ),
        Resource(
            f"{topic}/stats",
            get=reads(
                get_stats,
                "Publishers, subscriptions with their consumers, replication, sizes.",
                *EXCLUDED,
                permission=Permission.LOOKUP,
            ),
        ),
        Resource(
            f"{topic}/internalStats",
            get=reads(
                get_internal_stats,
                "The log's ledger and the position of each cursor.",
                permission=Permission.LOOKUP,
            ),
        ),
        Resource(
            f"{topic}/internal-info",
            get=reads(
                get_internal_info,
                "The log's ledger, and the position of each durable cursor.",
                permission=Permission.LOOKUP,
            ),
        ),
        Resource(
            f"{topic}/unload",
            put=changes(
                unload,
                "Unload the topic; its clients reconnect. An exclusive producer keeps the topic, and "
                "waiting producers keep their order.",
            ),
        ),
        Resource(
            f"{topic}/subscriptions",
            get=reads(subscriptions, "Names of the topic's subscriptions.", permission=Permission.CONSUME),
        ),
    )


RESOURCES = (
    *_rows(PERSISTENT, "Create the topic, without partitions."),
    *_rows(NON_PERSISTENT, "Load the topic; it is removed after a time without use."),
    Resource(
        f"{_TOPIC}/terminate",
        post=changes(
            terminate,
            "Terminate the topic in this region: no more publishes; consumers read to its end. Returns "
            "the last position.",
            empty=False,
        ),
    ),
    Resource(
        f"{_TOPIC}/terminate/partitions",
        post=changes(
            terminate_partitions, "The same for all partitions. Returns the last positions.", empty=False
        ),
    ),
    Resource(
        f"{_TOPIC}/truncate",
        delete=changes(
            truncate,
            "Move every durable subscription of this region to the end, and remove the entries that all other regions "
            "have.",
        ),
    ),
    Resource(f"{_TOPIC}/trim", post=changes(trim, "Trim the entries that retention does not keep now.")),
    Resource(
        f"{_TOPIC}/properties",
        get=reads(get_properties, "All properties.", permission=Permission.LOOKUP),
        put=changes(put_properties, "Add these properties.", body=PROPERTIES_BODY),
        delete=changes(delete_properties, "Remove one property, or all.", Query("key", "Which one.", str)),
    ),
)
COMPACTION = (
    Resource(
        f"{_TOPIC}/compaction",
        get=reads(
            compaction_status,
            "NOT_RUN since the topic was loaded, RUNNING, SUCCESS or ERROR, with the last error.",
        ),
        put=changes(
            compact, "Compact the topic, or its partitions, now; 409 if all of them are being compacted."
        ),
    ),
)
LOOKUPS = (
    Resource(
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        get=reads(bundle, "The only bundle of the topic's namespace.", text=True),
    ),
    Resource(
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        get=reads(
            look_up,
            "Addresses for the topic, by the host name of the request. Without `security.tls` in the topology, "
            "`brokerUrlTls` and `brokerUrlSsl` are empty.",
            permission=Permission.LOOKUP,
        ),
    ),
)
