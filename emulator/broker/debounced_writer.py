"""Writes one small state that changes often, such as a cursor, to the store.

The state may be stored under several keys. At most one write is in flight; changes during a write are part of the next
one. So a cursor that moves ten thousand times a second costs one row per commit, and a wait for durability waits for at
most two writes.

    changes taken ─▶ puts, step by step ─▶ durable: waiting callers resume ─▶ deletes ─▶ the next write, if any

Puts of one step are issued together, and a crash may leave any of them (S1). A step begins when the one before is
durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from emulator.errors import GoneMeanwhile, StorageError
from emulator.storage.contract import Store


class KeyChanges(NamedTuple):
    """The changes that bring the stored state up to date."""

    puts: Sequence[Mapping[str, bytes]]
    """The steps of a write, in order; each maps keys to values."""
    deletes: Sequence[str]
    """Keys that are unused once the puts are durable."""


def one_key(key: str, value: Callable[[], bytes]) -> Callable[[], KeyChanges]:
    """Return the `take_changes` function of a state that is stored under one key."""
    return lambda: KeyChanges([{key: value()}], [])


class DebouncedWriter:
    """Writes the changes of one state. Each write begins with a call of `take_changes`. `failed` is called with the
    error of a failed write, unless the writer is closed; later writes are still possible."""

    def __init__(
        self,
        store: Store,
        what: str,
        take_changes: Callable[[], KeyChanges],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._what = what
        """Name of the state, for messages."""
        self._take_changes = take_changes
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight: Sequence[asyncio.Future[Any]] | None = None
        self._dirty = False
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        self._read_keys: set[str] = set()
        """Keys that this writer has read, so that the store accepts puts of them: see `_put`."""

    def soon(self, delay_seconds: float) -> None:
        """Begin to write the changed state within the delay, at the latest when the write in flight ends."""
        if self._timer is None and not self._dirty and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._begin_write)

    def now(self) -> asyncio.Future[None]:
        """Write the current state. The future resolves once it, or a newer one, is durable; otherwise StorageError."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            # Another writer may have stored a newer value of the state, which must not be overwritten.
            future.set_exception(self._gone_error())
            return future
        self._waiting.append(future)
        self._begin_write()
        return future

    def flush(self) -> asyncio.Future[None] | None:
        """Write changes of which no write has begun, before an orderly stop. None if there are none; `is_writing` tells
        whether a write is in flight."""
        return self.now() if self._timer is not None or self._dirty else None

    @property
    def is_writing(self) -> bool:
        """Whether a write is in flight, deletes included."""
        return self._in_flight is not None

    @property
    def is_pending(self) -> bool:
        """Whether a write is in flight or scheduled."""
        return self.is_writing or self._dirty or self._timer is not None

    def close(self) -> None:
        """Begin no further write, and no further step of the write in flight."""
        self._closed = True
        self._stop_timer()

    async def settled(self) -> None:
        """Wait, after `close`, until the write in flight has its outcome. Until then the stored state is unknown."""
        while self._in_flight is not None:
            await asyncio.wait(self._in_flight)

    def _gone_error(self) -> StorageError:
        return GoneMeanwhile(f"{self._what} is not stored here any more")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_write(self) -> None:
        self._stop_timer()
        if self._in_flight is not None:
            self._dirty = True
            return
        waiting, self._waiting = self._waiting, []
        self._dirty = False
        changes = self._take_changes()
        self._write(list(changes.puts), changes.deletes, waiting)

    def _write(
        self, steps: list[Mapping[str, bytes]], deletes: Sequence[str], waiting: list[asyncio.Future[None]]
    ) -> None:
        """Issue the puts of the first step, and the next step when they are durable; then the deletes."""
        if not steps:
            _resolve(waiting, None)
            self._delete(deletes)
            return
        puts = [self._put(key, value) for key, value in steps[0].items()]

        def done(failure: BaseException | None) -> None:
            if failure is None and self._closed and len(steps) > 1:
                failure = self._gone_error()
            if failure is None:
                self._write(steps[1:], deletes, waiting)
            else:
                self._fail(failure, waiting)

        self._when_all(puts, done)

    def _put(self, key: str, value: bytes) -> asyncio.Future[int]:
        """Put a value; read its key before the first put. After a failed put the store rejects the key until it is read
        (S5), so a put that failed in an earlier writer would make all puts of this one fail."""
        if key not in self._read_keys:
            self._read_keys.add(key)
            self._store.get(key)
        return self._store.put(key, value)

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete unused keys, then begin the next write. Waiting callers have resumed before: an unused key that
        remains does no harm."""
        if not keys or self._closed:
            self._begin_next_write()
            return
        self._read_keys.difference_update(keys)
        for key in keys:
            self._store.get(key)  # as in `_put`: an earlier failure must not make the store reject the key

        def done(failure: BaseException | None) -> None:
            if failure is None:
                self._begin_next_write()
            else:
                self._fail(failure, [])

        self._when_all([self._store.delete(key) for key in keys], done)

    def _when_all(
        self, futures: Sequence[asyncio.Future[Any]], done: Callable[[BaseException | None], None]
    ) -> None:
        """Call `done` when every future has its outcome, even if one fails earlier: until then the store may change."""
        unresolved = len(futures)

        def one_done(_: asyncio.Future[Any]) -> None:
            nonlocal unresolved
            unresolved -= 1
            if not unresolved:
                self._in_flight = None
                failures = [future.exception() for future in futures]
                done(next(filter(None, failures), None))

        self._in_flight = futures
        for future in futures:
            future.add_done_callback(one_done)

    def _begin_next_write(self) -> None:
        if self._closed:
            self._fail_waiting(self._gone_error())
        elif self._dirty:
            self._begin_write()

    def _fail(self, failure: BaseException, waiting: list[asyncio.Future[None]]) -> None:
        _resolve(waiting, failure)
        self._fail_waiting(failure)
        if not self._closed:
            self._failed(failure)

    def _fail_waiting(self, failure: BaseException) -> None:
        """Fail the callers that wait for the next write, which will not happen."""
        waiting, self._waiting = self._waiting, []
        _resolve(waiting, failure)


def _resolve(waiting: list[asyncio.Future[None]], failure: BaseException | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
