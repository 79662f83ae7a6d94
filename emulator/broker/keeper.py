"""Keeping one small piece of state durable while it changes often.

At most one put is under way per key; whatever changes meanwhile goes into the next one. So a cursor that moves ten
thousand times a second costs one row per commit, and a wait for durability waits for at most two commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator.errors import StorageError
from emulator.storage.contract import Store


class StateKeeper:
    """Writes the newest value of one key."""

    def __init__(
        self, store: Store, key: str, value: Callable[[], bytes], failed: Callable[[BaseException], None]
    ) -> None:
        self._store = store
        self._key = key
        self._value = value
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: asyncio.Future[int] | None = None
        self._dirty = False
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        # After a failed put the store refuses the key until somebody has looked at what is really there (S5). Our
        # owner did, or there was nothing; without this a key that failed once would fail for ever.
        store.get(key)

    def soon(self, delay_seconds: float) -> None:
        """The value changed; write it within the delay."""
        if self._timer is None and not self._dirty and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._start)

    def now(self) -> asyncio.Future[None]:
        """Write the value as it is now. Resolves once it, or a newer one, is durable; StorageError otherwise."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            # Somebody else may keep this key by now: an old value must not follow a newer one.
            future.set_exception(StorageError(f"{self._key} is not kept here any more", definite=False))
            return future
        self._waiting.append(future)
        self._start()
        return future

    def flush(self) -> asyncio.Future[None] | None:
        """Write what `soon` has pending, if anything. For an orderly stop."""
        return self.now() if self._timer is not None or self._dirty else None

    def close(self) -> None:
        """Write no more."""
        self._closed = True
        self._stop_timer()

    async def settled(self) -> None:
        """After `close`: wait until what is under way has its outcome. Until then nobody knows what the store holds."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._stop_timer()
        if self._under_way is not None:
            self._dirty = True
            return
        waiting, self._waiting = self._waiting, []
        self._dirty = False
        self._under_way = self._store.put(self._key, self._value())
        self._under_way.add_done_callback(lambda done: self._written(done, waiting))

    def _written(self, done: asyncio.Future[int], waiting: list[asyncio.Future[None]]) -> None:
        self._under_way = None
        failure = done.exception()
        _answer(waiting, failure)
        if failure is not None or self._closed:
            # Nothing follows: who waits for the next write would wait for ever.
            left, self._waiting = self._waiting, []
            _answer(left, failure or StorageError(f"{self._key} is not kept here any more", definite=False))
        if failure is not None:
            if not self._closed:
                self._failed(failure)
        elif self._dirty and not self._closed:
            self._start()


def _answer(waiting: list[asyncio.Future[None]], failure: BaseException | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
