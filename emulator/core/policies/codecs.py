"""JSON encodings of values that several policies share. The encoding of a single policy is in its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from emulator.core.policies.declaration import Codec, OutOfRange
from emulator.model.units import ms_or_never
from emulator.model.values import is_valid_name

MILLISECONDS_MAX: Final = 3_600_000
"""Maximum duration, one hour: a larger number was probably meant in another unit."""
NUMBER_MAX: Final = 2**53
"""Maximum number: some JSON tools round larger ones."""


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _region_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} is not a list of region names")
    invalid = [name for name in value if not is_valid_name(name)]
    if invalid:
        raise ValueError(f"{invalid[0]!r} is not a name of a region")
    return tuple(dict.fromkeys(value))  # duplicates are dropped, as in Pulsar


def _region_or_none(value: Any) -> str:
    if not isinstance(value, str) or (value and not is_valid_name(value)):
        raise ValueError(f"{value!r} is not a name of a region")
    return value


def counts(minimum: int = 0, maximum: int = 2**31 - 1, of: str = "") -> Codec[int]:
    """Return a codec of whole numbers from `minimum` to `maximum`. `of`: unit, for error messages."""

    def decode(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            unit = of and f" of {of}"
            raise ValueError(f"{value!r} is not a whole number{unit}, {minimum} to {maximum}")
        return value

    return Codec(decode, int, {"type": "integer", "minimum": minimum, "maximum": maximum})


def one_of(*words: str) -> Codec[str]:
    """Return a codec of strings that accepts only these words."""

    def decode(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} is none of {', '.join(words)}")
        return str(value)

    return Codec(decode, str, {"type": "string", "enum": list(words)})


def _duration_or_empty(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(
            f"{value!r} is not a text: it must be a duration with its unit, like 500ms, 10s or 2m"
        )
    try:
        ms_or_never(value)
    except ValueError as problem:
        raise ValueError(f"{value[:100]!r} {problem}") from None
    return value


DURATION_OR_EMPTY: Final = Codec(
    _duration_or_empty, str, {"type": "string", "pattern": r"^(\d+(\.\d+)?\s*(ms|s|m))?$"}
)
"""Durations like `10m`, as settings have them; empty: never."""


def objects_of(fields: Mapping[str, Codec[Any]]) -> Codec[Mapping[str, Any]]:
    """Return a codec of JSON objects with these optional fields. Null counts as absent; other fields are ignored."""

    def decode(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not a JSON object")
        present = {name: value[name] for name in fields if value.get(name) is not None}
        return {name: _field(name, fields[name], one) for name, one in present.items()}

    return Codec(
        decode,
        dict,
        {"type": "object", "properties": {name: dict(one.schema) for name, one in fields.items()}},
    )


def _field(name: str, codec: Codec[Any], value: Any) -> Any:
    try:
        return codec.encode(codec.decode(value))
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None


def whole_number(value: Any, what: str, *, minimum: int = 0) -> int:
    """Return a whole number from `minimum` to NUMBER_MAX. Accepts decimal text. Raises OutOfRange for another number,
    ValueError for anything else."""
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        value = int(value)  # Pulsar's command-line tool quotes some numbers
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what}: {value!r} is not a whole number")
    if not minimum <= value <= NUMBER_MAX:
        raise OutOfRange(f"{what}: {value} is not between {minimum} and {NUMBER_MAX}")
    return value


def fields_of(value: Any, required: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a JSON object that has the required fields, unchanged. Raises ValueError for anything else. Other fields
    are permitted, because newer tools send more."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    missing = [name for name in required if value.get(name) is None]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return value


def whole_numbers(what: str) -> Codec[int]:
    """Return a codec of whole numbers from 0 on, which `whole_number` decodes. `what`: name for error messages."""
    return Codec(lambda value: whole_number(value, what), int, {"type": "integer", "minimum": 0})


TEXTS_MAX: Final = 1_000
TEXT_LENGTH_MAX: Final = 65_536


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LENGTH_MAX:
        raise ValueError(f"{str(value)[:100]!r} is not a text of at most {TEXT_LENGTH_MAX} characters")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > TEXTS_MAX:
        raise ValueError(f"{str(value)[:100]} is not a list of at most {TEXTS_MAX} texts")
    return tuple(dict.fromkeys(map(_text, value)))


def _text_by_name(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > TEXTS_MAX:
        raise ValueError(f"{str(value)[:100]} is not a JSON object of at most {TEXTS_MAX} texts")
    return {_text(name): _text(one) for name, one in value.items()}


TEXT: Codec[str] = Codec(_text, str, {"type": "string"})
TEXTS: Codec[tuple[str, ...]] = Codec(_texts, list, {"type": "array", "items": {"type": "string"}})
TEXT_BY_NAME: Codec[Mapping[str, str]] = Codec(
    _text_by_name, dict, {"type": "object", "additionalProperties": {"type": "string"}}
)
BOOLEAN = Codec(_boolean, bool, {"type": "boolean"})
REGION_NAMES: Codec[tuple[str, ...]] = Codec(
    _region_names, list, {"type": "array", "items": {"type": "string"}}
)

MILLISECONDS = counts(0, MILLISECONDS_MAX, "milliseconds")
REGION_OR_NONE: Codec[str] = Codec(_region_or_none, str, {"type": "string"})


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
    """Return whether a JSON value has the types of a JSON Schema, by its `type`, `properties` and `required`.

    Only types are checked, not ranges: any number matches `integer`, a text does not. A schema without `type` matches
    any value."""
    types = schema.get("type")
    if types is not None and not any(
        _is(one, value) for one in ([types] if isinstance(types, str) else types)
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
