"""Message ids in JSON, as Pulsar's tools write them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from emulator.broker.admin.http import HttpError
from emulator.broker.admin.resource import Body
from emulator.model.values import AFTER_EVERYTHING, BEFORE_EVERYTHING, Position

LONG: Final = 2**63


class NamedId(NamedTuple):
    """The position in a request: a message, or an end of the log."""

    position: Position
    batch_index: int
    """-1: the whole entry."""
    is_excluded: bool
    """The position behind it."""
    properties: dict[str, str]
    """Properties of the subscription to create."""


def as_json(position: Position, partition: int) -> dict[str, int]:
    return {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": partition}


def _parse(raw: Any) -> NamedId | None:
    if raw is None:
        return None
    if raw in ("earliest", "latest"):
        place = BEFORE_EVERYTHING if raw == "earliest" else AFTER_EVERYTHING
        return NamedId(place, -1, False, {})
    if not isinstance(raw, dict):
        raise HttpError(400, "a message id is a JSON object with ledgerId and entryId")
    excluded = any(_flag(raw, name) for name in _EXCLUDED)
    properties = raw.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(one, str) for one in properties.values()):
        raise HttpError(400, "properties: must be a JSON object of texts")
    position = Position(_number(raw, "ledgerId"), _number(raw, "entryId"))
    return NamedId(position, _number(raw, "batchIndex"), excluded, properties)


def _number(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if value is None:
        return -1
    if not isinstance(value, int) or isinstance(value, bool) or not -LONG <= value < LONG:
        raise HttpError(400, f"{name}: {str(value)[:100]!r} is not a whole number")
    return value


def _flag(raw: dict[str, Any], name: str) -> bool:
    value = raw.get(name) or False
    if not isinstance(value, bool):
        raise HttpError(400, f"{name}: {str(value)[:100]!r} must be true or false")
    return value


_EXCLUDED: Final = ("excluded", "isExcluded")
"""The Java client sends the first name; the Go client and documentation use the second."""
_WHOLE: Final = {"type": ["integer", "null"], "minimum": -LONG, "maximum": LONG - 1}
MESSAGE_ID: Final = Body(
    _parse,
    {
        "type": ["object", "null", "string"],
        "properties": {
            "ledgerId": _WHOLE,
            "entryId": _WHOLE,
            "partitionIndex": _WHOLE,
            "batchIndex": _WHOLE,
            **{name: {"type": ["boolean", "null"]} for name in _EXCLUDED},
            "properties": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        },
    },
)


def whole_number(text: str, what: str) -> int:
    """HttpError 400 for a text that is no whole number, or does not fit into 64 bits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and -(2**63) <= int(text) < 2**63):
        raise HttpError(400, f"{what}: {text[:100]!r} is not a whole number")
    return int(text)
