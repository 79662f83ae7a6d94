"""Resources of the emulated links that end at a region: their shapes, their armed faults, and their connections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from emulator.broker.admin.parsing import fields_body
from emulator.broker.admin.request import AdminRequest
from emulator.broker.admin.resource import Body, Resource, changes
from emulator.broker.links.emulation import EmulatedLink
from emulator.model.frame_faults import (
    COMMANDS,
    DELAY_MS_MAX,
    MARKERS,
    FrameAction,
    FrameFault,
    check_link_of,
)
from emulator.model.frame_faults import COUNT_MAX as FRAME_COUNT_MAX
from emulator.model.values import CLIENTS
from emulator.net.http_server import HttpError


def _link(call: AdminRequest) -> tuple[EmulatedLink, bool]:
    """Return the link of a request, and whether the named direction is outbound."""
    context, here = call.context, call.region.config.region
    source, target = call.names["source"], call.names["target"]
    if here not in (source, target):
        raise HttpError(404, f"{source} -> {target} does not end at {here}")
    link = context.links.get(target if source == here else source)
    if link is None:
        raise HttpError(404, f"no link {source} -> {target}; peers are: {', '.join(sorted(context.links))}")
    return link, source == here


async def set_link(call: AdminRequest) -> None:
    link, outbound = _link(call)
    changes = dict(call.body)
    try:
        if "frame_faults" in changes:
            changes["frame_faults"] = tuple(map(FrameFault.from_json, changes["frame_faults"]))
        shape = replace(link.outbound if outbound else link.inbound, **changes)
        shape.check()
        for fault in shape.frame_faults:
            check_link_of(fault, clients=CLIENTS in call.names.values())
    except ValueError as problem:
        raise HttpError(400, str(problem)) from None
    link.set_shape(shape, outbound=outbound)


async def break_connections(call: AdminRequest) -> None:
    link, _ = _link(call)
    match call.body["connections"]:
        case "reset":
            link.reset()
        case "half-open":
            link.make_half_open()
        case "normal":
            link.end_half_open()


_MILLISECONDS_MAX = 3_600_000


def _is_number(value: object, kinds: type | tuple[type, ...], least: int, most: int) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most  # type: ignore[operator]


def _is_duration(value: object) -> bool:
    return _is_number(value, (int, float), 0, _MILLISECONDS_MAX)


FRAME_FAULTS_MAX = 100
"""Maximum number of armed faults on one direction of a link."""
CONNECTION_CHANGES = ("reset", "half-open", "normal")


def _connections_change(body: Any) -> dict[str, str]:
    if (
        not isinstance(body, dict)
        or set(body) != {"connections"}
        or body["connections"] not in CONNECTION_CHANGES
    ):
        raise HttpError(400, f"the body must be an object with connections: {', '.join(CONNECTION_CHANGES)}")
    return body


_FRAME_FAULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action", "what"],
    "properties": {
        "action": {"enum": [action.value for action in FrameAction]},
        "what": {"enum": sorted((*COMMANDS, *MARKERS))},
        **{name: {"type": "integer", "minimum": 1, "maximum": FRAME_COUNT_MAX} for name in ("count", "nth")},
        "by_ms": {"type": "number", "minimum": 0, "maximum": DELAY_MS_MAX},
        "number": {"type": "integer", "minimum": 0},
    },
}
_DURATION = (_is_duration, f"must be a number, 0 to {_MILLISECONDS_MAX}")
_LINK = fields_body(
    {
        "state": (lambda value: value in ("up", "held", "cut"), "must be up, held or cut"),
        "latency_ms": _DURATION,
        "jitter_ms": _DURATION,
        "bandwidth_bytes_per_second": (
            lambda value: value is None or _is_number(value, int, 1, 2**63 - 1),
            "must be a whole number, 1 or more, or null for no limit",
        ),
        "stall_every_ms": _DURATION,
        "stall_ms": _DURATION,
        "flap_period_ms": _DURATION,
        "flap_up": (
            lambda value: _is_number(value, (int, float), 0, 1) and bool(value),
            "must be a number above 0 and up to 1",
        ),
        "frame_faults": (
            lambda value: isinstance(value, list) and len(value) <= FRAME_FAULTS_MAX,
            f"must be a list of up to {FRAME_FAULTS_MAX} faults",
        ),
    },
    "",
    {
        "state": {"enum": ["up", "held", "cut"]},
        "latency_ms": {"type": "number", "minimum": 0},
        "jitter_ms": {"type": "number", "minimum": 0},
        "bandwidth_bytes_per_second": {"type": ["integer", "null"], "minimum": 1},
        "stall_every_ms": {"type": "number", "minimum": 0},
        "stall_ms": {"type": "number", "minimum": 0},
        "flap_period_ms": {"type": "number", "minimum": 0},
        "flap_up": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "frame_faults": {"type": "array", "maxItems": FRAME_FAULTS_MAX, "items": _FRAME_FAULT},
    },
)
_CONNECTIONS = Body(
    _connections_change,
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["connections"],
        "properties": {"connections": {"enum": list(CONNECTION_CHANGES)}},
    },
)

LINKS = (
    Resource(
        "/geoemu/v1/links/{source}/{target}",
        put=changes(
            set_link,
            "Change one direction of a link that ends here. Omitted fields keep their values.",
            body=_LINK,
        ),
    ),
    Resource(
        "/geoemu/v1/links/{source}/{target}/connections",
        put=changes(
            break_connections,
            "Reset the open connections of a link that this region emulates, or make them half-open; `normal` resets "
            "half-open ones.",
            body=_CONNECTIONS,
        ),
    ),
)
