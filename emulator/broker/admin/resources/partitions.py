"""Partitioned topics: their number of partitions, and stats of all partitions together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from emulator.broker.admin import ledger_stats, stats
from emulator.broker.admin.request import AdminRequest, Content, full_topic_name
from emulator.broker.admin.resource import Body, Query, Resource, changes, reads
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.partitions import Exists
from emulator.core.authorization.rule import Permission
from emulator.core.partitions import Partitioned, partition_names
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import COORDINATORS
from emulator.model.values import NON_PERSISTENT, PARTITIONS_MAX, PERSISTENT, TopicName
from emulator.net.http_server import HttpError


def partitioned_topic(call: AdminRequest) -> tuple[TopicName, Partitioned]:
    """Return the partitioned topic in the path. HttpError 404 when it is not partitioned."""
    topic = call.topic_name()
    found = call.region.partitioned.get(topic)
    if found is None:
        raise HttpError(404, f"Partitioned Topic {topic} not found")
    return topic, found


async def get(call: AdminRequest) -> Content:
    """Return the number of partitions: 0 for a topic that does not exist, since clients request it before they create
    the topic; for the topic of the transaction coordinators, the number of coordinators."""
    if full_topic_name(call.names) == COORDINATORS:
        return {"partitions": call.region.coordinators.count}
    topic, region = call.topic_name(), call.region
    found = region.partitioned.get(topic)
    if found is None:
        return {"partitions": 0}
    return {"partitions": found.count, "properties": dict(found.properties)}


async def create(call: AdminRequest) -> None:
    region, topic = call.region, call.topic_name()
    requested: Partitioned = call.required_body("a number of partitions")
    try:
        with _room(call, topic, partition_names(topic, requested.count)):
            await region.partitioned.create(topic, requested.count, requested.properties)
    except Exists as problem:
        raise HttpError(409, str(problem)) from None
    except ValueError as problem:
        raise HttpError(412, str(problem)) from None


@contextmanager
def _room(call: AdminRequest, topic: TopicName, names: list[str]) -> Iterator[None]:
    """Reserve room for partitions of these names. HttpError 412 when they exceed the maximum of the namespace or its
    tenant."""
    with ExitStack() as reserved:
        try:
            reserved.enter_context(call.region.topic_rules.reserve(topic, names))
        except ProtocolError as problem:
            raise HttpError(412, str(problem)) from None
        yield


async def grow(call: AdminRequest) -> None:
    region, (topic, found) = call.region, partitioned_topic(call)
    requested: Partitioned = call.required_body("a number of partitions")
    try:
        with _room(call, topic, partition_names(topic, requested.count, found.count)):
            await region.partitioned.grow(topic, requested.count)
    except ValueError as problem:
        raise HttpError(406, str(problem)) from None


async def delete(call: AdminRequest) -> None:
    region, (topic, _) = call.region, partitioned_topic(call)
    await wait_for_deletion(region.partitioned.delete(topic, force=call.flag("force")))
    await region.schemas.delete(topic)


async def wait_for_deletion(deletion: Awaitable[None]) -> None:
    """Wait for the deletion of a topic. HttpError 412 when it is not allowed: the topic is in use, without `force`."""
    try:
        await deletion
    except ProtocolError as problem:
        if problem.code is not ServerError.NotAllowedError:
            raise
        raise HttpError(412, str(problem)) from None


def topic_stats_of(call: AdminRequest, topic: Topic) -> dict[str, Any]:
    return stats.topic_stats(
        topic, publishers=not call.flag("excludePublishers"), consumers=not call.flag("excludeConsumers")
    )


async def _each_partition(
    call: AdminRequest, stats_of: Callable[[Topic], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Load the existing partitions. Return the metadata of the partitioned topic, and the stats of each partition, by
    name."""
    topic, found = partitioned_topic(call)
    names, exists = partition_names(topic, found.count), call.region.directory.exists
    metadata = {"partitions": found.count, "properties": dict(found.properties)}
    return metadata, {name: stats_of(await call.load(name)) for name in names if exists(name)}


async def get_stats(call: AdminRequest) -> Content:
    """Return the sum of the partitions' stats and, unless `perPartition` is false, the stats of each."""
    metadata, stats_by_name = await _each_partition(call, lambda topic: topic_stats_of(call, topic))
    partitions = stats_by_name if call.query.get("perPartition", True) else {}
    return {
        "metadata": metadata,
        **stats.partitioned_stats(list(stats_by_name.values())),
        "partitions": partitions,
    }


async def get_internal_stats(call: AdminRequest) -> Content:
    metadata, stats_by_name = await _each_partition(call, ledger_stats.internal_stats)
    return {"metadata": metadata, "partitions": stats_by_name}


async def create_missed(call: AdminRequest) -> None:
    topic, _ = partitioned_topic(call)
    await call.region.partitioned.open_all(topic)


async def names(call: AdminRequest) -> Content:
    name = call.namespace()
    domain = f"{call.names['domain']}://"
    return [one for one in call.region.partitioned.names(name) if one.startswith(domain)]


def _parse(raw: Any) -> Partitioned | None:
    """Parse the body of a partitioned topic: a number, a quoted number, or an object with `partitions` and
    `properties`. Pulsar's tools send all of them."""
    properties: Any = {}
    if isinstance(raw, dict):
        raw, properties = raw.get("partitions"), raw.get("properties") or {}
    if raw is None:
        return None
    if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) < 20:
        raw = int(raw)
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise HttpError(400, f"properties: {properties!r} must be an object of strings")
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
    topic = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    return (
        Resource(
            f"{topic}/partitions",
            get=reads(
                get, "The number of partitions; 0: none, or no such topic.", permission=Permission.LOOKUP
            ),
            put=changes(create, "Create a partitioned topic and its partitions.", body=_COUNT),
            post=changes(grow, "Add partitions: the new number, which must be larger.", body=_COUNT),
            delete=changes(
                delete,
                "Delete a partitioned topic with its partitions, in this cluster.",
                Query("force", "Even if they have producers or consumers; these are disconnected."),
            ),
        ),
        Resource(
            f"{topic}/partitioned-stats",
            get=reads(
                get_stats,
                "Statistics of all partitions together, and of each.",
                Query("perPartition", "Include the stats of each partition; true by default."),
                *EXCLUDED,
                permission=Permission.LOOKUP,
            ),
        ),
        Resource(
            f"{topic}/partitioned-internalStats",
            get=reads(
                get_internal_stats, "The log and the cursors of each partition.", permission=Permission.LOOKUP
            ),
        ),
        Resource(
            f"{topic}/createMissedPartitions", post=changes(create_missed, "Create missing partitions.")
        ),
        Resource(
            f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/partitioned",
            get=reads(
                names,
                "Full names of the namespace's partitioned topics.",
                permission=Permission.NAMESPACE_CONSUME,
            ),
        ),
    )


RESOURCES = (*_rows(PERSISTENT), *_rows(NON_PERSISTENT))
