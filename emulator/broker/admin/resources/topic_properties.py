"""Properties of a topic, free for people and tools. Those of a partitioned topic are the cluster's, else the
region's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.admin.resources.policies import parser
from emulator.broker.authorization import ResourceScope
from emulator.broker.region import Region
from emulator.core.policies.stored_only import PROPERTIES
from emulator.model.stored_keys import TopicPropertiesKey
from emulator.model.values import TopicName

PROPERTIES_MAX = 1_000
PROPERTIES_BODY = Body(parser(PROPERTIES), PROPERTIES.codec.schema)


def _topic(call: AdminRequest) -> TopicName:
    """HttpError 404 when it does not exist."""
    region = call.context.region
    topic = region.check_topic(topic_name(call.names))
    if region.partitioned.get(topic) is None and not region.directory.exists(str(topic)):
        raise HttpError(404, f"Topic {topic} not found")
    return topic


def properties_of(region: Region, topic: TopicName) -> Mapping[str, str]:
    """The properties of a topic, empty when it has none."""
    partitioned = region.partitioned.get(topic)
    if partitioned is not None:
        return partitioned.properties
    stored = region.store.get(TopicPropertiesKey(str(topic)).text)
    found: Mapping[str, str] = {} if stored is None else json.loads(stored.value)
    return found


async def change_properties(
    region: Region, topic: TopicName, changed: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    """Change them; durable when it returns. HttpError 412 for too many."""

    def bounded(present: Mapping[str, str]) -> Mapping[str, str]:
        new = changed(present)
        if len(new) > PROPERTIES_MAX:
            raise HttpError(412, f"a topic may have {PROPERTIES_MAX} properties at most")
        return new

    if region.partitioned.get(topic) is not None:
        await region.partitioned.set_properties(topic, bounded)
        return
    key = TopicPropertiesKey(str(topic)).text
    new = bounded(properties_of(region, topic))
    if new:
        await region.store.put(key, json.dumps(new).encode())
    else:
        await region.store.delete(key)


async def get(call: AdminRequest) -> Response:
    return Response(dict(properties_of(call.context.region, _topic(call))))


async def put(call: AdminRequest) -> Response:
    given = call.body or {}
    await change_properties(call.context.region, _topic(call), lambda present: {**present, **given})
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    key = call.query.get("key")
    await change_properties(
        call.context.region,
        _topic(call),
        lambda present: {name: one for name, one in present.items() if key is not None and name != key},
    )
    return Response(status=204)


RESOURCES = (
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/properties",
        ResourceScope.TOPIC,
        get=reads(get, "All properties."),
        put=changes(put, "Add these properties.", body=PROPERTIES_BODY),
        delete=changes(delete, "Remove one property, or all.", Query("key", "Which one.", str)),
    ),
)
