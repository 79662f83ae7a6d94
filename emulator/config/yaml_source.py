"""YAML files that people write: read with the line of every key, checked against a pydantic model.

Everything that is wrong is collected, nothing stops at the first. Parts that are wrong are left out and the rest
is checked on, so that one reading shows every problem.

Scalars are read as YAML 1.2 reads them, which is what editors do: `no`, `on`, `010` and `2026-01-01` are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from emulator.errors import Problem
from emulator.model.suggestions import nearest

KeyPath = tuple[str | int, ...]
"""Keys and list indexes from the top of a file: `("links", "exceptions", 0, "latency_ms")`."""

PARTS_MAX = 20_000
"""A file with more keys and values (aliases counted as often as they are used) is refused."""
SHOWN_CHARACTERS_MAX = 60
"""Longer values are cut in messages."""
LISTED_MAX = 12
"""Where more keys than that are allowed, messages do not list them."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(slots=True)
class YamlFile:
    """One file: its values, where each of them stands, and what is wrong with it so far."""

    name: str
    """As it is shown in messages."""
    values: Any = None
    """Mappings have text keys. None when the file could not be read at all."""
    lines: dict[KeyPath, int] = field(default_factory=dict)
    """1-based; of the key for a mapping's values, of the item for a list's."""
    problems: list[Problem] = field(default_factory=list)

    def report(self, path: KeyPath, rule: str, known: Iterable[str] = (), *, about_key: bool = False) -> None:
        """Note that what stands at `path` breaks `rule`.

        `known`: names that may stand there, of which the one that was probably meant becomes the suggestion;
        for the key when the problem is `about_key`, otherwise for the value.
        """
        value = _at(self.values, path)
        written = str(path[-1]) if about_key else value
        is_shown = value is not _ABSENT and not (about_key and isinstance(value, dict | list | None))
        self.problems.append(
            Problem(
                file=self.name,
                line=self.line(path),
                key_path=path_text(path),
                value=shown(value) if is_shown else "",
                rule=rule,
                suggestion=nearest(written, list(known)) if isinstance(written, str) else None,
            )
        )

    def line(self, path: KeyPath) -> int | None:
        """The line of `path`, or of the innermost part around it that is written down."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def has_problem_at(self, path: KeyPath) -> bool:
        """Whether something at `path` or inside of it was noted."""
        text = path_text(path)
        return any(
            problem.key_path == text or problem.key_path.startswith((f"{text}.", f"{text}["))
            for problem in self.problems
        )

    def check(self, model: type[Model], context: Any = None) -> Model | None:
        """Read the values as `model` and note every field that is wrong. `context` is for its validators.

        Returns what is left without the wrong parts, so that relations can still be checked; None when not
        enough is left for that. Models should check fields one by one: what a validator of a whole model finds
        after its fields were right is not reported.
        """
        if not self.lines:
            return None  # no values to speak of; why is noted
        remaining = self.values
        reported = False
        while True:
            try:
                return model.model_validate(remaining, context=context)
            except ValidationError as failure:
                errors = failure.errors(include_url=False)
            found = [_Finding.of(error, model, remaining) for error in errors]
            for finding in () if reported else found:
                self.report(finding.path, finding.rule, finding.known, about_key=finding.about_key)
            reported = True
            wrong = {f.path if _at(remaining, f.path) is not _ABSENT else f.path[:-1] for f in found}
            smaller = _without(remaining, wrong)
            if () in wrong or smaller == remaining:
                return None
            remaining = smaller


def read_yaml(path: Path, name: str | None = None) -> YamlFile:
    """Read a file. Whatever is wrong with its text is in `problems` of what is returned."""
    file = YamlFile(name or str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        file.problems.append(_unreadable(path, file.name, error))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        file.problems.append(Problem(file.name, line, "", "", f"must be UTF-8 text: {error.reason}"))
    else:
        _read_text(file, text)
    return file


def parse_yaml(text: str, name: str) -> YamlFile:
    """What `read_yaml` does once it has the text."""
    file = YamlFile(name)
    _read_text(file, text)
    return file


def _unreadable(path: Path, name: str, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        meant = nearest(path.name, [other.name for other in path.parent.glob("*.yaml")])
        return Problem(name, None, "", "", "cannot be read: no such file", meant)
    why = "it is a directory" if isinstance(error, IsADirectoryError) else str(error.strerror or error)
    return Problem(name, None, "", "", f"cannot be read: {why}")


def path_text(path: KeyPath) -> str:
    """`links.exceptions[0].latency_ms`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return _printable(text.removeprefix("."))


