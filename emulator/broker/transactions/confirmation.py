"""The confirmation of one decided transaction: what its END_TXN requests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from emulator.errors import StorageError


class Confirmation:
    """Completes when every participant has confirmed the outcome, or fails when the coordinator ends before.

    Like a future, except that callbacks are called at once: those of a future would take one wake-up of the event loop
    for each transaction. Callbacks must not raise."""

    __slots__ = ("_callbacks", "_failure", "_is_done")

    def __init__(self, *, is_done: bool = False) -> None:
        self._callbacks: list[Callable[[Any], object]] = []
        self._failure: StorageError | None = None
        self._is_done = is_done

    def done(self) -> bool:
        return self._is_done

    def exception(self) -> StorageError | None:
        """Return the failure of a confirmation that is done."""
        return self._failure

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` with this object once it is done: now, if it is."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def set_result(self, _: None) -> None:
        self._complete(None)

    def set_exception(self, failure: StorageError) -> None:
        self._complete(failure)

    def _complete(self, failure: StorageError | None) -> None:
        assert not self._is_done
        self._is_done, self._failure = True, failure
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def future(self) -> asyncio.Future[None]:
        """Return a new future with the same outcome."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def complete(confirmed: Confirmation) -> None:
            if future.done():
                return
            if confirmed.exception() is None:
                future.set_result(None)
            else:
                future.set_exception(confirmed.exception())  # type: ignore[arg-type]
                future.exception()  # mark as retrieved: maybe no caller waits

        self.add_done_callback(complete)
        return future

    def __await__(self) -> Generator[Any, None, None]:
        return self.future().__await__()
