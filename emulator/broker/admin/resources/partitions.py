"""Partitioned topics: their number of partitions, and stats of all partitions together."""

from __future__ import annotations

from typing import Any, Final

from emulator.broker.admin import stats
from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Query, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.broker.topic_directory.partitions import Exists
from emulator.core.partitions import Partitioned, partition_names
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import COORDINATORS
from emulator.model.values import NON_PERSISTENT, PARTITIONS_MAX, PERSISTENT, TopicName


def _named(call: AdminRequest) -> TopicName:
    return call.context.region.check_topic(topic_name(call.names))


def _found(call: AdminRequest) -> tuple[TopicName, Partitioned]:
    topic = _named(call)
    found = call.context.region.partitioned.get(topic)
    if found is None:
        raise HttpError(404, f"Partitioned Topic {topic} not found")
    return topic, found


async def get(call: AdminRequest) -> Response:
    """Also for a topic that does not exist: clients ask before they create it. And for the transaction coordinators."""
    if topic_name(call.names) == COORDINATORS:
        return Response({"partitions": call.context.region.coordinators.count})
    topic, region = _named(call), call.context.region
    found = region.partitioned.get(topic)
    if found is None:
        return Response({"partitions": 0})
    return Response({"partitions": found.count, "properties": dict(found.properties)})


async def create(call: AdminRequest) -> Response:
    region, topic = call.context.region, _named(call)
    if call.body is None:
        raise HttpError(400, "the body must be a number of partitions")
    made: Partitioned = call.body
    try:
        region.topic_rules.check_room(topic, made.count)
    except ProtocolError as problem:
        raise HttpError(412, str(problem)) from None
    try:
        await region.partitioned.create(topic, made.count, made.properties)
    except Exists as taken:
        raise HttpError(409, str(taken)) from None
    except ValueError as problem:
        raise HttpError(412, str(problem)) from None
    return Response(status=204)


async def grow(call: AdminRequest) -> Response:
    region, (topic, _) = call.context.region, _found(call)
    if call.body is None:
        raise HttpError(400, "the body must be a number of partitions")
    try:
        await region.partitioned.grow(topic, call.body.count)
    except ValueError as problem:
        raise HttpError(406, str(problem)) from None
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    region, (topic, _) = call.context.region, _found(call)
    try:
        await region.partitioned.delete(topic, force=call.query.get("force", False))
    except ProtocolError as problem:
        if problem.code is not ServerError.NotAllowedError:
            raise
        raise HttpError(412, str(problem)) from None
    await region.schemas.delete(topic)
    return Response(status=204)


async def figures(call: AdminRequest) -> Response:
    """The stats of the partitions, and their sum."""
    region, (topic, found) = call.context.region, _found(call)
    each: dict[str, dict[str, Any]] = {}
    for name in partition_names(topic, found.count):
        if region.directory.exists(name):
            each[name] = stats.topic_stats(
                await region.directory.acquire(name, OpenMode.EXISTING),
                publishers=not call.query.get("excludePublishers", False),
                consumers=not call.query.get("excludeConsumers", False),
            )
    per_partition = call.query.get("perPartition", True)
    return Response(
        {
            "metadata": {"partitions": found.count, "properties": dict(found.properties)},
            **stats.sum_of(list(each.values())),
            "partitions": each if per_partition else {},
        }
    )


async def internal_figures(call: AdminRequest) -> Response:
    region, (topic, found) = call.context.region, _found(call)
    each: dict[str, dict[str, Any]] = {}
    for name in partition_names(topic, found.count):
        if region.directory.exists(name):
            each[name] = stats.internal_stats(await region.directory.acquire(name, OpenMode.EXISTING))
    metadata = {"partitions": found.count, "properties": dict(found.properties)}
    return Response({"metadata": metadata, "partitions": each})


async def create_missed(call: AdminRequest) -> Response:
    topic, _ = _found(call)
    await call.context.region.partitioned.open_all(topic)
    return Response(status=204)


async def names(call: AdminRequest) -> Response:
    name = call.context.namespace(call.names["tenant"], call.names["namespace"])
    domain = f"{call.names['domain']}://"
    return Response([one for one in call.context.region.partitioned.names(name) if one.startswith(domain)])


def _parse(raw: Any) -> Partitioned | None:
    """A bare number, a quoted one, or an object with `partitions` and `properties`, as tools send them."""
    properties: Any = {}
    if isinstance(raw, dict):
        raw, properties = raw.get("partitions"), raw.get("properties") or {}
    if raw is None:
        return None
    if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) < 20:
        raw = int(raw)
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise HttpError(400, f"properties: {properties!r} must be an object of texts")
    try:
        return Partitioned(raw, properties)
    except ValueError as problem:
        raise HttpError(406, str(problem)) from None


_COUNT = Body(
    _parse,
    {
        "oneOf": [
            {"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX},
            {"type": "string"},
            {
                "type": "object",
                "properties": {"partitions": {"type": "integer"}, "properties": {"type": "object"}},
            },
        ]
    },
)


EXCLUDED: Final = (
    Query("excludePublishers", "Leave `publishers` empty."),
    Query("excludeConsumers", "Leave every `consumers` empty."),
)


def _rows(domain: str) -> tuple[Resource, ...]:
    topic, given = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}", {"domain": domain}
    return (
        Resource(
            f"{topic}/partitions",
            ResourceScope.TOPIC,
            get=reads(get, "The number of partitions; 0: none, or no such topic."),
            put=changes(create, "Create a partitioned topic and its partitions.", body=_COUNT),
            post=changes(grow, "Add partitions: the new number, which must be larger.", body=_COUNT),
            delete=changes(
                delete,
                "Delete a partitioned topic with its partitions, in this cluster.",
                Query("force", "Even if they have producers or consumers; these are disconnected."),
            ),
            given=given,
        ),
        Resource(
            f"{topic}/partitioned-stats",
            ResourceScope.TOPIC,
            get=reads(
                figures,
                "Statistics of all partitions together, and of each.",
                Query("perPartition", "Each, too."),
                *EXCLUDED,
            ),
            given=given,
        ),
        Resource(
            f"{topic}/partitioned-internalStats",
            ResourceScope.TOPIC,
            get=reads(internal_figures, "The log and the cursors of each partition."),
            given=given,
        ),
        Resource(
            f"{topic}/createMissedPartitions",
            ResourceScope.TOPIC,
            post=changes(create_missed, "Create missing partitions."),
            given=given,
        ),
        Resource(
            f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/partitioned",
            ResourceScope.NAMESPACE,
            get=reads(names, "Full names of the namespace's partitioned topics."),
            given=given,
        ),
    )


RESOURCES = (*_rows(PERSISTENT), *_rows(NON_PERSISTENT))
