"""The Typer application, and functions that its verbs share: opening a run, preconditions, interruption."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from emulator import __version__
from emulator.errors import Refused
from emulator.runtimes.contract import RegionState, RunStatus, Runtime
from emulator.runtimes.faults import Fault

app = typer.Typer(
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


Change = Callable[[Runtime], Awaitable[None]]


def open_run_of(run_dir: Path | None) -> Runtime:
    """Open the run in a directory; None: the latest one. Raises Refused if there is none."""
    from emulator.runtimes.opening import open_run

    return open_run(run_dir)


def act(run_dir: Path | None, verb: str, change: Change, **fact: str) -> None:
    """Execute a change of a run, then record it as a fact in the operator's history, which the verdict takes into
    account. Raises Refused if the run has ended."""
    from emulator.runtimes.opening import operator_history

    run = open_run_of(run_dir)

    async def perform() -> None:
        refuse_ended(await run.status())
        await change(run)

    asyncio.run(perform())
    with closing(operator_history(run)) as history:
        history.write(verb, "fact", **fact)


def inject(run_dir: Path | None, fault_of: Callable[[Runtime], Fault]) -> None:
    """Begin a fault of a run, then record it in the operator's history. Raises Refused if the run has ended, or for
    names that are not in it."""
    from emulator.runtimes.opening import operator_history

    run = open_run_of(run_dir)
    fault = fault_of(run)

    async def perform() -> None:
        refuse_ended(await run.status())
        await fault.begin(run)

    asyncio.run(perform())
    with closing(operator_history(run)) as history:
        for fact in fault.facts():
            history.write(fact.op, "fact", **fact.fields())


_UNCHANGED_STATES: dict[str, frozenset[RegionState]] = {
    "kill": frozenset({"killed", "lost", "stopped"}),
    "lose": frozenset({"lost"}),
    "power_loss": frozenset({"killed", "lost", "stopped"}),
    "stop": frozenset({"stopped"}),
    "start": frozenset({"running"}),
    "pause": frozenset({"paused"}),
    "resume": frozenset({"running"}),
}
"""Verb -> the states of a region that it does not change."""
LOST: Final = "lost; other regions wait for it while replication_clusters name it"
"""Description of a region that `lose` killed, in the output of verbs."""
_ENDED_BY_FAULT: frozenset[RegionState] = frozenset({"killed", "lost"})


def refuse_ended(status: RunStatus) -> None:
    if status.ended:
        raise Refused(f"the run in {status.run_dir} has ended: start a new one with `geoemu up`")


def reason_unchanged(verb: str, region: str, state: RegionState) -> str | None:
    """Return why `verb` would not change a region in `state`; None: it would. Raises Refused for a stop of a killed or
    lost region.

    Runtimes accept verbs that change nothing, but the user must see that, and the history must not contain a fault that
    did not happen.
    """
    if verb == "stop" and state in _ENDED_BY_FAULT:
        raise Refused(f"{region} is {state} and cannot be stopped; `geoemu start {region}` starts it again")
    return (
        f"{region} is already {state}: nothing was done" if state in _UNCHANGED_STATES.get(verb, ()) else None
    )


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
