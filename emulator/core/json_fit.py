"""Check whether JSON has the types that a schema describes. Values are not checked: a wrong number fits, a text in
place of a number does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    """By `type` and `properties`; other words of a schema are about values, and what has no type fits."""
    named = schema.get("type")
    if named is not None and not any(
        _is(one, value) for one in ([named] if isinstance(named, str) else named)
    ):
        return False
    fields = schema.get("properties", {})
    if not isinstance(value, dict) or not fields:
        return True
    return all(one is None or fits(fields.get(name, {}), one) for name, one in value.items()) and all(
        value.get(name) is not None for name in schema.get("required", ())
    )


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, _TYPES[name])
