"""Verbs for a whole run: check its topology, start it, print its state and logs, end it."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from emulator import __version__
from emulator.cli.application import INTERRUPTED_EXIT_CODE, Interruption, app, interruption, open_run_of
from emulator.cli.curl import CurlRequest, print_curl
from emulator.cli.options import (
    DEFAULT_TOPOLOGY,
    AsCurl,
    AsJson,
    Insecure,
    Listen,
    LogFormat,
    NewRunDir,
    Region,
    RunDir,
    RuntimeName,
    TopologyFile,
)
from emulator.cli.output import show_status
from emulator.config.region import NamespaceConfig
from emulator.net.credentials import Credentials
from emulator.net.tls import Certificates
from emulator.runtimes.contract import RegionState, RegionStatus, RunStatus, Runtime
from emulator.runtimes.spinner import spinner


@app.command(epilog="Example: geoemu check -f topology.yaml")
def check(file: TopologyFile = DEFAULT_TOPOLOGY) -> None:
    """Validate a topology and print all errors."""
    from emulator.config.loading import load_topology

    topology = load_topology(file)
    print(
        f"{file} is fine: {_count(topology.regions, 'region')} in {_count(topology.clusters, 'cluster')}, "
        f"{_count(topology.links, 'link')}{'' if topology.shape == 'mesh' else f' of shape {topology.shape}'}, "
        f"{_count(topology.namespaces, 'namespace')}"
    )


@app.command(epilog="Example: geoemu up -f topology.yaml --detach")
def up(
    file: TopologyFile = DEFAULT_TOPOLOGY,
    runtime: RuntimeName = None,
    run_dir: NewRunDir = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help=("Return when all regions are ready; `geoemu down` ends the run.")
        ),
    ] = False,
    log_format: LogFormat = "text",
    listen: Listen = None,
    insecure: Insecure = False,
) -> None:
    """Start a new run with all regions of a topology. Ctrl-C ends it, unless detached."""
    from emulator.config.loading import load_topology
    from emulator.run.manifest import write_manifest
    from emulator.runtimes.listening import listening_on
    from emulator.runtimes.opening import create_run

    topology = listening_on(load_topology(file), listen)
    run = create_run(
        runtime or topology.runtime,
        topology,
        run_dir,
        detached=detach,
        log_format=log_format,
        insecure=insecure,
    )
    options = [] if file == DEFAULT_TOPOLOGY else ["--file", str(file)]
    options += [] if runtime is None else ["--runtime", runtime]
    options += [] if log_format == "text" else ["--log-format", log_format]
    options += [] if listen is None else ["--listen", listen]
    options += ["--insecure"] if insecure else []
    write_manifest(run.run_dir, __version__, shlex.join(["geoemu", "up", *options]))
    raise typer.Exit(asyncio.run(start_run(run, stay=not detach)))


@app.command(
    epilog="Example: geoemu render -o containers; docker compose -f containers/compose.yaml up --detach --wait"
)
def render(
    file: TopologyFile = DEFAULT_TOPOLOGY,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="A new folder that becomes a run directory."),
    ] = Path("containers"),
    log_format: LogFormat = "text",
    dashboards: Annotated[
        bool,
        typer.Option("--dashboards", help="Add Prometheus and Grafana, in the Compose profile `dashboards`."),
    ] = False,
    listen: Listen = None,
    insecure: Insecure = False,
) -> None:
    """Write the files that `up --runtime compose` would use, without starting anything."""
    from emulator.config.loading import load_topology
    from emulator.runtimes.compose.run_files import render as render_run
    from emulator.runtimes.listening import listening_on

    topology = listening_on(load_topology(file), listen)
    render_run(topology, output, log_format=log_format, dashboards=dashboards, insecure=insecure)
    print(
        f"{output}/compose.yaml is written: `docker compose --file {output}/compose.yaml up --detach --wait`"
    )
    if dashboards:
        print("`--profile dashboards` before `up` also starts dashboards: http://127.0.0.1:3000")


@app.command(epilog="Example: geoemu status --json")
def status(as_json: AsJson = False, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Show the present state of all regions and links, subscriptions that only some regions replicate, and regions
    that prevent snapshots of replicated subscriptions."""
    from emulator.runtimes.explain_queries import (
        BLOCKED,
        CONFLICTS,
        LAG,
        blocked_snapshots,
        replication_conflicts,
    )
    from emulator.runtimes.status_json import status_to_json

    if as_curl:
        for target in ("/geoemu/v1/status", CONFLICTS, BLOCKED, LAG):
            print_curl(run_dir, CurlRequest("GET", target))
        return
    found = asyncio.run(open_run_of(run_dir).status())
    if as_json:
        print(json.dumps(asyncio.run(status_to_json(found)), indent=1))
        return
    conflicts = asyncio.run(replication_conflicts(found))
    blocked = asyncio.run(blocked_snapshots(found))
    show_status(found, conflicts, blocked)


@app.command(epilog="Example: geoemu down")
def down(run_dir: RunDir = None) -> None:
    """Stop all regions gracefully and end the run. The run directory stays."""
    run = open_run_of(run_dir)

    async def end() -> str:
        had_ended = (await run.status()).ended
        await run.down()  # in an ended run, too: a user may have started containers since
        return "had already ended" if had_ended else "has ended"

    print(f"the run in {run.run_dir} {asyncio.run(end())}")


@app.command(epilog="Example: geoemu logs us-east -f")
def logs(
    region: Region,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the output until Ctrl-C.")] = False,
    run_dir: RunDir = None,
) -> None:
    """Print the output of a region."""

    async def print_lines() -> None:
        async for line in open_run_of(run_dir).logs(region, follow=follow):
            print(line, flush=follow)

    asyncio.run(print_lines())


