"""Keep simulated programs deterministic: a call that reaches the real world fails, and the error names its source line.

While a simulation runs, functions that read clocks, draw unseeded random numbers, open sockets, write files or start
threads and processes are replaced by guards. A guard passes calls from outside a simulated program (other threads, the
test runner, the simulation itself) and from tools that every program needs: imports, tracebacks, logging. It rejects
calls of a simulated program: ReachedOutside names file and line, and ends the simulation even if the program catches
it. A few guards return a simulated value instead: a log record is stamped with the host's wall clock, and a process id
is the host's.

Modules that contain `from time import monotonic` hold the function itself; those names are replaced as well.
"""

from __future__ import annotations

import builtins
import datetime
import functools
import io
import os
import random
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import threading
import time
import uuid
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from emulator.simulation.loop import HostLoop

CLOCK = "programs use the time of their loop (loop.time(), asyncio.sleep) and timestamps of their host's wall clock"
CHANCE = "programs use the random source that is passed to them"
SOCKET = "programs connect through the network that is passed to them, or the loop's create_connection"
THREAD = "a simulated program has one thread; loop.run_in_executor runs a call as an ordered step"
FILE = "a simulated program writes to its store"

TOOLS = {
    "importlib",
    "zipimport",
    "linecache",
    "traceback",
    "tokenize",
    "warnings",
    "logging",
    "pdb",
    "bdb",
    "_pytest",
    "pytest",
    "pluggy",
    "hypothesis",
    "coverage",
}
"""Packages whose calls to the real world are passed on: the program does not see their results."""

_LIBRARY_PATHS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class ReachedOutside(AssertionError):
    """A simulated program called a function of the real world: its outcome would not follow from the seed."""


class GuardedCall(NamedTuple):
    """One guarded function."""

    owner: Any
    """The module or class that has the function."""
    attribute: str
    name: str
    """The call as it is written in source code, for the error message."""
    advice: str
    rejects: Callable[[tuple[Any, ...], dict[str, Any]], bool] = lambda args, kwargs: True
    """Whether a call with these arguments is rejected."""
    simulated_value: Callable[[HostLoop], Any] | None = None
    """Return the simulated value of the call; tools receive it instead of the real one."""
    is_always_simulated: bool = False
    """Programs receive the simulated value, too, instead of an error."""


def _no_time_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return not args or args[0] is None


def _no_seed_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("a", args[1] if len(args) > 1 else None) is None


def _opened_for_writing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _flags_for_writing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("flags", args[1] if len(args) > 1 else 0) & _WRITING)


def _not_in_memory(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("database", args[0] if args else None) != ":memory:"


def _wall_seconds(loop: HostLoop) -> float:
    return loop.owner.wall_clock_ms.exact_ms() / 1000


def _guarded_calls() -> list[GuardedCall]:
    return [*_clocks(), *_chance(), *_sockets_and_processes(), *_files()]


def _clocks() -> Iterator[GuardedCall]:
    yield GuardedCall(time, "time", "time.time()", CLOCK, simulated_value=_wall_seconds)
    yield GuardedCall(
        time, "time_ns", "time.time_ns()", CLOCK, simulated_value=lambda loop: int(_wall_seconds(loop) * 1e9)
    )
    for name in (
        *("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"),
        *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    ):
        yield GuardedCall(time, name, f"time.{name}()", CLOCK)
    for name in ("localtime", "gmtime", "ctime"):
        yield GuardedCall(time, name, f"time.{name}()", CLOCK, _no_time_given)


def _chance() -> Iterator[GuardedCall]:
    for name, value in vars(random).items():
        if getattr(value, "__self__", None) is random._inst:
            yield GuardedCall(random, name, f"random.{name}()", CHANCE)
    yield GuardedCall(random.Random, "seed", "random.Random() without a seed", CHANCE, _no_seed_given)
    yield GuardedCall(random, "_urandom", "random.SystemRandom()", CHANCE)
    yield GuardedCall(os, "urandom", "os.urandom()", CHANCE)
    yield GuardedCall(uuid, "uuid1", "uuid.uuid1()", CHANCE)
    yield GuardedCall(uuid, "uuid4", "uuid.uuid4()", CHANCE)


def _sockets_and_processes() -> Iterator[GuardedCall]:
    yield GuardedCall(socket.socket, "__init__", "socket.socket()", SOCKET)
    for name in ("socketpair", "create_connection", "create_server", "getaddrinfo", "gethostbyname"):
        yield GuardedCall(socket, name, f"socket.{name}()", SOCKET)
    yield GuardedCall(
        socket, "gethostname", "socket.gethostname()", SOCKET, simulated_value=lambda loop: loop.name
    )
    yield GuardedCall(threading.Thread, "start", "threading.Thread.start()", THREAD)
    yield GuardedCall(subprocess.Popen, "__init__", "subprocess.Popen()", THREAD)
    for name in ("fork", "posix_spawn", "posix_spawnp", "system", "popen", "kill"):
        if hasattr(os, name):
            yield GuardedCall(os, name, f"os.{name}()", THREAD)
    yield GuardedCall(
        os,
        "getpid",
        "os.getpid()",
        THREAD,
        simulated_value=lambda loop: loop.owner.process_id,
        is_always_simulated=True,
    )


def _files() -> Iterator[GuardedCall]:
    yield GuardedCall(builtins, "open", "open() for writing", FILE, _opened_for_writing)
    yield GuardedCall(io, "open", "open() for writing", FILE, _opened_for_writing)
    yield GuardedCall(os, "open", "os.open() for writing", FILE, _flags_for_writing)
    yield GuardedCall(sqlite3, "connect", "sqlite3.connect()", FILE, _not_in_memory)
    for name in ("mkdir", "remove", "unlink", "rename", "replace", "rmdir", "truncate", "link", "symlink"):
        if hasattr(os, name):
            yield GuardedCall(os, name, f"os.{name}()", FILE)


class _DateMeta(type):
    """Makes instances of the real class instances of its replacement."""

    real: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)


