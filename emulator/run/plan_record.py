"""The field `plan` of a history line: a fail-over plan, as `geoemu failover-plan --json` prints it (docs/HISTORY.md).

Only the fields that the verdict compares with the run are validated; a plan may have further ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

INT64_MAX = 2**63 - 1
RANGES_MAX = 100_000
"""Maximum number of ranges of acknowledged entries in a plan."""
_POSITION = re.compile(r"(?:0|[1-9]\d{0,18}):(?:-1|0|[1-9]\d{0,18})")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_position(value: Any) -> bool:
    return (
        isinstance(value, str)
        and _POSITION.fullmatch(value) is not None
        and max(map(int, value.split(":"))) <= INT64_MAX
    )


def _is_list_of_ranges(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= RANGES_MAX and all(map(_is_range, value))


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_count, value)) and value[0] <= value[1]


_Validator = Callable[[Any], bool]
_COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
_FLAG: Mapping[str, Any] = {"type": "boolean"}
_PLACE: Mapping[str, Any] = {"type": "string", "pattern": f"^{_POSITION.pattern}$"}
_RANGES: Mapping[str, Any] = {
    "type": "array",
    "maxItems": RANGES_MAX,
    "items": {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
}

REQUIRED: Mapping[str, tuple[_Validator, Mapping[str, Any]]] = {
    "redelivered_messages": (_is_count, _COUNT),
    "skipped_messages": (_is_count, _COUNT),
    "exact": (_is_flag, _FLAG),
    "quiet": (_is_flag, _FLAG),
}
OPTIONAL: Mapping[str, tuple[_Validator, Mapping[str, Any]]] = {
    "source_mark_delete": (_is_position, _PLACE),
    "source_acknowledged": (_is_list_of_ranges, _RANGES),
    "target_last": (_is_position, _PLACE),
}
"""Fields that may be missing or null: a region that did not respond states nothing."""

RULE = (
    f"must be a fail-over plan: an object with {', '.join(REQUIRED)}"
    f" (numbers from 0, true or false), and valid {', '.join(OPTIONAL)} if it has them"
)
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        **{name: schema for name, (_, schema) in REQUIRED.items()},
        **{name: {"anyOf": [schema, {"type": "null"}]} for name, (_, schema) in OPTIONAL.items()},
    },
    "required": list(REQUIRED),
}


def is_plan(value: Any) -> bool:
    """Return whether a value is a plan that the verdict can compare with the run."""
    return (
        isinstance(value, dict)
        and all(name in value and accepts(value[name]) for name, (accepts, _) in REQUIRED.items())
        and all(value.get(name) is None or accepts(value[name]) for name, (accepts, _) in OPTIONAL.items())
    )
