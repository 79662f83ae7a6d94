"""Resources of the machine that a region emulates: its wall clock, its disk and its power."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from emulator.broker.admin.request import AdminRequest, Content
from emulator.broker.admin.resource import Body, Resource, changes, reads
from emulator.broker.environment import ShiftedClock
from emulator.config.region import CLOCK_AHEAD_MS_MAX
from emulator.model.machine import DISK_DELAY_MS_MAX, DISK_STATES, DiskCondition
from emulator.model.units import CLOCK_DRIFT_PPM_MAX, checked_drift_ppm
from emulator.net.http_server import HttpError
from emulator.storage.contract import FaultableDisk


def _clock(call: AdminRequest) -> ShiftedClock:
    clock = call.region.environment.wall_clock_ms
    if not isinstance(clock, ShiftedClock):
        raise HttpError(409, "the clock of this region cannot be set over HTTP")
    return clock


async def get_clock(call: AdminRequest) -> Content:
    clock = _clock(call)
    return {"now_ms": clock(), "ahead_ms": clock.ahead_ms, "drift_ppm": clock.drift_ppm}


async def set_clock(call: AdminRequest) -> None:
    _clock(call).set(*call.body)


def _store(call: AdminRequest) -> FaultableDisk:
    store = call.region.store
    if not isinstance(store, FaultableDisk):
        raise HttpError(409, "the disk of this region cannot be set over HTTP")
    return store


async def get_storage(call: AdminRequest) -> Content:
    store = _store(call)
    return {
        "backend": call.region.config.log.backend,
        **asdict(store.condition),
        "waiting_writes": store.waiting,
    }


async def set_storage(call: AdminRequest) -> None:
    _store(call).set_condition(call.body)


async def lose_power(call: AdminRequest) -> None:
    lose_power = call.region.environment.lose_power
    if lose_power is None:
        raise HttpError(409, "this region cannot lose power over HTTP")
    lose_power()


# Bodies.


def _clock_offset(body: Any) -> tuple[int, float]:
    """Return the offset in ms and the drift in ppm."""
    limit = CLOCK_AHEAD_MS_MAX
    if not isinstance(body, dict) or not {"ahead_ms"} <= body.keys() <= {"ahead_ms", "drift_ppm"}:
        raise HttpError(400, "the body must be an object with ahead_ms, and optionally drift_ppm")
    ahead_ms = body["ahead_ms"]
    if not isinstance(ahead_ms, int) or isinstance(ahead_ms, bool) or abs(ahead_ms) > limit:
        raise HttpError(400, f"ahead_ms must be a whole number from {-limit} to {limit}")
    try:
        return ahead_ms, checked_drift_ppm(body.get("drift_ppm", 0))
    except ValueError as problem:
        raise HttpError(400, f"drift_ppm {problem}") from None


_OFFSET = {"type": "integer", "minimum": -CLOCK_AHEAD_MS_MAX, "maximum": CLOCK_AHEAD_MS_MAX}
_DRIFT = {"type": "number", "minimum": -CLOCK_DRIFT_PPM_MAX, "maximum": CLOCK_DRIFT_PPM_MAX}
_CLOCK = Body(
    _clock_offset,
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["ahead_ms"],
        "properties": {"ahead_ms": _OFFSET, "drift_ppm": _DRIFT},
    },
)


def _disk_condition(body: Any) -> DiskCondition:
    if not isinstance(body, dict) or not {"state"} <= body.keys() <= {"state", "delay_ms"}:
        raise HttpError(400, "the body must be an object with state, and for a slow disk optionally delay_ms")
    try:
        return DiskCondition.of(**body)
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None


_STORAGE = Body(
    _disk_condition,
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["state"],
        "properties": {
            "state": {"enum": list(DISK_STATES)},
            "delay_ms": {"type": "number", "exclusiveMinimum": 0, "maximum": DISK_DELAY_MS_MAX},
        },
    },
)

RESOURCES = (
    Resource(
        "/geoemu/v1/clock",
        get=reads(get_clock, "The region's wall clock and its offset."),
        put=changes(
            set_clock,
            "Offset the region's wall clock from the machine's, ahead or behind, and let it drift.",
            body=_CLOCK,
        ),
    ),
    Resource(
        "/geoemu/v1/storage",
        get=reads(get_storage, "The state of the region's disk, and the writes that wait for a slow one."),
        put=changes(set_storage, "Make the region's disk slow, full, failing or healthy.", body=_STORAGE),
    ),
    Resource(
        "/geoemu/v1/power-loss",
        put=changes(
            lose_power,
            "End the region without a response, as a power loss does: what is not synced is dropped.",
        ),
    ),
)