def _date_replacement(real: type, clock_readers: tuple[str, ...]) -> type:
    """Return a class that replaces `datetime.datetime` or `.date`, whose methods cannot be replaced: it creates real
    instances and guards the methods that read a clock."""
    members: dict[str, Any] = {"__new__": lambda cls, *args, **kwargs: real(*args, **kwargs), "real": real}
    for name in clock_readers:
        call = GuardedCall(real, name, f"{real.__name__}.{name}()", CLOCK)
        members[name] = staticmethod(_guarded(call, getattr(real, name)))
    return _DateMeta(real.__name__, (real,), members)


def _guarded(call: GuardedCall, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement of a function while a simulation runs."""

    @functools.wraps(real, updated=())
    def guarded(*args: Any, **kwargs: Any) -> Any:
        loop = events._get_running_loop()
        if type(loop) is not HostLoop or _opened or not call.rejects(args, kwargs):
            return real(*args, **kwargs)
        if call.is_always_simulated:
            assert call.simulated_value is not None
            return call.simulated_value(loop)
        location = _program_line(sys._getframe(1))
        if location is None:
            return real(*args, **kwargs) if call.simulated_value is None else call.simulated_value(loop)
        error = ReachedOutside(
            f"{location}: {call.name} in a simulated program (host {loop.name!r}); {call.advice}"
        )
        loop.fail(error)
        raise error

    return guarded


def _program_line(frame: FrameType | None) -> str | None:
    """Return `file:line` of the program that made the call, or "a callback" without program code on the stack; None if
    a tool in TOOLS made it."""
    while frame is not None and frame.f_code is not HostLoop._tick.__code__:
        module: str = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in TOOLS:
            return None
        path = frame.f_code.co_filename
        is_library = path.startswith(_LIBRARY_PATHS) or module.startswith("emulator.simulation.")
        if (
            not is_library and frame.f_code.co_name != "<module>"
        ):  # code at module level runs during an import
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return "a callback"


_opened = 0
"""Number of `outside` blocks that are being run."""


@contextmanager
def outside() -> Iterator[None]:
    """Let a main program call real functions within the block. The block must not contain `await`."""
    global _opened
    _opened += 1
    try:
        yield
    finally:
        _opened -= 1


class Guard:
    """Replaces all guarded functions between `activate` and `deactivate`."""

    _is_active = False

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def activate(self) -> None:
        assert not Guard._is_active, "one simulation at a time"
        Guard._is_active = True
        for owner, attribute, replacement in (*_replacements(), *_replacements_in_programs()):
            self._undo.append((owner, attribute, vars(owner)[attribute]))
            setattr(owner, attribute, replacement)

    def deactivate(self) -> None:
        while self._undo:
            owner, attribute, real = self._undo.pop()
            setattr(owner, attribute, real)
        Guard._is_active = False


@functools.cache
def _replacements() -> list[tuple[Any, str, Any]]:
    """Return (owner, attribute, replacement) of each guarded function where it is defined. The first call must happen
    while no simulation runs."""
    replacements: list[tuple[Any, str, Any]] = [
        (call.owner, call.attribute, _guarded(call, vars(call.owner)[call.attribute]))
        for call in _guarded_calls()
    ]
    replacements.append(
        (datetime, "datetime", _date_replacement(datetime.datetime, ("now", "utcnow", "today")))
    )
    replacements.append((datetime, "date", _date_replacement(datetime.date, ("today",))))
    return replacements


_modules_seen: dict[str, ModuleType] = {}
_bound_names: list[tuple[Any, str, Any]] = []


def _replacements_in_programs() -> list[tuple[Any, str, Any]]:
    """Return (module, name, replacement) of the same functions where modules that are no libraries imported them."""
    if sys.modules.keys() != _modules_seen.keys():
        replacements_by_id = {
            id(vars(owner)[attribute]): replacement
            for owner, attribute, replacement in _replacements()
            if isinstance(owner, ModuleType) and owner is not builtins
        }
        for name, module in list(sys.modules.items()):
            if _modules_seen.get(name) is not module:
                _bound_names.extend(_names_bound_in(module, replacements_by_id))
        _modules_seen.clear()
        _modules_seen.update(sys.modules)
    return _bound_names


def _names_bound_in(module: ModuleType, replacements_by_id: dict[int, Any]) -> Iterator[tuple[Any, str, Any]]:
    path = getattr(module, "__file__", None) or ""
    if not path or path.startswith(_LIBRARY_PATHS) or module.__name__.startswith("emulator.simulation."):
        return
    for name, value in vars(module).items():
        replacement = replacements_by_id.get(id(value))
        if replacement is not None:
            yield module, name, replacement
