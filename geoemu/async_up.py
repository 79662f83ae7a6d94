"""Start a topology, or attach to one, in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from types import TracebackType
from typing import Any

from geoemu.async_geo import AsyncGeo
from geoemu.asynchronous import Threads
from geoemu.run import Geo, attach, up


def up_async(
    topology: str | Path = "topology.yaml",
    *,
    runtime: str | None = None,
    run_dir: str | Path | None = None,
    listen: str | None = None,
    insecure: bool = False,
    detached: bool = False,
) -> AsyncOpening:
    """Start every region of a topology without blocking the event loop: `async with geoemu.up_async() as geo`, or
    `geo = await geoemu.up_async()`. The end of the block ends the run, and so does a cancellation of the start.
    Parameters and errors are those of `up`."""
    return AsyncOpening(
        lambda: up(
            topology, runtime=runtime, run_dir=run_dir, listen=listen, insecure=insecure, detached=detached
        )
    )


def attach_async(run_dir: str | Path | None = None) -> AsyncOpening:
    """Return an existing run, as `attach` does: `async with geoemu.attach_async() as geo`."""
    return AsyncOpening(lambda: attach(run_dir))


class AsyncOpening:
    """A run that is being started or attached to; `await` or `async with` completes that."""

    def __init__(self, opens: Callable[[], Geo]) -> None:
        self._threads = Threads()
        self._geo: AsyncGeo | None = None
        # Created here, so that Python warns of a run that was neither awaited nor entered.
        self._opening: Coroutine[Any, Any, Geo] = self._threads.run(opens, _leave)

    def __await__(self) -> Generator[Any, None, AsyncGeo]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncGeo:
        if self._geo is None:
            self._geo = AsyncGeo(await self._opening, self._threads)
        return self._geo

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._geo is not None, "the block was entered"
        geo = self._geo.sync
        try:
            await self._threads.run(lambda: geo.__exit__(kind, problem, trace))
        finally:
            self._threads.close()


def _leave(geo: Geo) -> None:
    geo.__exit__(None, None, None)
