"""Properties of a subscription, free for people and tools. They are stored with its cursor, and deleted with it."""

from __future__ import annotations

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Resource, changes, reads
from emulator.broker.admin.resources.topic_properties import PROPERTIES_BODY
from emulator.broker.admin.topics_named import every_subscription
from emulator.broker.authorization import ResourceScope
from emulator.broker.connection.consumers import PROPERTIES_LENGTH_MAX


async def get(call: AdminRequest) -> Response:
    """For several partitions: the union of their properties."""
    found = await every_subscription(call)
    return Response({name: one for _, each in found for name, one in each.cursor.properties.items()})


async def put(call: AdminRequest) -> Response:
    given = call.body or {}
    length = sum(len(name) + len(one) for name, one in given.items())
    if length > PROPERTIES_LENGTH_MAX:
        raise HttpError(
            412, f"properties of {length:,} characters; a subscription may have {PROPERTIES_LENGTH_MAX:,}"
        )
    found = await every_subscription(call)
    for _, subscription in found:
        subscription.move(lambda cursor: cursor.set_properties(given))
    for _, subscription in found:
        await subscription.persisted()
    return Response(status=204)


RESOURCES = (
    Resource(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/properties",
        ResourceScope.TOPIC,
        get=reads(get, "All properties."),
        put=changes(put, "Replace the properties; an empty object removes all.", body=PROPERTIES_BODY),
    ),
)
