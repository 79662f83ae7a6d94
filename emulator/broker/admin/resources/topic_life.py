"""Ends topics, or removes their messages: terminate, truncate, trim."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Operation, Resource, changes
from emulator.broker.authorization import Action, ResourceScope
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.partitions import partition_names
from emulator.model.values import Position, TopicName


def _named(call: AdminRequest) -> TopicName:
    return call.context.region.check_topic(topic_name(call.names))


async def _topic(call: AdminRequest, name: TopicName | str) -> Topic:
    return await call.context.region.directory.acquire(str(name), OpenMode.EXISTING)


def _message_id(last: Position, partition: int) -> dict[str, Any]:
    return {"ledgerId": last.ledger, "entryId": last.entry, "partitionIndex": partition}


async def terminate(call: AdminRequest) -> Response:
    topic = _named(call)
    if call.context.region.partitioned.get(topic) is not None:
        raise HttpError(405, f"{topic} has partitions: terminate .../terminate/partitions")
    last = await (await _topic(call, topic)).ending.terminate()
    return Response(_message_id(last, topic.partition_index))


async def terminate_partitions(call: AdminRequest) -> Response:
    region, topic = call.context.region, _named(call)
    found = region.partitioned.get(topic)
    if found is None:
        raise HttpError(404, f"Partitioned Topic {topic} not found")
    ends: dict[str, Any] = {}
    for index, name in enumerate(partition_names(topic, found.count)):
        partition = await region.directory.acquire(name, OpenMode.CREATE)
        ends[str(index)] = _message_id(await partition.ending.terminate(), index)
    return Response(ends)


async def _each(call: AdminRequest) -> list[Topic]:
    """The topic, or its partitions."""
    region, topic = call.context.region, _named(call)
    found = region.partitioned.get(topic)
    names = [str(topic)] if found is None else partition_names(topic, found.count)
    return [await _topic(call, name) for name in names if found is None or region.directory.exists(name)]


async def truncate(call: AdminRequest) -> Response:
    """Whatever the policies are: move every subscription to the end, and trim everything that other regions have."""
    for topic in await _each(call):
        await call.context.region.housekeeper.truncate(topic)
    return Response(status=204)


async def trim(call: AdminRequest) -> Response:
    for topic in await _each(call):
        await call.context.region.housekeeper.trim(topic)
    return Response(status=204)


_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

RESOURCES = (
    Resource(
        f"{_TOPIC}/terminate",
        ResourceScope.TOPIC,
        post=Operation(
            terminate,
            "Terminate the topic in this region: no more publishes; consumers read to its end. Returns "
            "the last position.",
            Action.CHANGE,
        ),
    ),
    Resource(
        f"{_TOPIC}/terminate/partitions",
        ResourceScope.TOPIC,
        post=Operation(
            terminate_partitions,
            "The same for all partitions. Returns the last positions.",
            Action.CHANGE,
        ),
    ),
    Resource(
        f"{_TOPIC}/truncate",
        ResourceScope.TOPIC,
        delete=changes(
            truncate,
            "Let every subscription of this region pass everything, and remove what other regions have.",
        ),
    ),
    Resource(
        f"{_TOPIC}/trim",
        ResourceScope.TOPIC,
        post=changes(trim, "Trim now what retention does not keep."),
    ),
)
