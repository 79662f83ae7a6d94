"""Parts of `AsyncGeo`: calls of `Geo` on threads, and faults that are awaited or end with a block.

The methods, in `async_geo.py`, are generated from `Geo`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from emulator.errors import RuntimeFailure
from geoemu.run import Geo
from geoemu.scopes import FaultScope

T = TypeVar("T")
CALLS_MAX: Final = 64
"""Maximum number of concurrent calls of one run. A call that waits for the effect of another one must not keep it from
running."""


class Threads:
    """Threads that run blocking calls for an event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="geoemu-async")

    async def run(self, call: Callable[[], T], undo: Callable[[T], Any] | None = None) -> T:
        """Return the result of a blocking call. A cancelled call is waited for, so that its effect is complete; then
        `undo` is called with its result."""
        running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._finish(running)
            if undo is not None and running.exception() is None:
                await self._finish(
                    asyncio.get_running_loop().run_in_executor(self._pool, undo, running.result())
                )
            raise

    @staticmethod
    async def _finish(running: asyncio.Future[Any]) -> None:
        """Wait for the end of a call, also if this task is cancelled again."""
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        running.exception()  # marks it as retrieved: the cancellation is raised instead

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class AsyncFault:
    """A fault of `AsyncGeo`: `await` begins it, `async with` ends it with the block, too."""

    def __init__(self, threads: Threads, begin: Callable[[], FaultScope]) -> None:
        self._threads = threads
        self._scope: FaultScope | None = None
        # Created here, so that Python warns of a fault that was neither awaited nor entered.
        self._beginning: Coroutine[Any, Any, FaultScope] = threads.run(begin, _end)

    def __await__(self) -> Generator[Any, None, AsyncFault]:
        return self._begun().__await__()

    async def __aenter__(self) -> AsyncFault:
        return await self._begun()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._scope
        assert scope is not None, "the block was entered"
        await self._threads.run(lambda: scope.__exit__(kind, problem, trace))

    async def _begun(self) -> AsyncFault:
        if self._scope is None:
            self._scope = await self._beginning
        return self


def _end(scope: FaultScope) -> None:
    with suppress(RuntimeFailure):
        scope.__exit__(None, None, None)


class AsyncRun:
    """The base of `AsyncGeo`: one run, and the threads on which its blocking methods are called."""

    def __init__(self, geo: Geo, threads: Threads) -> None:
        self._geo = geo
        self._threads = threads

    @property
    def sync(self) -> Geo:
        """The same run for synchronous code, such as a function that a thread calls."""
        return self._geo

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self._geo.run_dir

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions, in the order of the topology."""
        return self._geo.regions

    def _fault(self, begin: Callable[[], FaultScope]) -> AsyncFault:
        return AsyncFault(self._threads, begin)

    async def _call(self, call: Callable[[], T]) -> T:
        return await self._threads.run(call)
