"""`geoemu top`: the load of the regions and links of a run, live in the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emulator.cli.application import (
    INTERRUPTED_EXIT_CODE,
    Interruption,
    app,
    interruption,
    open_run_of,
)
from emulator.cli.options import AsJson, RunDir, seconds
from emulator.runtimes.contract import RunStatus, Runtime

if TYPE_CHECKING:
    from emulator.cli.region_load import RunLoad

QUIT_KEYS = frozenset("qQ\x03\x1b")

Once = Annotated[bool, typer.Option("--once", help="Print the present values and exit.")]


def _interval(text: str) -> float:
    given = seconds(text)
    if not 0.2 <= given <= 3600:
        raise typer.BadParameter(f"{text!r} must be between 200ms and 60m")
    return given


Interval = Annotated[
    float,
    typer.Option("--interval", metavar="TIME", parser=_interval, help="Time between two refreshes."),
]


@app.command(epilog="Example: geoemu top; for a script: geoemu top --once --json")
def top(
    once: Once = False,
    as_json: AsJson = False,
    interval: Interval = "1s",  # type: ignore[assignment]
    run_dir: RunDir = None,
) -> None:
    """Show the regions and links of a run live: state, message rates, backlog, lag, snapshot age. `q` or Ctrl-C quits.

    Without a terminal, the values are printed once; with --json, one object per line."""
    run = open_run_of(run_dir)
    if once or not (as_json or sys.stdout.isatty()):
        asyncio.run(_print_once(run, as_json))
        return
    raise typer.Exit(asyncio.run(_follow(run, as_json, interval)))


async def _print_once(run: Runtime, as_json: bool) -> None:
    status, load = await _read(run)
    if as_json:
        print(json.dumps(_as_json(status, load)))
        return
    from rich.console import Console

    from emulator.cli.load_table import as_tables

    console = Console(highlight=False)
    console.print(as_tables(load, _heading(status, live=False), console.width))


async def _follow(run: Runtime, as_json: bool, interval: float) -> int:
    """Show the values until a key, a signal or the end of the run. Return the exit code."""
    with interruption() as signals:
        if as_json:
            await _print_lines(run, interval, signals)
        else:
            await _show(run, interval, signals)
        return INTERRUPTED_EXIT_CODE if signals.happened else 0


async def _print_lines(run: Runtime, interval: float, signals: Interruption) -> None:
    while not signals.happened:
        status, load = await _read(run)
        print(json.dumps(_as_json(status, load)), flush=True)
        if status.ended:
            return
        await _wait(signals, interval)


async def _show(run: Runtime, interval: float, signals: Interruption) -> None:
    from rich.live import Live

    from emulator.cli.load_table import as_tables

    quitting = asyncio.Event()
    with _keys(quitting), Live(screen=True, auto_refresh=False) as live:
        while not quitting.is_set() and not signals.happened:
            status, load = await _read(run)
            live.update(as_tables(load, _heading(status), live.console.width), refresh=True)
            if status.ended:
                return
            await _wait(signals, interval, quitting)


async def _wait(signals: Interruption, interval: float, quitting: asyncio.Event | None = None) -> None:
    """Wait for the interval, or until a signal or the key that quits."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(signals.wait())]
    if quitting is not None:
        waits.append(asyncio.ensure_future(quitting.wait()))
    try:
        await asyncio.wait(waits, timeout=interval, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()


@contextmanager
def _keys(quitting: asyncio.Event) -> Iterator[None]:
    """Within the `with` block, read single keys of the terminal; a key that quits sets the event."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()

    def read() -> None:
        keys = os.read(number, 64).decode(errors="replace")
        if not keys:  # the terminal is closed
            loop.remove_reader(number)
        if not keys or QUIT_KEYS & set(keys):
            quitting.set()

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


async def _read(run: Runtime) -> tuple[RunStatus, RunLoad]:
    from emulator.cli.region_load import load_of

    status = await run.status()
    return status, await load_of(status)


def _heading(status: RunStatus, *, live: bool = True) -> str:
    state = "  (ended)" if status.ended else "  (q quits)" if live else ""
    return f"{time.strftime('%H:%M:%S')}  {status.run_dir}{state}"


def _as_json(status: RunStatus, load: RunLoad) -> dict[str, Any]:
    links = [asdict(one) for one in load.links]
    return {
        "run": str(status.run_dir),
        "at_ms": round(time.time() * 1000),
        "regions": [asdict(one) for one in load.regions],
        "links": [{"from": one.pop("source"), "to": one.pop("target"), **one} for one in links],
    }
