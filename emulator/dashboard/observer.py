"""The latest status of a run, refreshed while a page asks for it.

A region that does not respond delays a refresh by its time limit. The page still receives a response at once: the
latest status with its age.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from emulator.dashboard.event_log import ObservedStates
from emulator.errors import GeoemuError
from emulator.runtimes.contract import Runtime
from emulator.runtimes.status_json import status_to_json

REFRESH_SECONDS: Final = 0.5
"""Time for which a request waits for a refresh before it receives the status of the refresh before."""
FIRST_SECONDS: Final = 10.0
"""Time for which a request waits if there is no status yet."""


class StatusObserver:
    """Refreshes the status of one run. Concurrent requests share a refresh."""

    def __init__(self, run: Runtime) -> None:
        self._load: Callable[[], Awaitable[dict[str, Any]]] = lambda: _load_status(run)
        self._refresh: asyncio.Task[None] | None = None
        self._status: dict[str, Any] | None = None
        self._loaded_at = 0.0
        self.changes = ObservedStates(lambda: time.time() * 1000)
        self._problem = ""

    async def latest(self) -> dict[str, Any]:
        """Return the latest status: `status` as `geoemu status --json` prints it, or None; `age_ms`, its age; and
        `problem`, why the run cannot be observed now, or an empty text."""
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._load_once())
        seconds = FIRST_SECONDS if self._status is None and not self._problem else REFRESH_SECONDS
        await asyncio.wait({self._refresh}, timeout=seconds)
        age = 0.0 if self._status is None else asyncio.get_running_loop().time() - self._loaded_at
        return {"status": self._status, "age_ms": round(age * 1000), "problem": self._problem}

    async def close(self) -> None:
        """End the current refresh."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait({self._refresh})

    async def _load_once(self) -> None:
        begun = asyncio.get_running_loop().time()
        try:
            self._status, self._problem = await self._load(), ""
            self._loaded_at = begun
            self.changes.compare(self._status)
        except (GeoemuError, OSError, ValueError) as problem:
            self._problem = str(problem)


async def _load_status(run: Runtime) -> dict[str, Any]:
    status = await run.status()
    return {**await status_to_json(status), "runtime": status.runtime, "ended": status.ended}