def _count(things: tuple[object, ...], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


STATUS_POLL_SECONDS = 0.25


async def start_run(runtime: Runtime, *, stay: bool) -> int:
    """Start a run; with `stay`, follow it until a signal or another command ends it. Return the exit code."""
    with interruption() as signals:
        began = time.monotonic()
        with spinner("starting", sys.stderr):
            started = await _unless_interrupted(signals, runtime.up())
        if not started:
            _print_line("interrupted; all regions have stopped")
            return INTERRUPTED_EXIT_CODE
        status = await runtime.status()
        show_status(status)
        _print_line(f"ready after {time.monotonic() - began:.1f} s")
        lines = quickstart(runtime.topology.namespaces, status.regions)
        if lines:
            _print_line(f"\nPaste into Python (pip install pulsar-client):\n\n{lines}")
        if not stay:
            _print_line("`geoemu down` ends the run")
            return 0
        _print_line("Ctrl-C ends the run; so does `geoemu down` in another terminal")
        await _unless_interrupted(signals, _follow_until_ended(runtime, status))
        if signals.happened:
            await _stop_run(runtime, signals)
        _print_line(f"the run in {runtime.run_dir} has ended")
        return 0


async def _unless_interrupted(signals: Interruption, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`; return False if a signal cancelled it."""
    task = asyncio.create_task(work)
    interrupted = asyncio.create_task(signals.wait())
    try:
        await asyncio.wait({task, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return False
        await task
        return True
    finally:
        interrupted.cancel()


async def _follow_until_ended(runtime: Runtime, status: RunStatus) -> None:
    """Print the state changes of regions until another command ends the run, then wait for the end of all regions."""
    states = _states(status)
    while not status.ended:
        await asyncio.sleep(STATUS_POLL_SECONDS)
        status = await runtime.status()
        for name, state in _states(status).items():
            if state != states[name] and not status.ended:
                _print_line(f"{time.strftime('%H:%M:%S')}  {name} is {state}")
        states = _states(status)
    # The other command stops the regions; this also waits for them, and reaps the region processes.
    await runtime.down()


async def _stop_run(runtime: Runtime, signals: Interruption) -> None:
    """Stop all regions gracefully; kill them at a second signal."""
    _print_line("stopping; press Ctrl-C again to kill")
    down = asyncio.create_task(runtime.down())
    second_signal = asyncio.create_task(signals.wait(times=2))
    await asyncio.wait({down, second_signal}, return_when=asyncio.FIRST_COMPLETED)
    if not down.done():
        await asyncio.gather(*(runtime.kill(name) for name in runtime.topology.region_names))
    second_signal.cancel()
    await down


def _states(status: RunStatus) -> dict[str, RegionState]:
    return {region.name: region.state for region in status.regions}


def _print_line(text: str) -> None:
    with suppress(OSError):  # after the terminal is closed, the regions still have to be stopped
        print(text, flush=True)


RECEIVE_MS = 5_000


def quickstart(namespaces: Sequence[NamespaceConfig], regions: Sequence[RegionStatus]) -> str:
    """Return a Python program that publishes in the first region of a namespace and receives in its last one. It uses
    the namespace with the most regions; empty if no namespace has any."""
    urls = {region.name: region.service_url for region in regions}
    tls = next((region.tls for region in regions if region.tls), None)
    namespace = max(namespaces, key=lambda namespace: len(namespace.regions), default=None)
    if namespace is None or not namespace.regions:
        return ""
    first, last = namespace.regions[0], namespace.regions[-1]
    credentials = next((region.credentials for region in regions if region.credentials), None)
    login = "" if credentials is None else _authentication(credentials, tls)
    security = ("" if tls is None else ", **tls") + (", authentication=login" if login else "")
    return (
        "import pulsar\n"
        + ("" if tls is None else _tls_arguments(tls))
        + login
        + f'topic = "persistent://{namespace.name}/hello"\n'
        f'here = pulsar.Client("{urls[first]}"{security})  # {first}\n'
        f'there = pulsar.Client("{urls[last]}"{security})  # {last}\n'
        'consumer = there.subscribe(topic, "me", initial_position=pulsar.InitialPosition.Earliest)\n'
        'here.create_producer(topic).send(b"hello, world")\n'
        f"print(consumer.receive(timeout_millis={RECEIVE_MS}).data())\n"
    )


def _authentication(credentials: Credentials, tls: Certificates | None) -> str:
    """Return the line of Python that defines the authentication of clients; it reads the files of the credentials."""
    if credentials.token:
        return f"login = pulsar.AuthenticationToken(lambda: open({credentials.token!r}).read().strip())\n"
    if credentials.basic:
        read = f"open({credentials.basic!r}).read().strip().split(':', 1)"
        return f"login = pulsar.AuthenticationBasic(*{read})\n"
    if credentials.tls and tls is not None:
        return f"login = pulsar.AuthenticationTLS({tls.certificate!r}, {tls.key!r})\n"
    return ""


def _tls_arguments(tls: Certificates) -> str:
    """Return the line of Python that defines the arguments of clients with TLS."""
    arguments: dict[str, object] = {"tls_trust_certs_file_path": tls.authority, "tls_validate_hostname": True}
    if tls.certificate:
        arguments["tls_certificate_file_path"] = tls.certificate
        arguments["tls_private_key_file_path"] = tls.key
    return f"tls = {arguments!r}\n"
