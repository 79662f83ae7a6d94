"""`geoemu transactions`: the transaction keys of a region, which released tools cannot show."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from emulator.cli.options import AsCurl, RunDir
from emulator.cli.verbs.acting import open_run_of, print_curl
from emulator.cli.verbs.application import app

family = typer.Typer(no_args_is_help=True, help="List, show and delete the transaction keys of a region.")
app.add_typer(family, name="transactions")

OfRegion = Annotated[str, typer.Argument(metavar="REGION", help="A region of the run; keys are per region.")]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A transaction key, or OWNER&KEY if several owners have it.")
]


@family.command("list-transaction-keys", epilog="Example: geoemu transactions list-transaction-keys us-east")
def list_keys(region: OfRegion, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """List all transaction keys of a region, one per line."""
    from emulator.cli.transaction_keys import ask, request_of

    if as_curl:
        print_curl(run_dir, request_of("GET", None), [region])
        return
    for name in asyncio.run(ask(open_run_of(run_dir), region, "GET", None)):
        print(name)


@family.command(
    "get-transaction-key", epilog="Example: geoemu transactions get-transaction-key us-east task-1"
)
def get_key(region: OfRegion, key: Key, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Print a key's epoch, its last client and its transactions with their status, as JSON."""
    from emulator.cli.transaction_keys import ask, request_of

    if as_curl:
        print_curl(run_dir, request_of("GET", key), [region])
        return
    print(json.dumps(asyncio.run(ask(open_run_of(run_dir), region, "GET", key)), indent=1))


@family.command(
    "delete-transaction-key", epilog="Example: geoemu transactions delete-transaction-key us-east task-1"
)
def delete_key(region: OfRegion, key: Key, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Delete a key. Its open transaction is aborted and its connection closed; its epoch is kept."""
    from emulator.cli.transaction_keys import ask, request_of

    if as_curl:
        print_curl(run_dir, request_of("DELETE", key), [region])
        return
    asyncio.run(ask(open_run_of(run_dir), region, "DELETE", key))
