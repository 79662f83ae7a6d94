"""`geoemu dashboard`: a web page that shows a run live and injects faults into it."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from emulator.cli.application import app, interruption, open_run_of
from emulator.cli.options import RunDir
from emulator.errors import Refused

if TYPE_CHECKING:
    from emulator.runtimes.contract import Runtime


@app.command(epilog="Example: geoemu dashboard --open")
def dashboard(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1. Default: a free one.")
    ] = 0,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the default browser.")
    ] = False,
    run_dir: RunDir = None,
) -> None:
    """Serve a web page of the run, until Ctrl-C: a live map with the lag of links, topics, subscriptions and events.
    Faults that are injected there are recorded as those of this command line."""
    asyncio.run(_serve(open_run_of(run_dir), port, open_page))


async def _serve(run: Runtime, port: int, open_page: bool) -> None:
    from emulator.dashboard.server import DashboardServer

    server = DashboardServer(run)
    try:
        url = await server.start(port)
    except OSError as failure:
        raise Refused(f"port {port} is not available ({failure.strerror}): name another --port") from None
    with interruption() as signals:
        print(f"{url} shows the run in {run.run_dir}; Ctrl-C ends the page, not the run", flush=True)
        if open_page:
            await asyncio.to_thread(webbrowser.open, url)
        await signals.wait()
        await server.close()