def one_of(choices: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def shown(value: Any) -> str:
    """A value as a message shows it: short, on one line, text in quotes."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return _printable(text)


# ---- text to values and lines ------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """PyYAML with the scalars of YAML 1.2's core schema instead of those of 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own way of being configured


_INTEGER = re.compile(r"^[-+]?[0-9]+$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
for _tag, _pattern, _first in (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", _INTEGER, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", re.compile(r"^<<$"), ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)

_READ_SCALAR: dict[str, Callable[[str], Any]] = {
    "str": str,
    "merge": str,
    "null": lambda text: None,
    "bool": lambda text: text[:1] in "tT",
    "int": int,
    "float": lambda text: float(re.sub(r"\.(?=[iInN])", "", text)),
}


class _Refused(Exception):
    """The file cannot be turned into values at all."""

    def __init__(self, line: int | None, rule: str) -> None:
        self.line = line
        self.rule = rule
        super().__init__(rule)


def _read_text(file: YamlFile, text: str) -> None:
    try:
        file.values = _Reading(file).value(_compose(text), ())
    except _Refused as refused:
        file.values, file.lines = None, {}
        file.problems.append(Problem(file.name, refused.line, "", "", refused.rule))
    except RecursionError:
        file.values, file.lines = None, {}
        file.problems.append(Problem(file.name, None, "", "", "must not be nested this deeply"))


def _compose(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise _Refused(mark.line + 1 if mark else None, f"must be valid YAML: {_printable(what)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Refused(line, f"must be valid YAML: {error.reason}") from None
    except (ValueError, OverflowError):
        # PyYAML lets these out, without a place.
        raise _Refused(None, "must be valid YAML: an escape such as \\UFFFFFFFF is not a character") from None


class _Reading:
    """One walk over the nodes of a file."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._parts = 0
        self._around: list[yaml.Node] = []

    def value(self, node: yaml.Node | None, path: KeyPath) -> Any:
        if node is None:
            self._file.lines[path] = 1
            return None
        self._count(node)
        self._file.lines.setdefault(path, _line(node))
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if isinstance(node, yaml.ScalarNode) and kind in _READ_SCALAR:
            return _scalar(node, kind)
        if (type(node), kind) not in ((yaml.MappingNode, "map"), (yaml.SequenceNode, "seq")):
            raise _Refused(_line(node), f"must not use the tag {_printable(node.tag)}")
        if any(node is outer for outer in self._around):
            raise _Refused(_line(node), "must not contain itself")
        self._around.append(node)
        value = self._mapping(node, path) if kind == "map" else self._sequence(node, path)
        self._around.pop()
        return value

    def _sequence(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        for index, item in enumerate(node.value):
            self._file.lines[*path, index] = _line(item)
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        values: dict[str, Any] = {}
        merges_first = sorted(node.value, key=lambda pair: not _is_merge(pair[0]))
        for key_node, value_node in merges_first:
            if _is_merge(key_node):
                merged |= self._merged(value_node, path)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _Refused(_line(key_node), "must have plain text as keys")
            key, key_path = key_node.value, (*path, key_node.value)
            if key in values:
                self._repeated(key_node, key_path)
                continue
            self._file.lines[key_path] = _line(key_node)
            values[key] = self.value(value_node, key_path)
        return merged | values

    def _repeated(self, key_node: yaml.Node, path: KeyPath) -> None:
        rule = f"must occur once; it is already on line {self._file.lines[path]}"
        self._file.problems.append(Problem(self._file.name, _line(key_node), path_text(path), "", rule))

    def _merged(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        """What `<<: *anchor` (or a list of them) brings in; the first of a list wins."""
        brought = [self.value(part, path) for part in _merge_sources(node)]
        if not all(isinstance(values, dict) for values in brought):
            raise _Refused(_line(node), "must merge mappings only (<<)")
        return {key: value for values in reversed(brought) for key, value in values.items()}

    def _count(self, node: yaml.Node) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise _Refused(_line(node), f"must have at most {PARTS_MAX} keys and values, aliases included")


def _is_merge(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:merge")


def _merge_sources(node: yaml.Node) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else [node]


def _scalar(node: yaml.ScalarNode, kind: str) -> Any:
    try:
        return _READ_SCALAR[kind](node.value)
    except ValueError:
        raise _Refused(_line(node), f"must be a number that can be read ({shown(node.value)})") from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _printable(text: str) -> str:
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


# ---- values to models --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Finding:
    """One of pydantic's errors in our words.

    A validator of ours that raises PydanticCustomError says the rule in its own; names that may stand there
    instead go into its context as `known`.
    """

    path: KeyPath
    rule: str
    known: tuple[str, ...] = ()
    about_key: bool = False

    @classmethod
    def of(cls, error: ErrorDetails, model: type[BaseModel], values: Any) -> _Finding:
        path = _written_path(error["loc"], values)
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


def _written_path(location: KeyPath, values: Any) -> KeyPath:
    """Where a person wrote what pydantic found: without "[key]", without the names of a union's members
    (`<member>`), and without the fields of a mapping that was written in a short form."""
    path: KeyPath = ()
    for part in location:
        around = _at(values, path)
        is_written = _at(values, (*path, part)) is not _ABSENT
        if is_written or (isinstance(around, dict) and isinstance(part, str) and part[:1] not in ("<", "[")):
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
    return bool(_FLOAT.match(text))


def _keys_at(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """The keys that a mapping at `path` of what `model` describes may have."""
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
    """`X` of `X | None`, `V` of `list[V]`, `K` and `V` of `dict[K, V]`."""
    return [argument for argument in get_args(annotation) if argument not in (type(None), Ellipsis)]


class _Absent:
    """Nothing stands there, not even null."""


_ABSENT = _Absent()


def _at(values: Any, path: KeyPath) -> Any:
    for part in path:
        is_there = part in values if isinstance(values, dict) else _is_index(part, values)
        if not is_there:
            return _ABSENT
        values = values[part]
    return values


def _is_index(part: str | int, values: Any) -> bool:
    return isinstance(values, list) and isinstance(part, int) and part < len(values)


def _without(values: Any, paths: set[KeyPath], at: KeyPath = ()) -> Any:
    """A copy of `values` without what stands at `paths`."""
    if isinstance(values, dict):
        return {k: _without(v, paths, (*at, k)) for k, v in values.items() if (*at, k) not in paths}
    if isinstance(values, list):
        return [_without(v, paths, (*at, i)) for i, v in enumerate(values) if (*at, i) not in paths]
    return values
