"""Resources of protocol events: their numbers since the region's start, and requests that wait for a number."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Query, Resource, reads
from emulator.model.protocol_events import COUNT_MAX, PROTOCOL_EVENTS, full_topic
from emulator.net.http_server import HttpError

WAIT_MS_MAX = 30_000


def _event_row(call: AdminRequest, event: str, topic: str = "") -> dict[str, Any]:
    count = call.region.resources.protocol_events.count(event, topic)
    return {"event": event, "topic": topic, "count": count, "start": call.region.incarnation.starts}


async def get_events(call: AdminRequest) -> Content:
    return [_event_row(call, event) for event in PROTOCOL_EVENTS]


async def get_event(call: AdminRequest) -> Content:
    event, topic, count = call.names["event"], call.query.get("topic", ""), call.query.get("count", 0)
    wait_ms = call.query.get("wait_ms", WAIT_MS_MAX if count else 0)
    if event not in PROTOCOL_EVENTS:
        raise HttpError(404, f"there is no event {event[:100]!r}: events are {', '.join(PROTOCOL_EVENTS)}")
    if topic:
        try:
            topic = full_topic(event, topic)
        except ValueError as problem:
            raise HttpError(400, str(problem)) from None
    if count > COUNT_MAX:
        raise HttpError(400, f"count: {count} must be at most {COUNT_MAX}")
    if wait_ms > WAIT_MS_MAX:
        raise HttpError(400, f"wait_ms: {wait_ms} must be at most {WAIT_MS_MAX}")
    await call.region.resources.protocol_events.reached(event, count, topic, seconds=wait_ms / 1000)
    return _event_row(call, event, topic)


RESOURCES = (
    Resource(
        "/geoemu/v1/protocol-events",
        get=reads(get_events, "Number of protocol events of each kind since the region's start."),
    ),
    Resource(
        "/geoemu/v1/protocol-events/{event}",
        get=reads(
            get_event,
            "Number of events of one kind since the region's start. With `count`, the response is sent as soon as "
            "this number is reached, or after `wait_ms`.",
            Query("topic", "Count events of this topic only, or of all partitions of it.", str),
            Query("count", "Number to wait for.", int),
            Query("wait_ms", f"Longest wait in milliseconds; default and maximum: {WAIT_MS_MAX}.", int),
        ),
    ),
)
