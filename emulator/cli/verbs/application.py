"""The command itself; each family of verbs adds its own."""

from __future__ import annotations

from typing import Annotated

import typer

from emulator import __version__

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
