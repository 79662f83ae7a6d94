"""Lanes, the units of order (S1) and of failure (S5); and the keys and log names of a store, for every backend.

A log is a lane, and so is a key with writes in flight. When a write fails, its lane is broken: the writer fails the
issued writes behind it in the lane, and the event loop refuses new ones once it processes the failure.

Each key has a durable value, a version after all issued writes (compared with `expected_version`), and after a failed
write a refusal, until the next `get` of the key. `KeyLane` contains the last two.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from typing import Any, Protocol

from emulator.errors import StorageError
from emulator.storage.contract import Log, Versioned

ABSENT = -1
"""Version of a key that does not exist, also in `expected_version`."""


class Lane(Protocol):
    broken: StorageError | None
    """Error with which a write of the lane failed; None: no error. Only the writer sets it."""

    def failed(self, error: StorageError) -> None:
        """Handle a failed write of the lane. Called on the event loop."""
        ...


def behind(error: StorageError) -> StorageError:
    """Return the error of a write that is not stored because an earlier one of its lane failed with `error`."""
    return StorageError(f"not written, because a write before it failed: {error}", definite=True)


class LogLane:
    """The lane of a log. After a failed append it refuses appends; opening the log again creates a new lane."""

    def __init__(self) -> None:
        self.broken: StorageError | None = None
        self.refusal: StorageError | None = None
        """Error with which the event loop refuses new appends; None: it accepts them."""
        self.deleted: StorageError | None = None
        """Error with which reads are refused after the log was deleted."""

    def failed(self, error: StorageError) -> None:
        if self.refusal is None:
            self.refusal = behind(error)


class KeyLane:
    """The lane of a key. It exists only while writes are in flight or new ones are refused; each write refers to it."""

    __slots__ = ("_values", "broken", "in_flight", "issued_version", "key", "refusal")

    def __init__(self, values: StoredValues, key: str, issued_version: int) -> None:
        self._values = values
        self.key = key
        self.issued_version = issued_version
        """Version of the key once all issued writes are durable."""
        self.in_flight = 0
        self.broken: StorageError | None = None
        self.refusal: StorageError | None = None
        """Error with which the event loop refuses new writes; None: it accepts them."""

    def stored(self, value: Versioned | None) -> int | None:
        """Set the durable value after a write (None: deleted); return the new version."""
        self._values.set(self.key, value)
        self.in_flight -= 1
        if not self.in_flight:
            self._values.forget(self)
        return None if value is None else value.version

    def failed(self, error: StorageError) -> None:
        self.in_flight -= 1
        self.refusal = error


class StoredValues:
    """Durable values and writes in flight. Used on the event loop only."""

    def __init__(self, values: dict[str, Versioned]) -> None:
        self.values = values
        """Key -> durable value; changed by `set` only."""
        self._sorted: list[str] | None = None
        """All keys, sorted; None until the first scan. With it, the cost of a scan depends only on what it finds."""
        self._lanes: dict[str, KeyLane] = {}

    def get(self, key: str) -> Versioned | None:
        lane = self._lanes.get(key)
        if lane is not None and lane.refusal is not None:
            del self._lanes[key]
        return self.values.get(key)

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        if self._sorted is None:
            self._sorted = sorted(self.values)
        keys, found = self._sorted, []
        index = bisect_left(keys, prefix)
        while index < len(keys) and keys[index].startswith(prefix):
            found.append((keys[index], self.values[keys[index]]))
            index += 1
        return found

    def set(self, key: str, value: Versioned | None) -> None:
        """Set the durable value of a key; None deletes it."""
        if self._sorted is not None and (key in self.values) != (value is not None):
            if value is not None:
                insort(self._sorted, key)
            else:
                del self._sorted[bisect_left(self._sorted, key)]
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def issue_put(self, key: str, expected_version: int | None) -> tuple[KeyLane, int]:
        """Register a put; return its lane and the new version. Raises StorageError if refused, or for another
        version."""
        lane = self._open_lane(key)
        if expected_version is not None and expected_version != lane.issued_version:
            if not lane.in_flight:
                del self._lanes[key]
            raise StorageError(
                f"key {key!r} is expected {_spell(expected_version)} but is {_spell(lane.issued_version)}",
                definite=True,
            )
        lane.issued_version += 1
        lane.in_flight += 1
        return lane, lane.issued_version

    def issue_delete(self, key: str) -> KeyLane:
        """Register a deletion; return its lane. Raises StorageError if the lane refuses writes."""
        lane = self._open_lane(key)
        lane.issued_version = ABSENT
        lane.in_flight += 1
        return lane

    def forget(self, lane: KeyLane) -> None:
        """Remove a lane without writes in flight, unless `get` has removed it."""
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _open_lane(self, key: str) -> KeyLane:
        lane = self._lanes.get(key)
        if lane is None:
            durable = self.values.get(key)
            lane = self._lanes[key] = KeyLane(self, key, ABSENT if durable is None else durable.version)
        if lane.refusal is not None:
            raise behind(lane.refusal)
        return lane


class KeyedStore(ABC):
    """The keys and log names of a `contract.Store`. Backends implement the logs and the writes of keys."""

    def __init__(self, values: dict[str, Versioned], names: Collection[str]) -> None:
        self.new_future = asyncio.get_running_loop().create_future
        self._keys = StoredValues(values)
        self._names = names
        """Names of all durable logs."""

    def log_names(self) -> list[str]:
        return sorted(self._names)

    def has_log(self, name: str) -> bool:
        return name in self._names

    def create_log(
        self, name: str, wrap: Callable[[Log], Log] = lambda log: log
    ) -> asyncio.Future[Log] | None:
        """Backends that create a log by one write of their own override this."""
        return None

    def get(self, key: str) -> Versioned | None:
        return self._keys.get(key)

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return self._keys.scan(prefix)

    def put(self, key: str, value: bytes, *, expected_version: int | None = None) -> asyncio.Future[int]:
        try:
            lane, version = self._keys.issue_put(key, expected_version)
        except StorageError as error:
            return self.failed_future(error)
        return self._write_key(lane, Versioned(value, version))

    def delete(self, key: str) -> asyncio.Future[None]:
        try:
            lane = self._keys.issue_delete(key)
        except StorageError as error:
            return self.failed_future(error)
        return self._write_key(lane, None)

    def failed_future(self, error: StorageError) -> asyncio.Future[Any]:
        future = self.new_future()
        future.set_exception(error)
        return future

    @abstractmethod
    def _write_key(self, lane: KeyLane, value: Versioned | None) -> asyncio.Future[Any]:
        """Issue a put, or a deletion if `value` is None. The future resolves to the new version, or None."""


def _spell(version: int) -> str:
    return "absent" if version == ABSENT else f"at version {version}"
