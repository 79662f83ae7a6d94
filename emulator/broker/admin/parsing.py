"""Parsers of request bodies, of numbers in paths, and of message ids in JSON; the limit of properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from emulator.broker.admin.resource import Body
from emulator.core.policies.codecs import fits
from emulator.core.policies.declaration import Codec, OutOfRange, OutOfRangeVerbatim, Policy
from emulator.core.policies.stored_only import PROPERTIES
from emulator.model.values import AFTER_EVERYTHING, BEFORE_EVERYTHING, Position
from emulator.net.http_server import HttpError

LONG: Final = 2**63
ENDS: Final = {"earliest": BEFORE_EVERYTHING, "latest": AFTER_EVERYTHING}


def whole_number(text: str, what: str) -> int:
    """Parse a whole number in a path. HttpError 400 for other text, and for numbers that do not fit into 64 bits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and -LONG <= int(text) < LONG):
        raise HttpError(400, f"{what}: {text[:100]!r} is not a whole number")
    return int(text)


# Bodies. `null` and a missing body are None.


def codec_body(codec: Codec[Any]) -> Body:
    """Return the body of a value that `codec` decodes. HttpError 412 for a value out of range, 400 for any other error
    in it."""

    def parse(raw: Any) -> Any:
        try:
            return None if raw is None else codec.decode(raw)
        except ValueError as problem:
            raise HttpError(412 if isinstance(problem, OutOfRange) else 400, str(problem)) from None

    return Body(parse, codec.schema)


def policy_body(policy: Policy[Any], segment: str = "", *, or_text: bool = False) -> Body:
    """Return the body of a policy's value. HttpError 400 for JSON of another form, 412 for a value of the right form
    that is not allowed. `segment`: the name in Pulsar's error message for negative numbers. `or_text`: see `Body`."""

    def parse(raw: Any) -> Any:
        try:
            return None if raw is None else policy.codec.decode(raw)
        except OutOfRange as problem:
            raise HttpError(412, sentence(raw, problem)) from None
        except ValueError as problem:
            is_value = not isinstance(raw, list | str | bool) and fits(policy.codec.schema, raw)
            raise HttpError(412 if is_value else 400, sentence(raw, problem)) from None

    def sentence(raw: Any, problem: ValueError) -> str:
        is_negative = isinstance(raw, int | str) and str(raw).startswith("-") and str(raw)[1:].isdecimal()
        if isinstance(problem, OutOfRangeVerbatim):
            return str(problem)
        if policy.below_zero and is_negative:
            return policy.below_zero.format(segment)
        return f"{policy.name}: {problem}"

    return Body(parse, policy.codec.schema, or_text)


def _object(raw: Any) -> dict[str, Any] | None:
    if raw is not None and not isinstance(raw, dict):
        raise HttpError(400, f"{str(raw)[:100]} is not a JSON object")
    return raw


OBJECT: Final = Body(_object, {"type": ["object", "null"]})


def names_body(what: str) -> Body:
    """Return the body of a list of names."""

    def parse(raw: Any) -> list[str] | None:
        if raw is not None and (not isinstance(raw, list) or not all(isinstance(one, str) for one in raw)):
            raise HttpError(400, f"{str(raw)[:100]} is not a list of names of {what}")
        return raw

    return Body(parse, {"type": ["array", "null"], "items": {"type": "string"}})


PROPERTIES_MAX: Final = 1_000
PROPERTIES_BODY: Final = policy_body(PROPERTIES)
"""Body of the properties of a namespace, a topic or a subscription, which users and tools choose freely."""


def limit_properties(properties: Mapping[str, str], kind: str) -> Mapping[str, str]:
    """Return the properties. HttpError 412 for more than PROPERTIES_MAX."""
    if len(properties) > PROPERTIES_MAX:
        raise HttpError(412, f"a {kind} may have {PROPERTIES_MAX} properties at most")
    return properties


# Message ids, in the form of Pulsar's tools.


class RequestedMessageId(NamedTuple):
    """A message id in a request: of a message, or of an end of the log."""

    position: Position
    batch_index: int
    """Index in the batch of the entry; -1 for the whole entry."""
    is_excluded: bool
    """Whether the request means the position after the message."""
    properties: dict[str, str]
    """Properties of a subscription that is created; other requests do not use them."""


def message_id_json(position: Position, partition: int) -> dict[str, int]:
    return {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": partition}


def _message_id(raw: Any) -> RequestedMessageId | None:
    if raw is None:
        return None
    if isinstance(raw, str) and raw in ENDS:
        return RequestedMessageId(ENDS[raw], -1, False, {})
    if not isinstance(raw, dict):
        raise HttpError(400, "a message id is a JSON object with ledgerId and entryId")
    excluded = any(_flag(raw, name) for name in _EXCLUDED)
    properties = raw.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(one, str) for one in properties.values()):
        raise HttpError(400, "properties: must be a JSON object of texts")
    position = Position(_number(raw, "ledgerId"), _number(raw, "entryId"))
    return RequestedMessageId(position, _number(raw, "batchIndex"), excluded, properties)


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
    _message_id,
    {
        "type": ["object", "null", "string"],
        "properties": {
            **dict.fromkeys(("ledgerId", "entryId", "partitionIndex", "batchIndex"), _WHOLE),
            **{name: {"type": ["boolean", "null"]} for name in _EXCLUDED},
            "properties": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        },
    },
)


Rules = Mapping[str, tuple[Callable[[object], bool], str]]
"""Field of a body -> (predicate for valid values, the end of the error message for others)."""


def fields_body(rules: Rules, expected: str, schema: Mapping[str, Any]) -> Body:
    """Return the body of a JSON object whose fields are optional and named in the rules."""

    def parse(raw: Any) -> dict[str, Any]:
        if not isinstance(raw, dict):
            raise HttpError(400, f"the body must be a JSON object{expected}")
        for name, value in raw.items():
            if name not in rules:
                raise HttpError(400, f"{name!r} is none of {', '.join(rules)}")
            is_valid, rule = rules[name]
            if not is_valid(value):
                raise HttpError(400, f"{name}: {repr(value)[:100]} {rule}")
        return raw

    return Body(parse, {"type": "object", "additionalProperties": False, "properties": schema})
