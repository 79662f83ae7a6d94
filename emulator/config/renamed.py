"""Renamed names of scenario files and the Python API: old and new, in one table.

An old name is an error that names the new one. Stored files keep their old names and are read as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile

ITEM = "*"
"""In a path: any index of a list."""

KEYS: dict[tuple[str, ...], str] = {
    ("answers",): "contract",
    ("expect", "repeated"): "redelivered",
    ("actors", "hosts", ITEM, "stands_by"): "standby",
    ("steps", ITEM, "wait_until", "holds"): "owns",
}
"""Path of a key in a scenario file, with its old name -> the new name."""
VALUES: dict[tuple[str, ...], dict[str, str]] = {
    ("steps", ITEM, "begin"): {"everyone": "all"},
    ("steps", ITEM, "begin", ITEM): {"everyone": "all"},
    ("steps", ITEM, "begin", "actors"): {"everyone": "all"},
    ("steps", ITEM, "begin", "actors", ITEM): {"everyone": "all"},
    ("steps", ITEM, "finish"): {"everyone": "all"},
    ("steps", ITEM, "finish", ITEM): {"everyone": "all"},
    ("steps", ITEM, "finish", "actors"): {"everyone": "all"},
    ("steps", ITEM, "finish", "actors", ITEM): {"everyone": "all"},
    ("steps", ITEM, "heal"): {"everything": "all"},
    ("steps", ITEM, "heal", "between"): {"everything": "all"},
}
"""Path of a value in a scenario file -> its old and new names."""
PYTHON = {"Answers": "Contract"}
"""Old -> new names of the package `geoemu`."""
ARGUMENTS = {"answers": "contract"}
"""Old -> new arguments of `Geo.verify`."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Old:
    """An old name in a file: the key at `path`, or the value there."""

    path: KeyPath
    new: str
    is_key: bool


def sentence(old: str, new: str) -> str:
    return f"{old} was renamed to {new}"


def report_renamed(file: YamlFile) -> None:
    """Report each old name as a problem, and replace it in `file.values` so that the check of fields accepts it."""
    for old in list(_old_names(file.values, ())):
        *parents, last = old.path
        container: Any = file.values
        for part in parents:
            container = container[part]
        name = str(last) if old.is_key else str(container[last])
        file.report(old.path, sentence(name, old.new))
        if not old.is_key:
            container[last] = old.new
        elif old.new in container:
            del container[last]
        else:
            container[old.new] = container.pop(last)


def renamed_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function: a call with an old argument raises TypeError, which names the new argument."""

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for old, new in ARGUMENTS.items():
            if old in kwargs:
                raise TypeError(f"{function.__name__}(): {sentence(old, new)}")
        return function(*args, **kwargs)

    return checked


def _old_names(value: Any, path: KeyPath) -> Iterator[_Old]:
    pattern = tuple(ITEM if isinstance(part, int) else part for part in path)
    if pattern in KEYS:
        yield _Old(path, KEYS[pattern], True)
        return
    if isinstance(value, str) and value in VALUES.get(pattern, {}):
        yield _Old(path, VALUES[pattern][value], False)
    if isinstance(value, dict):
        for key in value:
            yield from _old_names(value[key], (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _old_names(item, (*path, index))
