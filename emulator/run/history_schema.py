"""The format of `history/*.jsonl` as tables: operations, their fields, and the values of fields (docs/HISTORY.md).

Writers, the strict reader and the JSON Schema are derived from these tables, so they agree.

    python -m emulator.run.history_schema      # writes emulator/schemas/history.schema.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from emulator.model.frame_faults import FrameAction
from emulator.run import plan_record

FORMAT_VERSION = 1
SCHEMA_FILE = Path(__file__).parents[1] / "schemas" / "history.schema.json"
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Form:
    """The valid values of a field."""

    rule: str
    """Rule that follows the field's name in an error message: `must be …`."""
    accepts: Callable[[Any], bool]
    schema: Mapping[str, Any]
    """The rule as JSON Schema."""
    repeats: bool = False
    """The field has few different values, so each valid value is validated only once, also against existing names."""


def _text(pattern: str, rule: str) -> Form:
    match = re.compile(pattern).fullmatch
    return Form(
        f"must be {rule}",
        lambda value: isinstance(value, str) and match(value) is not None,
        {"type": "string", "pattern": f"^{pattern}$"},
        repeats=True,
    )


def _one_of(*words: str) -> Form:
    return Form(
        f"must be one of {', '.join(words)}",
        lambda value: value in words,
        {"enum": list(words)},
        repeats=True,
    )


def _integer(least: int) -> Form:
    return Form(
        f"must be an integer from {least} to 2^63-1",
        lambda value: type(value) is int and least <= value <= INT64_MAX,
        {"type": "integer", "minimum": least, "maximum": INT64_MAX},
    )


def _without_repeats(form: Form) -> Form:
    return Form(form.rule, form.accepts, form.schema)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


_NAME = _text(r"[^\x00-\x1f/]+", "a name: text without a slash")
_ANY_TEXT = Form("must be text", lambda value: isinstance(value, str), {"type": "string"})
_FLAG = Form("must be true or false", lambda value: type(value) is bool, {"type": "boolean"})
_DIGEST = _without_repeats(_text(r"[0-9a-f]{16}", "16 hexadecimal digits"))
_NAMES = Form(
    "must be a list of names",
    _is_list_of_names,
    {"type": "array", "items": {"type": "string", "minLength": 1}},
)

FIELDS: Mapping[str, Form] = {
    "at_ms": Form("must be milliseconds since 1970, a number", _is_time, {"type": "number", "minimum": 0}),
    "actor": _NAME,
    "region": _NAME,
    "other_region": _NAME,
    "topic": _text(
        r"(?:persistent://)?(?:[-=:.\w]+/[-=:.\w]+/)?[-=:.\w]+",
        "a topic: [persistent://][tenant/namespace/]name",
    ),
    "subscription": _text(r".+", "text"),
    "origin_region": _NAME,
    "producer": _text(r".+", "text"),
    "session": _text(r".+", "text"),
    "sequence_id": _integer(0),
    "last_sequence_id": _integer(-1),
    "topic_epoch": _integer(0),
    "message_id": _without_repeats(
        _text(r"(?:0|[1-9]\d{0,18}):(?:0|[1-9]\d{0,18}):(?:-1|0|[1-9]\d{0,8})", "ledger:entry:batch_index")
    ),
    "payload_digest": _DIGEST,
    "attributes_digest": _DIGEST,
    "key": _without_repeats(_text(r"(?s:.+)", "text")),
    "replicate_to": _NAMES,
    "replicated": _FLAG,
    "initial": _one_of("earliest", "latest"),
    "compacted": _FLAG,
    "how": _one_of("individual", "cumulative"),
    "transaction": _text(
        r"(?:0|[1-9]\d{0,19}),(?:0|[1-9]\d{0,19})", "a transaction: its two numbers, `most,least`"
    ),
    "action": _one_of("commit", "abort"),
    "transaction_key": _text(r"[^&]+", "a transaction key: text without &"),
    "key_epoch": _integer(0),
    "plan": Form(plan_record.RULE, plan_record.is_plan, plan_record.SCHEMA),
    "error": _ANY_TEXT,
    "detail": _ANY_TEXT,
    "file": _NAME,
    "format": Form(
        f"must be {FORMAT_VERSION}, the version of this format",
        lambda value: type(value) is int and value == FORMAT_VERSION,
        {"const": FORMAT_VERSION},
    ),
    "program": _ANY_TEXT,
    "run": _ANY_TEXT,
    "others": _NAMES,
    "lines": _integer(0),
    "digest": _without_repeats(_text(r"[0-9a-f]{64}", "64 hexadecimal digits")),
    "torn": _FLAG,
}
"""All fields except `op` and `outcome`."""


