"""`geoemu pulsar-admin`."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from emulator.cli.application import app, open_run_of, print_curl
from emulator.cli.curl import CurlRequest
from emulator.cli.options import AsCurl, RunDir
from emulator.errors import RuntimeFailure
from emulator.runtimes.admin_client import NoHttpResponse, call
from emulator.runtimes.contract import Runtime

Region = Annotated[str, typer.Argument(metavar="REGION", help="The region to query.")]
Arguments = Annotated[
    list[str],
    typer.Argument(metavar="-- ARGUMENTS...", help="Arguments of pulsar-admin, such as topics stats orders."),
]


@app.command(name="pulsar-admin", epilog="Example: geoemu pulsar-admin us-east -- topics stats orders")
def pulsar_admin(region: Region, arguments: Arguments, run_dir: RunDir = None) -> None:
    """Run Java's pulsar-admin against a region. Needs Java, and Maven the first time; any HTTP client works
    as well: docs/ADMIN.md lists the paths."""
    from emulator.cli.pulsar_admin import run_against

    raise typer.Exit(run_against(asyncio.run(open_run_of(run_dir).status()), region, arguments))


family = typer.Typer(no_args_is_help=True, help="List, show and delete the transaction keys of a region.")
app.add_typer(family, name="transactions")

OfRegion = Annotated[str, typer.Argument(metavar="REGION", help="A region of the run; keys are per region.")]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A transaction key, or OWNER&KEY if several owners have it.")
]


@family.command("list-transaction-keys", epilog="Example: geoemu transactions list-transaction-keys us-east")
def list_keys(region: OfRegion, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """List all transaction keys of a region, one per line."""
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
    if as_curl:
        print_curl(run_dir, request_of("GET", key), [region])
        return
    print(json.dumps(asyncio.run(ask(open_run_of(run_dir), region, "GET", key)), indent=1))


@family.command(
    "delete-transaction-key", epilog="Example: geoemu transactions delete-transaction-key us-east task-1"
)
def delete_key(region: OfRegion, key: Key, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Delete a key. Its open transaction is aborted and its connection closed; its epoch is kept."""
    if as_curl:
        print_curl(run_dir, request_of("DELETE", key), [region])
        return
    asyncio.run(ask(open_run_of(run_dir), region, "DELETE", key))


KEYS = "/admin/v2/transactions/transaction-keys"
ANSWER_SECONDS = 15.0
"""A key that is deleted waits until its transaction is aborted."""


def request_of(method: str, key: str | None) -> CurlRequest:
    """What the region is asked."""
    return CurlRequest(method, KEYS if key is None else f"{KEYS}/{quote(key, safe='')}")


async def ask(run: Runtime, region: str, method: str, key: str | None) -> Any:
    """The region's answer; None where it has nothing to say. ConfigurationError for a region that is not in the run,
    RuntimeFailure when the region refuses or gives no answer."""
    run.topology.region(region)
    status = await run.status()
    (found,) = [one for one in status.regions if one.name == region]
    url = urlsplit(found.admin_url)
    target = request_of(method, key).target
    try:
        if url.hostname is None or url.port is None:
            raise NoHttpResponse("it has no address")
        answer = await call(url.hostname, url.port, method, target, seconds=ANSWER_SECONDS)
    except NoHttpResponse as silence:
        raise RuntimeFailure(f"region {region} is {found.state} and does not respond ({silence})") from None
    if answer.status >= 400:
        raise RuntimeFailure(f"region {region}: {answer.json()['reason']}")
    return answer.json() if answer.body else None
