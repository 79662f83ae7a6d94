"""One topic: its subscriptions and its stats."""

from __future__ import annotations

from emulator.broker.admin import stats
from emulator.broker.admin.context import topic_name
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.ledger_info import ledger_info
from emulator.broker.admin.resource import AdminRequest, Query, Resource, changes, reads
from emulator.broker.admin.resources.partitions import EXCLUDED
from emulator.broker.admin.resources.topic_properties import PROPERTIES_BODY, change_properties
from emulator.broker.admin.resources.unsupported import refuse_shadow
from emulator.broker.authorization import ResourceScope
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import NON_PERSISTENT, PERSISTENT


async def _topic(call: AdminRequest) -> Topic:
    return await call.context.region.directory.acquire(topic_name(call.names), OpenMode.EXISTING)


async def subscriptions(call: AdminRequest) -> Response:
    return Response(sorted((await _topic(call)).subscriptions))


async def figures(call: AdminRequest) -> Response:
    return Response(
        stats.topic_stats(
            await _topic(call),
            publishers=not call.query.get("excludePublishers", False),
            consumers=not call.query.get("excludeConsumers", False),
        )
    )


async def internal_figures(call: AdminRequest) -> Response:
    return Response(stats.internal_stats(await _topic(call)))


async def stored(call: AdminRequest) -> Response:
    return Response(ledger_info(await _topic(call)))


async def unload(call: AdminRequest) -> Response:
    """Disconnect all clients of the topic; the first to reconnect loads it again."""
    name = str(call.context.region.check_topic(topic_name(call.names)))
    directory = call.context.region.directory
    if not directory.exists(name):
        raise HttpError(404, f"Topic {name} not found")
    await directory.unload(name, "requested by the admin API")
    return Response(status=204)


async def create(call: AdminRequest) -> Response:
    region = call.context.region
    topic = region.check_topic(topic_name(call.names))
    refuse_shadow(call.body)
    if region.partitioned.get(topic) is not None or region.directory.exists(str(topic)):
        raise HttpError(409, "This topic already exists")
    if topic.full_namespace in region.tenancy.closing:
        raise HttpError(409, "The namespace is being deleted")
    await region.directory.acquire(str(topic), OpenMode.CREATE_BY_COMMAND)
    if call.body:
        given = call.body
        await change_properties(region, topic, lambda present: given)
    return Response(status=204)


async def delete(call: AdminRequest) -> Response:
    region = call.context.region
    topic = region.check_topic(topic_name(call.names))
    if region.partitioned.get(topic) is not None:
        raise HttpError(412, f"{topic} has partitions: delete .../partitions")
    if not region.directory.exists(str(topic)):
        raise HttpError(404, f"Topic {topic} not found")
    try:
        await region.directory.delete(str(topic), force=call.query.get("force", False))
    except ProtocolError as problem:
        if problem.code is not ServerError.NotAllowedError:
            raise
        raise HttpError(412, str(problem)) from None
    if topic.partitioned is None:
        await region.schemas.delete(topic)
    return Response(status=204)


_FORCE = Query("force", "Even if it has producers or consumers; these are disconnected.")


def _rows(domain: str, kept: str) -> tuple[Resource, ...]:
    """Rows for topics of a domain; `kept`: the effect of creating one there."""
    topic, given = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}", {"domain": domain}
    return (
        Resource(
            topic,
            ResourceScope.TOPIC,
            put=changes(create, f"{kept} The body: its properties.", body=PROPERTIES_BODY),
            delete=changes(delete, "Delete the topic and all that belongs to it.", _FORCE),
            given=given,
        ),
        Resource(
            f"{topic}/stats",
            ResourceScope.TOPIC,
            get=reads(
                figures,
                "Publishers, subscriptions with their consumers, replication, sizes.",
                *EXCLUDED,
            ),
            given=given,
        ),
        Resource(
            f"{topic}/internalStats",
            ResourceScope.TOPIC,
            get=reads(internal_figures, "The log's ledger and the position of each cursor."),
            given=given,
        ),
        Resource(
            f"{topic}/internal-info",
            ResourceScope.TOPIC,
            get=reads(stored, "Stored state: the log's ledger and the position of each durable cursor."),
            given=given,
        ),
        Resource(
            f"{topic}/unload",
            ResourceScope.TOPIC,
            put=changes(
                unload,
                "Unload the topic; its clients reconnect. An exclusive producer keeps the topic, and "
                "waiting producers keep their order.",
            ),
            given=given,
        ),
        Resource(
            f"{topic}/subscriptions",
            ResourceScope.TOPIC,
            get=reads(subscriptions, "Names of the topic's subscriptions."),
            given=given,
        ),
    )


RESOURCES = (
    *_rows(PERSISTENT, "Create the topic, without partitions."),
    *_rows(NON_PERSISTENT, "Load the topic; it is removed after a time without use."),
)
