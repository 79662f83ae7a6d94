"""Compaction of a topic: start it, and show its status."""

from __future__ import annotations

from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.compaction.compaction import Compaction, CompactionStatus
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.partitions import partition_names


async def _compactions(call: AdminRequest) -> list[Compaction]:
    """The compaction of the topic, or of all its partitions."""
    region = call.context.region
    topic = region.check_topic(topic_name(call.names))
    found = region.partitioned.get(topic)
    names = [str(topic)] if found is None else partition_names(topic, found.count)
    return [(await region.directory.acquire(name, OpenMode.EXISTING)).compaction for name in names]


async def begin(call: AdminRequest) -> Response:
    compactions = await _compactions(call)
    idle = [one for one in compactions if not one.is_running]
    if not idle:
        raise HttpError(409, "Compaction already in progress")
    for one in idle:
        one.begin()
    return Response(status=204)


async def status(call: AdminRequest) -> Response:
    """Of several partitions, the status that is furthest from success."""
    compactions = await _compactions(call)
    order = (
        CompactionStatus.ERROR,
        CompactionStatus.RUNNING,
        CompactionStatus.NOT_RUN,
        CompactionStatus.SUCCESS,
    )
    worst = min(compactions, key=lambda one: order.index(one.status))
    return Response({"status": worst.status.value, "lastError": worst.last_error})


RESOURCES = (
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/compaction",
        ResourceScope.TOPIC,
        get=reads(
            status, "NOT_RUN since the topic was loaded, RUNNING, SUCCESS or ERROR, with the last error."
        ),
        put=changes(begin, "Compact the topic, or all its partitions, now; 409 while compaction runs."),
    ),
)
