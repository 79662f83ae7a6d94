"""The hash of a run: two runs of a seed are identical if their traces have the same hash.

The hash covers every turn of every host, every segment that arrives and every event (faults of hosts and links, commits
and crashes of media), with their virtual times and sizes. With `detail` it also covers the names of callbacks and the
arriving bytes, which is slower, and gives another hash. A listener turns `detail` on: it receives each callback,
arrival and event as text, so that the first difference of two runs is found.

The hash does not depend on memory addresses or `hash()`: the same seed gives the same hash in another process,
under another `PYTHONHASHSEED` and on another machine.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any

Listener = Callable[[float, str, str], None]
"""Called with virtual time in seconds, host and description of each event."""

HOST_STEP = float(1 << 24)
"""Factor of the host's index in `host * HOST_STEP + size`, the second number of a step; the first is its time. `size`
(callbacks of a turn, bytes of an arrival) has up to 24 bits."""
ARRIVAL = float(1 << 48)
"""Offset that distinguishes an arrival at a host (`ARRIVAL + host * HOST_STEP + size`) from a turn of the host."""
EVENT = float(1 << 49)
"""Offset of the number of an event, which distinguishes it from turns and arrivals."""


class Trace:
    def __init__(self, *, detail: bool = False, listener: Listener | None = None) -> None:
        self.detail = detail or listener is not None
        self._listener = listener
        self._hash = blake2b(digest_size=16)
        self.steps: list[float] = []
        """Numbers of the steps that are not hashed yet, in one flat list. Hosts append their turns (`time` and
        `host * HOST_STEP + callbacks`) and arrivals directly, because a method call would be too slow."""
        self._known: dict[str, float] = {}
        """Number of each event text that was hashed."""

    def hexdigest(self) -> str:
        """Return the hash so far."""
        self.flush()
        return self._hash.hexdigest()

    def callback(self, now: float, host: str, callback: Callable[..., Any]) -> None:
        """Record that a host is about to run a callback. Only called with `detail`."""
        name = callback_name(callback)
        self._add(name.encode())
        self._report(now, host, name)

    def arrival(self, now: float, host: str, kind: str, data: list[bytes]) -> None:
        """Record the arrival of a segment at a host. Only called with `detail`."""
        self._add(kind.encode(), *data)
        size_bytes = sum(map(len, data))
        self._report(now, host, f"{kind} arrives, {size_bytes} bytes" if size_bytes else f"{kind} arrives")

    def event(self, now: float, host: str, what: str) -> None:
        """Record an event, such as a fault or a commit; `what` is hashed once, and its number each time."""
        number = self._known.get(what)
        if number is None:
            number = self._known[what] = EVENT + len(self._known)
            self._add(what.encode())
        self.steps += (now, number)
        if self._listener is not None:
            self._report(now, host, what)

    def _add(self, *what: bytes) -> None:
        self.flush()
        for part in what:
            self._hash.update(part)

    def flush(self) -> None:
        """Hash the recorded steps, and remove them."""
        self._hash.update(array("d", self.steps))
        del self.steps[:]

    def _report(self, now: float, host: str, what: str) -> None:
        if self._listener is not None:
            self._listener(now, host, what)


def callback_name(callback: Callable[..., Any]) -> str:
    """Return a name of the callback that does not contain a memory address."""
    while isinstance(callback, partial):
        callback = callback.func
    get_coroutine = getattr(getattr(callback, "__self__", None), "get_coro", None)
    if get_coroutine is not None:  # a step of a task
        return f"task {getattr(get_coroutine(), '__qualname__', '?')}"
    return getattr(callback, "__qualname__", None) or type(callback).__qualname__
