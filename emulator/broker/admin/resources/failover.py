"""Fail-over plans and positions in other regions: what each region contributes to them."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Query, Resource, reads
from emulator.broker.explain import delivery, failover, translation
from emulator.broker.topic.topic import Topic
from emulator.core.replication.delivery_state import DeliveryState, parse_origin, parse_position
from emulator.core.replication.update_records import UpdateRecords
from emulator.model.values import Position
from emulator.net.http_server import HttpError

_TOPIC = "{tenant}/{namespace}/{topic}"


async def delivery_state(call: AdminRequest) -> Content:
    """Return the delivery state, and the age of what is known of the subscription in each other region."""
    topic, name = await call.load_single(), call.names["subscription"]
    source = call.query.get("source")
    if source is not None and source not in call.region.peers:
        raise _unknown_region(call, source)
    state = await delivery.delivery_state(topic, name, source)
    return {**state.as_json(), "information": _information(topic, name)}


def _information(topic: Topic, name: str) -> dict[str, Any]:
    """Return what is known of the subscription in each other region: the newest update that was applied here."""
    replicated = topic.subscriptions.replicated
    known = {} if replicated is None else dict(replicated.records.items())
    records = known.get(name, UpdateRecords())
    now_ms = topic.region.environment.wall_clock_ms()
    return {
        source: {
            "position": None if one.position is None else str(one.position),
            "age_ms": max(0, now_ms - (one.written_ms if one.at_ms is None else one.at_ms)),
            "outcome": one.outcome.value,
        }
        for source, one in sorted(records.received.items())
    }


async def plan(call: AdminRequest) -> Content:
    """Return the plan of a fail-over from this region to the one whose delivery state is the body."""
    target: DeliveryState = call.required_body("the delivery state of the region that takes over")
    if target.region not in call.region.peers:
        raise _unknown_region(call, target.region)
    topic, subscription = await call.subscription()
    return (await failover.failover_plan(topic, subscription, target)).to_json()


# Positions in other regions.


def _position(text: str, name: str) -> Position:
    found = parse_position(text)
    if found is None or found.entry < 0:
        raise HttpError(400, f"{name}: {text[:100]!r} must be a position, like 5:17")
    return found


async def origin(call: AdminRequest) -> Content:
    """Return the origin of the entry at the position in the path. HttpError 404 if the log has no such entry."""
    position = _position(call.names["position"], "position")
    topic = await call.load_single()
    found = await translation.origin_at(topic, position)
    if found is None:
        first, last = topic.reading.first_entry_id, topic.state.readable_end - 1
        raise HttpError(
            404,
            f"{topic.full_name} has no entry {position} in {topic.region.config.region}: its log has entries "
            f"{topic.ledger_id}:{first} to {topic.ledger_id}:{last}",
        )
    return found


async def position(call: AdminRequest) -> Content:
    """Return the position of the entry with an origin, or the bound by snapshots for a position of another region."""
    text, source = call.query.get("origin"), call.query.get("source")
    topic = await call.load_single()
    if text is not None:
        wanted = parse_origin(text)
        if wanted is None:
            raise HttpError(400, f"origin: {text[:100]!r} must be region:ledger:entry")
        return await translation.place_of(topic, wanted)
    if source is None or source not in call.region.peers:
        raise HttpError(400, "the query must have an origin, or the source and position of an entry")
    upto = translation.upto_of(topic, source, _position(call.query.get("position", ""), "position"))
    last = Position(topic.ledger_id, topic.state.readable_end - 1)
    return {"upto": None if upto is None else str(upto), "last": str(last)}


def _unknown_region(call: AdminRequest, name: str) -> HttpError:
    others = ", ".join(sorted(call.region.peers)) or "none"
    return HttpError(404, f"{name!r} is no other region of {call.region.config.region}; others are: {others}")


def _parse_state(raw: Any) -> DeliveryState:
    try:
        return DeliveryState.parse(raw)
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None


_STATE = Body(
    _parse_state,
    {
        "type": "object",
        "description": "The response of GET /geoemu/v1/delivery-state of the region that takes over.",
        "required": ["region"],
        "properties": {"region": {"type": "string"}},
    },
)
RESOURCES = (
    Resource(
        f"/geoemu/v1/delivery-state/{_TOPIC}/{{subscription}}",
        get=reads(
            delivery_state,
            "What the region would deliver to consumers of the subscription: unacknowledged messages by their origin, "
            "and the age of what is known of the subscription in other regions.",
            Query("source", "Leave out messages that never reach this region. Default: none.", str),
        ),
    ),
    Resource(
        f"/geoemu/v1/failover-plan/{_TOPIC}/{{subscription}}",
        post=reads(
            plan,
            "What happens if the consumers of the subscription continue in another region. The body is the delivery "
            "state of that region.",
            body=_STATE,
        ),
    ),
    Resource(
        f"/geoemu/v1/origin/{_TOPIC}/{{position}}",
        get=reads(
            origin,
            "Where the entry at the position `ledger:entry` was published, and by snapshots for each other region a "
            "position before it.",
        ),
    ),
    Resource(
        f"/geoemu/v1/position/{_TOPIC}",
        get=reads(
            position,
            "The position of the entry with an origin, or its neighbours; or a bound by snapshots for a position in "
            "another region.",
            Query("origin", "The origin `region:ledger:entry`.", str),
            Query("source", "Without an origin: the region of `position`.", str),
            Query("position", "Without an origin: a position in the log of `source`.", str),
        ),
    ),
)
