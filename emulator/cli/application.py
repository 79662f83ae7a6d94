"""The Typer application, and functions that its verbs share: opening a run, beginning a fault, interruption."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from emulator import __version__
from emulator.runtimes.contract import Runtime
from emulator.runtimes.faults import Fault


class _Group(TyperGroup):
    """Reports an invalid value with the value. Typer prints only the rule, in the words of Pydantic."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as problem:
            if errors := getattr(problem.__cause__, "errors", None):
                first = errors()[0]
                rule = problem.message.removeprefix("Value error, ")
                value = repr(first["input"])[:100]
                problem.message = (
                    f"{value} {rule.removeprefix('Input ')}" if rule.startswith("Input ") else rule
                )
            raise


app = typer.Typer(
    cls=_Group,
    help="Emulate geo-replicated Apache Pulsar: start regions, make one fail, and get a verified report.",
    epilog="Example: geoemu up --detach; geoemu kill us-east; geoemu status; geoemu down\n\n"
    "Exit codes: 0 success or a valid verdict; 1 failure or an invalid verdict; 2 wrong usage or an "
    "unknown verdict; 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"geoemu {__version__}")
        raise typer.Exit


@app.callback()
def _geoemu(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def open_run_of(run_dir: Path | None) -> Runtime:
    """Open the run in a directory; None: the latest one. Raises Refused if there is none."""
    from emulator.runtimes.opening import open_run

    return open_run(run_dir)


def inject(run_dir: Path | None, fault_of: Callable[[Runtime], Fault]) -> None:
    """Begin a fault of a run and record it. Raises Refused if the run has ended, or for names that are not in it."""
    from emulator.runtimes.operator import begin_fault

    run = open_run_of(run_dir)
    asyncio.run(begin_fault(run, fault_of(run)))


INTERRUPTED_EXIT_CODE = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Counts the signals that request the end of this process."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Event()

    @property
    def happened(self) -> bool:
        return self._count > 0

    async def wait(self, times: int = 1) -> None:
        """Wait until the process received `times` signals."""
        while self._count < times:
            self._changed.clear()
            await self._changed.wait()

    def count(self) -> None:
        self._count += 1
        self._changed.set()


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Within the `with` block, count signals instead of ending this process."""
    loop = asyncio.get_running_loop()
    signals = Interruption()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.count)
    try:
        yield signals
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def done_or_interrupted(task: asyncio.Task[Any], signals: Interruption, times: int = 1) -> None:
    """Wait until the task is done or this process received `times` signals. The task is not cancelled."""
    interrupted = asyncio.create_task(signals.wait(times))
    try:
        await asyncio.wait({task, interrupted}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        interrupted.cancel()
