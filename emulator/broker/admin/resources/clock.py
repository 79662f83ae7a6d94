"""The region's wall clock: its time, and its offset."""

from __future__ import annotations

from typing import Any

from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.authorization import ResourceScope
from emulator.broker.environment import ShiftedClock
from emulator.config.region import CLOCK_AHEAD_MS_MAX

_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ahead_ms"],
    "properties": {
        "ahead_ms": {"type": "integer", "minimum": -CLOCK_AHEAD_MS_MAX, "maximum": CLOCK_AHEAD_MS_MAX}
    },
}


def _clock(call: AdminRequest) -> ShiftedClock:
    clock = call.context.region.environment.wall_clock_ms
    if not isinstance(clock, ShiftedClock):
        raise HttpError(409, "the clock of this region cannot be set over HTTP")
    return clock


async def get(call: AdminRequest) -> Response:
    clock = _clock(call)
    return Response({"now_ms": clock(), "ahead_ms": clock.ahead_ms})


async def put(call: AdminRequest) -> Response:
    _clock(call).ahead_ms = call.body
    return Response(status=204)


def _parse(body: Any) -> int:
    ahead_ms = body.get("ahead_ms") if isinstance(body, dict) and len(body) == 1 else None
    if not isinstance(ahead_ms, int) or isinstance(ahead_ms, bool) or abs(ahead_ms) > CLOCK_AHEAD_MS_MAX:
        limit = CLOCK_AHEAD_MS_MAX
        raise HttpError(
            400, f"the body must be an object with ahead_ms, a whole number from {-limit} to {limit}"
        )
    return ahead_ms


RESOURCES = (
    Resource(
        "/geoemu/v1/clock",
        ResourceScope.REGION,
        get=reads(get, "The region's wall clock and its offset."),
        put=changes(
            put,
            "Offset the region's wall clock from the machine's, ahead or behind.",
            body=Body(_parse, _SCHEMA),
        ),
    ),
)
