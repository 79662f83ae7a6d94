"""The field `plan` of a history line: the figures of a fail-over plan (docs/HISTORY.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

INT64_MAX: Final = 2**63 - 1
RANGES_MAX: Final = 1_000
"""Maximum number of ranges of acknowledged entries."""
_COUNT = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
_MILLISECONDS = {"type": "number", "minimum": 0}
_FLAG = {"type": "boolean"}
_RANGE = {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2}


def _position(entry: str) -> Mapping[str, Any]:
    return {"type": "string", "pattern": rf"^(?:0|[1-9]\d{{0,17}}):(?:{entry})$"}


REQUIRED: Mapping[str, Mapping[str, Any]] = {
    "begun_at_ms": _MILLISECONDS,
    "redelivered_messages": _COUNT,
    "exact": _FLAG,
    "quiet": _FLAG,
}
OPTIONAL: Mapping[str, Mapping[str, Any]] = {
    "skipped_messages": _COUNT,
    "missing_messages": _COUNT,
    "oldest_redelivered_age_ms": _MILLISECONDS,
    "information_age_ms": _MILLISECONDS,
    "resume": _position(r"0|[1-9]\d{0,17}"),
    "source_mark_delete": _position(r"-1|0|[1-9]\d{0,17}"),
    "source_acknowledged": {"type": "array", "items": _RANGE, "maxItems": RANGES_MAX},
    "target_last": _position(r"-1|0|[1-9]\d{0,17}"),
}
"""Fields of a plan and their JSON Schemas. An unknown value of an optional one is omitted."""
FIELDS: Mapping[str, Mapping[str, Any]] = {**REQUIRED, **OPTIONAL}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": FIELDS,
    "required": list(REQUIRED),
    "additionalProperties": False,
}
RULE: Final = (
    f"must be a fail-over plan: an object with {', '.join(REQUIRED)} and, if known, {', '.join(OPTIONAL)}"
)


def is_plan(value: Any) -> bool:
    """Return whether a value is a fail-over plan."""
    return (
        isinstance(value, dict)
        and value.keys() >= REQUIRED.keys()
        and value.keys() <= FIELDS.keys()
        and all(_matches(each, FIELDS[name]) for name, each in value.items())
    )


def _matches(value: Any, schema: Mapping[str, Any]) -> bool:
    match schema["type"]:
        case "boolean":
            return type(value) is bool
        case "string":
            return isinstance(value, str) and re.fullmatch(schema["pattern"], value) is not None
        case "integer":
            return type(value) is int and 0 <= value <= INT64_MAX
        case "array":
            return _is_list(value, schema) and all(_matches(each, schema["items"]) for each in value)
        case _:
            return type(value) in (int, float) and 0 <= value < float("inf")


def _is_list(value: Any, schema: Mapping[str, Any]) -> bool:
    return isinstance(value, list) and schema.get("minItems", 0) <= len(value) <= schema["maxItems"]
