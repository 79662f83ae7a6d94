"""`geoemu up`: the run comes up and, unless detached, stays until Ctrl-C or `geoemu down`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from emulator.cli.interruption import INTERRUPTED_EXIT_CODE, Interruption, interruption
from emulator.cli.output import show_status
from emulator.cli.quickstart import quickstart
from emulator.cli.spinner import patience
from emulator.runtimes.contract import RegionState, RunStatus, Runtime

LOOK_SECONDS = 0.25
"""How often a run in the foreground is looked at."""


async def come_up(runtime: Runtime, *, stay: bool) -> int:
    """The exit code."""
    with interruption() as told:
        began = time.monotonic()
        with patience("starting", sys.stderr):
            came_up = await _unless_told(told, runtime.up())
        if not came_up:
            _say("interrupted; all regions have stopped")
            return INTERRUPTED_EXIT_CODE
        status = await runtime.status()
        show_status(status)
        _say(f"ready after {time.monotonic() - began:.1f} s")
        lines = quickstart(runtime.topology.namespaces, status.regions)
        if lines:
            _say(f"\nPaste into Python (pip install pulsar-client):\n\n{lines}")
        if not stay:
            _say("`geoemu down` ends the run")
            return 0
        _say("Ctrl-C ends the run; so does `geoemu down` in another terminal")
        await _unless_told(told, _until_ended(runtime, status))
        if told.happened:
            await _go_down(runtime, told)
        _say(f"the run in {runtime.run_dir} has ended")
        return 0


async def _unless_told(told: Interruption, work: Coroutine[Any, Any, None]) -> bool:
    """Do `work`, which is cancelled when we are told to end: then False."""
    task = asyncio.create_task(work)
    telling = asyncio.create_task(told.wait())
    try:
        await asyncio.wait({task, telling}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return False
        await task
        return True
    finally:
        telling.cancel()


async def _until_ended(runtime: Runtime, status: RunStatus) -> None:
    """Says what happens to regions, until somebody ends the run from elsewhere."""
    states = _states(status)
    while not status.ended:
        await asyncio.sleep(LOOK_SECONDS)
        status = await runtime.status()
        for name, state in _states(status).items():
            if state != states[name] and not status.ended:
                _say(f"{time.strftime('%H:%M:%S')}  {name} is {state}")
        states = _states(status)
    # Whoever ended it also waits for its regions; this only fetches them, and is quick.
    await runtime.down()


async def _go_down(runtime: Runtime, told: Interruption) -> None:
    """In an orderly way; told a second time, at once."""
    _say("stopping; press Ctrl-C again to kill")
    down = asyncio.create_task(runtime.down())
    again = asyncio.create_task(told.wait(times=2))
    await asyncio.wait({down, again}, return_when=asyncio.FIRST_COMPLETED)
    if not down.done():
        await asyncio.gather(*(runtime.kill(name) for name in runtime.topology.region_names))
    again.cancel()
    await down


def _states(status: RunStatus) -> dict[str, RegionState]:
    return {region.name: region.state for region in status.regions}


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone; the regions still have to be stopped
        print(text, flush=True)
