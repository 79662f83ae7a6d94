"""The verb `region remove`, which takes a region that will not return out of a run's topology for good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.failover import entry
from emulator.cli.options import AsJson, Region, RunDir
from emulator.runtimes.operator import refuse_ended

if TYPE_CHECKING:
    from emulator.scenarios.region_removal import RegionRemoval

region_app = typer.Typer(help="Remove a region that will not return.", no_args_is_help=True)
app.add_typer(region_app, name="region")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@region_app.callback()
def _region() -> None: ...


@region_app.command("remove", epilog="Example: geoemu lose us-east; geoemu region remove us-east")
def remove(region: Region, yes: Yes = False, as_json: AsJson = False, run_dir: RunDir = None) -> None:
    """Remove a region that will not return from all namespaces and topics, after printing what may be lost.
    The other regions refuse it if it returns."""
    from emulator.runtimes.opening import operator_history
    from emulator.scenarios.region_removal import preview_in_run, remove_in_run

    run = open_run_of(run_dir)

    async def preview() -> tuple[RegionRemoval, bool]:
        status = await run.status()
        refuse_ended(status)
        is_lost = any(one.name == region and one.state == "lost" for one in status.regions)
        return await preview_in_run(run, region), is_lost

    removal, is_lost = asyncio.run(preview())
    print(json.dumps(removal.to_json(), indent=1) if as_json else removal_as_text(removal), flush=True)
    if not yes:
        typer.confirm(f"remove {region} from all namespaces and topics?", abort=True, err=as_json)

    async def perform() -> dict[str, int]:
        if not is_lost:
            await run.lose(region)
        return await remove_in_run(run, removal)

    changed = asyncio.run(perform())
    if not is_lost:
        with closing(operator_history(run)) as history:
            history.write("lose", "fact", region=region)
    if not as_json:
        print(
            f"{region} is removed: {sum(changed.values())} policies of {', '.join(changed)} no longer name it"
        )


def removal_as_text(removal: RegionRemoval) -> str:
    """Return what may be lost with a region, in lines of at most 80 columns."""
    return "\n".join([f"before {removal.region} is removed:", *_lines(removal)])


def _lines(removal: RegionRemoval) -> Iterator[str]:
    name = removal.region
    for one in removal.topics:
        yield from entry("topic", one.topic)
        yield from entry("", _newest(name, one.newest))
        for region, position in one.lacking.items():
            have = f"has its entries up to {position}" if position else "has none of its entries"
            yield from entry("", f"{region} {have}, and will not receive the others")
    yield from entry(
        "lost", f"every entry of {name} that no other region received; the others do not know how many"
    )
    yield from entry("lost", f"transactions open in {name}: no other region has their messages")
    for namespace in removal.exclusive_home_of:
        yield from entry(
            "blocked", f"{namespace} may be published to only in {name}, until exclusive_home is changed"
        )
    for path in removal.policies:
        yield from entry("changes", path)
    for region in removal.silent:
        yield from entry("unknown", f"{region} does not respond: what it received is unknown")
    for cluster in removal.missed_clusters:
        yield from entry("missed", f"no region of {cluster} responds: repeat the command when one is back")


def _newest(region: str, newest: str | None) -> str:
    if newest is None:
        return f"no region received an entry of {region}"
    return f"entries of {region} after {newest} are stored in no region that responds"
