"""The command itself; each family of verbs adds its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator import __version__
from emulator.runtimes.contract import Runtime

if TYPE_CHECKING:
    from emulator.cli.curl import CurlRequest


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
    """The run that a verb means. Refused if there is none."""
    from emulator.runtimes.opening import open_run

    return open_run(run_dir)


def act(run_dir: Path | None, verb: str, change: Change, **fact: str) -> None:
    """Do it, and write down as a fact of the run's history that it was done: the verdict takes it into account."""
    from emulator.runtimes.opening import operator_history

    run = open_run_of(run_dir)

    async def perform() -> None:
        from emulator.cli.preconditions import refuse_ended

        refuse_ended(await run.status())
        await change(run)

    asyncio.run(perform())
    with closing(operator_history(run)) as history:
        history.write(verb, "fact", **fact)


def print_curl(run_dir: Path | None, request: CurlRequest, regions: Sequence[str] | None = None) -> None:
    """Print the curl commands that are equivalent, a line for each region."""
    from emulator.cli.curl import as_curls

    for line in asyncio.run(as_curls(open_run_of(run_dir), request, regions)):
        print(line)
