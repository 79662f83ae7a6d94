"""Read the YAML files of users with the line of every key, and check them against a pydantic model.

All problems of a file are collected: invalid parts are removed, and the rest is checked. Only a file that is no valid
YAML has one problem.

Scalars follow the core schema of YAML 1.2, as in editors, without octal and hexadecimal integers: `no`, `on` and
`2026-01-01` are text, and `010` is 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from emulator.config.yaml_errors import (
    ABSENT,
    FLOAT,
    FieldError,
    KeyPath,
    path_text,
    printable,
    shown,
    value_at,
    without,
)
from emulator.errors import Problem
from emulator.model.suggestions import nearest

PARTS_MAX = 20_000
"""Maximum number of keys and values in a file; an alias counts each time that it is used."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(slots=True)
class YamlFile:
    """One file: its values, the line of each value, and the problems found so far."""

    name: str
    """Name in messages."""
    values: Any = None
    """Values, in which all mappings have text keys. None: the file could not be read, or is empty."""
    lines: dict[KeyPath, int] = field(default_factory=dict)
    """Line of each value, from 1: of its key in a mapping."""
    problems: list[Problem] = field(default_factory=list)

    def report(self, path: KeyPath, rule: str, known: Iterable[str] = (), *, about_key: bool = False) -> None:
        """Report that the value at `path`, or with `about_key` its key, violates `rule`.

        `known`: valid names, of which the nearest becomes the suggestion.
        """
        value = value_at(self.values, path)
        written = str(path[-1]) if about_key else value
        is_shown = value is not ABSENT and not (about_key and isinstance(value, dict | list | None))
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
        """Return the line of `path`, or of the innermost part around it that exists in the file."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def has_problem_at(self, path: KeyPath) -> bool:
        """Return whether a problem at `path` or inside of it is reported."""
        text = path_text(path)
        return any(
            problem.key_path == text or problem.key_path.startswith((f"{text}.", f"{text}["))
            for problem in self.problems
        )

    def check(self, model: type[Model], context: Any = None) -> Model | None:
        """Read the values as `model`, and report every invalid field. `context` is for its validators.

        Returns the model without the invalid parts; None if not enough is valid. Errors that occur only after invalid
        parts are removed, as in validators of whole models, are not reported.
        """
        if not self.lines:
            return None  # the file could not be read, which is reported
        remaining = self.values
        reported = False
        while True:
            try:
                return model.model_validate(remaining, context=context)
            except ValidationError as failure:
                errors = failure.errors(include_url=False)
            found = [FieldError.of(error, model, remaining) for error in errors]
            for finding in () if reported else found:
                self.report(finding.path, finding.rule, finding.known, about_key=finding.about_key)
            reported = True
            wrong = {f.path if value_at(remaining, f.path) is not ABSENT else f.path[:-1] for f in found}
            smaller = without(remaining, wrong)
            if () in wrong or smaller == remaining:
                return None
            remaining = smaller


def read_yaml(path: Path, name: str | None = None) -> YamlFile:
    """Read a file. Problems of its text are in `problems` of the returned file."""
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
    """Read a text like the content of a file."""
    file = YamlFile(name)
    _read_text(file, text)
    return file


def _unreadable(path: Path, name: str, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        suggestion = nearest(path.name, [other.name for other in path.parent.glob("*.yaml")])
        return Problem(name, None, "", "", "cannot be read: no such file", suggestion)
    why = "it is a directory" if isinstance(error, IsADirectoryError) else str(error.strerror or error)
    return Problem(name, None, "", "", f"cannot be read: {why}")


# ---- text to values and lines ------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """PyYAML with the scalars of YAML 1.2's core schema instead of those of 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own way of being configured


_INTEGER = re.compile(r"^[-+]?[0-9]+$")
for _tag, _pattern, _first in (
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", _INTEGER, list("-+0123456789")),
    ("float", FLOAT, list("-+.0123456789")),
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


class _InvalidFile(Exception):
    """The file cannot be converted to values."""

    def __init__(self, line: int | None, rule: str) -> None:
        self.line = line
        self.rule = rule
        super().__init__(rule)


def _read_text(file: YamlFile, text: str) -> None:
    try:
        file.values = _NodeConverter(file).value(_compose(text), ())
    except _InvalidFile as invalid:
        file.values, file.lines = None, {}
        file.problems.append(Problem(file.name, invalid.line, "", "", invalid.rule))
    except RecursionError:
        file.values, file.lines = None, {}
        file.problems.append(Problem(file.name, None, "", "", "must not be nested this deeply"))


def _compose(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise _InvalidFile(
            mark.line + 1 if mark else None, f"must be valid YAML: {printable(what)}"
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _InvalidFile(line, f"must be valid YAML: {error.reason}") from None
    except (ValueError, OverflowError):
        # PyYAML raises these errors without a position.
        raise _InvalidFile(
            None, "must be valid YAML: an escape such as \\UFFFFFFFF is not a character"
        ) from None


class _NodeConverter:
    """Converts the nodes of a file to values, and records their lines."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._parts = 0
        self._enclosing: list[yaml.Node] = []

    def value(self, node: yaml.Node | None, path: KeyPath) -> Any:
        if node is None:
            self._file.lines[path] = 1
            return None
        self._count_part(node)
        self._file.lines.setdefault(path, _line(node))
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if isinstance(node, yaml.ScalarNode) and kind in _READ_SCALAR:
            return _scalar(node, kind)
        if (type(node), kind) not in ((yaml.MappingNode, "map"), (yaml.SequenceNode, "seq")):
            raise _InvalidFile(_line(node), f"must not use the tag {printable(node.tag)}")
        if any(node is outer for outer in self._enclosing):
            raise _InvalidFile(_line(node), "must not contain itself")
        self._enclosing.append(node)
        value = self._mapping(node, path) if kind == "map" else self._sequence(node, path)
        self._enclosing.pop()
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
                merged |= self._merged_values(value_node, path)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _InvalidFile(_line(key_node), "must have plain text as keys")
            key, key_path = key_node.value, (*path, key_node.value)
            if key in values:
                self._report_repeated(key_node, key_path)
                continue
            self._file.lines[key_path] = _line(key_node)
            values[key] = self.value(value_node, key_path)
        return merged | values

    def _report_repeated(self, key_node: yaml.Node, path: KeyPath) -> None:
        rule = f"must occur once; it is already on line {self._file.lines[path]}"
        self._file.problems.append(Problem(self._file.name, _line(key_node), path_text(path), "", rule))

    def _merged_values(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        """Return the values of `<<: *anchor` or of a list of anchors, of which earlier ones win."""
        sources = [self.value(part, path) for part in _merge_sources(node)]
        if not all(isinstance(values, dict) for values in sources):
            raise _InvalidFile(_line(node), "must merge mappings only (<<)")
        return {key: value for values in reversed(sources) for key, value in values.items()}

    def _count_part(self, node: yaml.Node) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise _InvalidFile(
                _line(node), f"must have at most {PARTS_MAX} keys and values, aliases included"
            )


def _is_merge(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:merge")


def _merge_sources(node: yaml.Node) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else [node]


def _scalar(node: yaml.ScalarNode, kind: str) -> Any:
    try:
        return _READ_SCALAR[kind](node.value)
    except ValueError:
        raise _InvalidFile(_line(node), f"must be a number that can be read ({shown(node.value)})") from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