class FormatLine(NamedTuple):
    """The required and optional fields of one kind of line, in addition to those in COMMON."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


_PRODUCER = ("region", "topic", "producer")
_MESSAGE = (*_PRODUCER, "session", "sequence_id")
_SUBSCRIPTION = ("region", "topic", "subscription")
_ORIGIN = ("origin_region", "producer", "sequence_id")
_DELIVERY = (*_ORIGIN, "payload_digest", "attributes_digest", "detail")
_KEY = ("transaction_key", "detail")
_REGION_FACT = FormatLine(("region",), ("detail",))
_LINK_FACT = FormatLine(("region", "other_region", "detail"))


def _operation(
    request: FormatLine, ok: FormatLine | None = None, *, repeated: tuple[str, ...] = ()
) -> dict[str, FormatLine]:
    """Return the lines of an operation with a request and an outcome. `repeated`: further optional fields of
    outcomes."""
    needed = request.required
    outcome = FormatLine(needed, ("error", "detail", *request.optional, *repeated))
    return {"asked": request, "ok": ok or outcome, "failed": outcome, "unknown": outcome}


FRAME_VERBS = tuple(action.value for action in FrameAction)
LINK_VERBS = (
    "cut",
    "hold",
    "latency",
    "bandwidth",
    "stall",
    "flap",
    "profile",
    "reset",
    "half_open",
    *FRAME_VERBS,
)
"""Facts about a link, whose `detail` ends with a direction: `both ways`, `one way` from `region` to `other_region`, or
`one way back`. `other_region` may be `clients`."""

REGION_VERBS = (
    *("kill", "stop", "start", "restart", "pause", "resume", "lose"),
    *("power_loss", "disk", "skew"),
)
"""Facts about a region. The `detail` of `disk` is the state of the disk: `healthy`, `slow, 200 ms`, `full` or
`failing`."""

OPERATIONS: Mapping[str, Mapping[str, FormatLine]] = {
    "connect": _operation(
        FormatLine(_PRODUCER, ("detail",)),
        FormatLine((*_PRODUCER, "session", "last_sequence_id"), ("topic_epoch", "detail")),
    ),
    "publish": {
        "asked": FormatLine(
            (*_MESSAGE, "payload_digest"),
            ("attributes_digest", "key", "replicate_to", "transaction", "origin_region", "detail"),
        ),
        "ok": FormatLine(_MESSAGE, ("message_id", "transaction", "origin_region", "detail")),
        "failed": FormatLine(_MESSAGE, ("error", "transaction", "origin_region", "detail")),
        "unknown": FormatLine(_MESSAGE, ("error", "transaction", "origin_region", "detail")),
    },
    "subscribe": _operation(FormatLine((*_SUBSCRIPTION, "replicated", "initial"), ("compacted", "detail"))),
    "receive": {"ok": FormatLine((*_SUBSCRIPTION, "message_id"), ("transaction", *_DELIVERY))},
    "acknowledge": _operation(FormatLine((*_SUBSCRIPTION, "message_id", "how"), ("transaction", "detail"))),
    "begin_transaction": _operation(
        FormatLine(("region",), _KEY), FormatLine(("region", "transaction"), ("key_epoch", *_KEY))
    ),
    "end_transaction": _operation(FormatLine(("region", "transaction", "action"), ("detail",))),
    "seek": _operation(FormatLine(_SUBSCRIPTION, ("message_id", "detail"))),
    "unsubscribe": _operation(FormatLine(_SUBSCRIPTION, ("detail",))),
    "read": {"ok": FormatLine(("region", "topic", "message_id"), _DELIVERY)},
    **{verb: {"fact": _REGION_FACT} for verb in REGION_VERBS},
    **{verb: {"fact": _LINK_FACT} for verb in LINK_VERBS},
    "heal": {"fact": FormatLine((), ("region", "other_region", "detail"))},
    "move": {"fact": FormatLine(("region",), ("other_region", "detail"))},
    "step": {"fact": FormatLine(("detail",), ("error",))},
    "phase": {"fact": FormatLine(("detail",))},
    "redeliver": {"asked": FormatLine(_SUBSCRIPTION, ("message_id", "detail"))},
    "omission": {"fact": FormatLine(("detail",))},
    "note": {"fact": FormatLine(("detail",), ("region", "other_region", "topic", "subscription", "error"))},
    "failover_plan": {"fact": FormatLine((*_SUBSCRIPTION, "other_region", "plan"), ("detail",))},
    "hire": {"fact": FormatLine(("file",), ("detail",))},
    "head": {"fact": FormatLine(("format", "run"), ("program", "others"))},
    "end": {"fact": FormatLine(("lines", "digest"))},
    "seal": {"fact": FormatLine(("lines", "digest", "torn", "detail"))},
}
"""The fields of each line, by operation and outcome."""

COMMON = ("at_ms", "actor", "op", "outcome")
FRAME = ("head", "end", "seal")
"""Operations that frame a file and are no events of the run."""


class Wrong(NamedTuple):
    """An error in a line: the field (None: the line as a whole) and the violated rule."""

    field: str | None
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" if self.field else self.rule


class LineCheck:
    """Validates lines one after the other. It caches validated values and combinations of fields. Not thread-safe.

    `names` restricts fields with `repeats` to existing names: field -> (names, rule).
    """

    def __init__(self, names: Mapping[str, tuple[frozenset[str], str]] | None = None) -> None:
        self._names = names or {}
        self._validations: dict[tuple[str, ...], tuple[tuple[str, Form], ...] | Wrong] = {}
        """Fields to validate, or the error of all such lines, by operation, outcome and keys of the line."""
        self._valid_values: dict[str, set[str]] = {name: set() for name in FIELDS}

    def problem(self, line: Any) -> Wrong | None:
        """Return the first error of a line that was read from JSON; None if it is valid."""
        try:
            key = (line["op"], line["outcome"], *line)
            validation = self._validations.get(key)
        except (TypeError, KeyError):
            return _malformed(line)
        if validation is None:
            validation = self._validations[key] = _fields_to_validate(line)
        if isinstance(validation, Wrong):
            return validation
        for name, form in validation:
            value = line[name]
            if form.repeats:
                if isinstance(value, str) and value in self._valid_values[name]:
                    continue
                wrong = self.value_problem(name, value)
                if wrong is not None:
                    return wrong
                self._valid_values[name].add(value)
            elif not form.accepts(value):
                return Wrong(name, f"{form.rule}, not {_shown(value)}")
        return None

    def value_problem(self, name: str, value: Any) -> Wrong | None:
        """Return the error of a field's value; None if it is valid."""
        form = FIELDS[name]
        if not form.accepts(value):
            return Wrong(name, f"{form.rule}, not {_shown(value)}")
        names, rule = self._names.get(name, (None, ""))
        return None if names is None or value in names else Wrong(name, f"{rule}, not {_shown(value)}")


