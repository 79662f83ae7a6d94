"""An outcome that several callers wait for: of a write, or of what a decision has to reach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from emulator.errors import ProtocolError, StorageError


class SharedOutcome:
    """Succeeds, or fails with an error.

    Like a future, except that callbacks are called at once: those of a future take another iteration of the event loop.
    So all that one commit completes is completed in one iteration, and its responses are one write."""

    __slots__ = ("_callbacks", "_failure", "_is_done")

    def __init__(self, *, is_done: bool = False) -> None:
        self._callbacks: list[Callable[[Any], object]] = []
        self._failure: StorageError | ProtocolError | None = None
        self._is_done = is_done

    def done(self) -> bool:
        return self._is_done

    def exception(self) -> StorageError | ProtocolError | None:
        """Return the error of an outcome that is done; None: it succeeded."""
        assert self._is_done
        return self._failure

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` with this object once it is done: now, if it is."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def succeed(self) -> None:
        self._complete(None)

    def fail(self, failure: StorageError | ProtocolError) -> None:
        self._complete(failure)

    def follow(self, write: asyncio.Future[Any]) -> None:
        """Complete as a write of the store does."""
        write.add_done_callback(self._written)

    def _written(self, write: asyncio.Future[Any]) -> None:
        failure = write.exception()
        assert failure is None or isinstance(failure, StorageError), failure
        self._complete(failure)

    def _complete(self, failure: StorageError | ProtocolError | None) -> None:
        assert not self._is_done
        self._is_done, self._failure = True, failure
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception as problem:  # any: the others must learn of the outcome, as those of a future do
                context = {"message": "a callback of a shared outcome failed", "exception": problem}
                asyncio.get_running_loop().call_exception_handler(context)

    def future(self) -> asyncio.Future[None]:
        """Return a new future with the same outcome, which its caller may cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add_done_callback(lambda _: self._copy_to(future))
        return future

    def _copy_to(self, future: asyncio.Future[None]) -> None:
        if future.done():
            return
        if self._failure is None:
            future.set_result(None)
        else:
            future.set_exception(self._failure)
            future.exception()  # mark as retrieved: maybe no caller waits

    def __await__(self) -> Generator[Any, None, None]:
        return self.future().__await__()
