"""The log output of the region's program."""

from __future__ import annotations

from typing import Any

from emulator.broker import log_output
from emulator.broker.admin.http import HttpError, Response
from emulator.broker.admin.resource import AdminRequest, Body, Resource, changes, reads
from emulator.broker.authorization import ResourceScope


async def get(call: AdminRequest) -> Response:
    return Response({"level": log_output.level()})


async def put(call: AdminRequest) -> Response:
    """Change level and format. `_parse` checks both before one is changed."""
    wanted = call.body or {}
    if "level" in wanted:
        log_output.set_level(wanted["level"])
    if "format" in wanted:
        log_output.set_format(wanted["format"])
    return Response(status=204)


def _parse(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise HttpError(400, "the body must be a JSON object with level, format or both")
    for name, value in raw.items():
        allowed = _ALLOWED.get(name)
        if allowed is None:
            raise HttpError(400, f"{name!r} is none of {', '.join(_ALLOWED)}")
        if value not in allowed:
            raise HttpError(400, f"{name}: {str(value)[:100]!r} is none of {', '.join(allowed)}")
    return raw


_ALLOWED = {"level": log_output.LEVELS, "format": log_output.FORMATS}

RESOURCES = (
    Resource(
        "/geoemu/v1/logging",
        ResourceScope.REGION,
        get=reads(get, "The log level and format."),
        put=changes(
            put,
            "Change the log level, the format, or both.",
            body=Body(
                _parse,
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        name: {"type": "string", "enum": list(words)} for name, words in _ALLOWED.items()
                    },
                },
            ),
        ),
    ),
)