def _fields_to_validate(line: Mapping[str, Any]) -> tuple[tuple[str, Form], ...] | Wrong:
    op, outcome = line["op"], line["outcome"]
    outcomes = OPERATIONS.get(op)
    if outcomes is None:
        return Wrong("op", f"must be one of {', '.join(OPERATIONS)}, not {_shown(op)}")
    fields = outcomes.get(outcome)
    if fields is None:
        return Wrong("outcome", f"of {op} must be one of {', '.join(outcomes)}, not {_shown(outcome)}")
    for name in ("at_ms", "actor", *fields.required):
        if name not in line:
            return Wrong(name, f"is required of {op} {outcome}")
    known = {*COMMON, *fields.required, *fields.optional}
    for name in line:
        if name not in known:
            return Wrong(name, f"is not a field of {op} {outcome}")
    return tuple((name, FIELDS[name]) for name in line if name in FIELDS)


def _malformed(line: Any) -> Wrong:
    if not isinstance(line, dict):
        return Wrong(None, "must be a JSON object")
    for name in ("op", "outcome"):
        if name not in line:
            return Wrong(name, "is required")
        if not isinstance(line[name], str):
            return Wrong(name, f"must be text, not {_shown(line[name])}")
    return Wrong(None, "must be a history event")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}…"


def schema_text() -> str:
    """Return the JSON Schema of a line, as text."""
    kinds = [
        _kind_schema(op, outcome, fields)
        for op, outcomes in OPERATIONS.items()
        for outcome, fields in outcomes.items()
    ]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of a geoemu history, format {FORMAT_VERSION}",
        "oneOf": kinds,
        "$defs": {name: form.schema for name, form in FIELDS.items()},
    }
    return json.dumps(schema, indent=1) + "\n"


def _kind_schema(op: str, outcome: str, fields: FormatLine) -> dict[str, Any]:
    named = ("at_ms", "actor", *fields.required, *fields.optional)
    properties: dict[str, Any] = {"op": {"const": op}, "outcome": {"const": outcome}}
    properties |= {name: {"$ref": f"#/$defs/{name}"} for name in named}
    return {
        "title": f"{op} {outcome}",
        "type": "object",
        "properties": properties,
        "required": [*COMMON, *fields.required],
        "additionalProperties": False,
    }


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text())
