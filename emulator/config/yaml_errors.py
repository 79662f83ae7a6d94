"""Convert validation errors of pydantic to problems of a YAML file: the path as written there, the rule, and the valid
names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails, PydanticCustomError

KeyPath = tuple[str | int, ...]
"""Keys and list indexes from the top of a file: `("links", "exceptions", 0, "latency_ms")`."""


SHOWN_CHARACTERS_MAX = 60
"""Maximum length of a value in a message; longer ones are truncated."""


LISTED_MAX = 16
"""Maximum number of valid keys that a message lists; more are not listed."""


def path_text(path: KeyPath) -> str:
    """Return a path as text, such as `links.exceptions[0].latency_ms`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return printable(text.removeprefix("."))


def one_of(choices: Iterable[str]) -> str:
    """Return at least one choice as text: `a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def shown(value: Any) -> str:
    """Return a value for a message: truncated, on one line, text in quotes."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return printable(text)


def rule(sentence: str, **context: Any) -> PydanticCustomError:
    """Return the error that a validator raises for a value that violates a rule. `known` in `context`: valid names."""
    return PydanticCustomError("rule", "{rule}", {"rule": sentence, **context})


FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


def printable(text: str) -> str:
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error of pydantic as path and rule. An error of `rule` keeps its own rule and `known`."""

    path: KeyPath
    rule: str
    known: tuple[str, ...] = ()
    about_key: bool = False

    @classmethod
    def of(cls, error: ErrorDetails, model: type[BaseModel], values: Any) -> FieldError:
        path = _path_in_file(error["loc"], values)
        context = error.get("ctx", {})
        match error["type"]:
            case "extra_forbidden":
                keys = _keys_at(model, error["loc"][:-1])
                there_are = f"; there are {', '.join(keys)}" if len(keys) <= LISTED_MAX else ""
                return cls(path, f"is not a key here{there_are}", keys, about_key=True)
            case "literal_error":
                choices = tuple(re.findall(r"'([^']*)'", context["expected"]))
                return cls(path, f"must be {one_of(choices)}", choices)
            case "int_type" | "float_type" if isinstance(error["input"], str) and _is_number(error["input"]):
                return cls(path, f"{_RULES[error['type']]}, written without quotes")
            case kind if kind in _RULES:
                return cls(
                    path, _RULES[kind].format_map({name: _number(bound) for name, bound in context.items()})
                )
            case _:
                known = tuple(context.get("known", ()))
                return cls(path, error["msg"], known, about_key="[key]" in error["loc"])


def _path_in_file(location: KeyPath, values: Any) -> KeyPath:
    """Return pydantic's location as a path in the file: without "[key]", without the names of a union's members
    (`<member>`), and without the fields of a mapping that is written in a short form."""
    path: KeyPath = ()
    for part in location:
        parent = value_at(values, path)
        is_written = value_at(values, (*path, part)) is not ABSENT
        if is_written or (isinstance(parent, dict) and isinstance(part, str) and part[:1] not in ("<", "[")):
            path = (*path, part)
    return path


_RULES = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length}",
    "string_too_short": "must not be empty",
}


def _number(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _is_number(text: str) -> bool:
    return bool(FLOAT.match(text))


def _keys_at(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """Return the valid keys of a mapping at `path` of `model`."""
    part: Any = model
    for key in path:
        if str(key).startswith("<"):
            part = next(member for member in _models_in(part) if str(key).strip("<>") in _fields(member))
            continue
        part = _fields(part)[str(key)] if _is_model(part) else _arguments(part)[-1]
        while not _is_model(part) and type(None) in get_args(part):
            part = _arguments(part)[0]
    return tuple(_fields(part)) if _is_model(part) else ()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if _is_model(annotation):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {info.alias or name: info.annotation for name, info in model.model_fields.items()}


def _arguments(annotation: Any) -> list[Any]:
    """Return the arguments of a generic type except None: `X` of `X | None`, `V` of `list[V]`, `K` and `V` of
    `dict[K, V]`."""
    return [argument for argument in get_args(annotation) if argument not in (type(None), Ellipsis)]


class _Absent:
    """The type of ABSENT: no value, not even null."""


ABSENT = _Absent()


def value_at(values: Any, path: KeyPath) -> Any:
    """Return the value at a path, or ABSENT."""
    for part in path:
        is_there = part in values if isinstance(values, dict) else _is_index(part, values)
        if not is_there:
            return ABSENT
        values = values[part]
    return values


def _is_index(part: str | int, values: Any) -> bool:
    return isinstance(values, list) and isinstance(part, int) and part < len(values)


def without(values: Any, paths: set[KeyPath], at: KeyPath = ()) -> Any:
    """Return a copy of `values` without the parts at `paths`."""
    if isinstance(values, dict):
        return {k: without(v, paths, (*at, k)) for k, v in values.items() if (*at, k) not in paths}
    if isinstance(values, list):
        return [without(v, paths, (*at, i)) for i, v in enumerate(values) if (*at, i) not in paths]
    return values
