"""`geoemu tap` and `geoemu seal`: record the operations of clients, and close the histories of ended programs."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from emulator.cli.application import app, interruption, open_run_of
from emulator.cli.options import RunDir
from emulator.cli.output import show_table
from emulator.runtimes.contract import Runtime
from emulator.runtimes.operator import refuse_ended

POLL_SECONDS = 0.25


@app.command(epilog="Example: geoemu tap; then start the service with the service URLs that it prints")
def tap(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the history file.")] = "wire",
    run_dir: RunDir = None,
) -> None:
    """Record clients of any language: open a proxy port in front of each region until Ctrl-C."""
    asyncio.run(tap_run(open_run_of(run_dir), name))


def _complete_actor(context: typer.Context, incomplete: str) -> list[str]:
    from emulator.recording.journal import open_histories

    return open_histories(context.params.get("run_dir"), incomplete)


@app.command(epilog="Example: geoemu seal shop")
def seal(
    actors: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="History files, without their suffix.", autocompletion=_complete_actor
        ),
    ],
    run_dir: RunDir = None,
) -> None:
    """Close the history of programs that will not come back; their pending operations stay unknown."""
    from emulator.recording.journal import seal_actors

    for sentence in seal_actors(run_dir, actors):
        print(sentence)


async def tap_run(run: Runtime, name: str) -> None:
    """Record clients with a tap until this process is interrupted or the run ends. Raises Refused if it has ended."""
    from emulator.recording.tap.tap import Tap, open_tap_history

    status = await run.status()
    refuse_ended(status)
    with interruption() as signals:
        tap = Tap(open_tap_history(run.run_dir, name))
        try:
            opened = await tap.open(status.regions)
            show_table(("region", "clients"), [(one.name, one.service_url) for one in opened])
            print(
                f"operations are recorded in {run.run_dir}/history/{name}.jsonl; Ctrl-C ends the tap",
                flush=True,
            )
            while not signals.happened and not (await run.status()).ended:
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await tap.close()
            tap.history.close()
