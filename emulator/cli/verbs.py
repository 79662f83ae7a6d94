"""Every verb of the command line: what it takes and what it says. Whatever takes work is elsewhere, and imported
only by the verb that needs it."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emulator import __version__
from emulator.cli.options import (
    DEFAULT_TOPOLOGY,
    AsJson,
    Cluster,
    EngineName,
    Expect,
    ExplainedKind,
    ExplainedName,
    Followed,
    JitterMilliseconds,
    JunitFile,
    LinkEnd,
    MarkdownFile,
    Milliseconds,
    NewRunDir,
    OneWay,
    OnlyRegion,
    OptionalLinkEnd,
    OptionalOtherLinkEnd,
    OtherLinkEnd,
    Region,
    Regions,
    ReportDir,
    RunDir,
    RuntimeName,
    TopologyFile,
    seconds,
)
from emulator.errors import RuntimeFailure
from emulator.runtimes.contract import Runtime

if TYPE_CHECKING:
    from emulator.history import HistoryWriter

app = typer.Typer(
    help="Emulate geo-replicated Apache Pulsar: start regions, lose one on purpose, read a verified report.",
    epilog="Example: geoemu up --detach; geoemu kill us-east; geoemu status; geoemu down\n\n"
    "Exit codes: 0 done, or the verdict is valid; 1 it failed, or invalid; 2 it cannot be done as typed or "
    "written, or unknown; 130 interrupted.",
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


# --- runs -----------------------------------------------------------------------------------------------


@app.command(epilog="Example: geoemu check -f topology.yaml")
def check(file: TopologyFile = DEFAULT_TOPOLOGY) -> None:
    """Tell everything that is wrong with a topology, or that it is fine."""
    from emulator.topology_file import load_topology

    topology = load_topology(file)
    print(
        f"{file} is fine: {_count(topology.regions, 'region')} in {_count(topology.clusters, 'cluster')}, "
        f"{_count(topology.links, 'link')}, {_count(topology.namespaces, 'namespace')}"
    )


@app.command(epilog="Example: geoemu up -f topology.yaml --detach")
def up(
    file: TopologyFile = DEFAULT_TOPOLOGY,
    runtime: RuntimeName = None,
    run_dir: NewRunDir = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when all is ready; `geoemu down` ends the run.")
    ] = False,
) -> None:
    """Start a new run: all regions of a topology. Ctrl-C ends it, unless detached."""
    from emulator.cli.session import come_up
    from emulator.made_by import note_made_by
    from emulator.runtimes.opening import create_run
    from emulator.topology_file import load_topology

    topology = load_topology(file)
    run = create_run(runtime or topology.runtime, topology, run_dir, detached=detach)
    given = [] if file == DEFAULT_TOPOLOGY else ["--file", str(file)]
    given += [] if runtime is None else ["--runtime", runtime]
    note_made_by(run.run_dir, __version__, shlex.join(["geoemu", "up", *given]))
    raise typer.Exit(asyncio.run(come_up(run, stay=not detach)))


@app.command(
    epilog="Example: geoemu render -o containers; docker compose -f containers/compose.yaml up --detach --wait"
)
def render(
    file: TopologyFile = DEFAULT_TOPOLOGY,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="A new folder, which becomes a run directory."),
    ] = Path("containers"),
) -> None:
    """Write what `up --runtime compose` would start, and start nothing: you can read, change and start it."""
    from emulator.runtimes.compose import render as render_run
    from emulator.topology_file import load_topology

    render_run(load_topology(file), output)
    print(
        f"{output}/compose.yaml is written: `docker compose --file {output}/compose.yaml up --detach --wait`"
    )


@app.command(epilog="Example: geoemu status --json")
def status(as_json: AsJson = False, run_dir: RunDir = None) -> None:
    """Show every region and every link as they are now."""
    from emulator.cli.output import show_status, status_as_json

    found = asyncio.run(_open(run_dir).status())
    if as_json:
        print(json.dumps(status_as_json(found), indent=1))
    else:
        show_status(found)


@app.command(epilog="Example: geoemu down")
def down(run_dir: RunDir = None) -> None:
    """Stop all regions in an orderly way and end the run. What it left stays in the run directory."""
    run = _open(run_dir)

    async def end() -> str:
        was_over = (await run.status()).ended
        await run.down()  # all the same: what somebody started by hand ends, too
        return "had ended already" if was_over else "has ended"

    print(f"the run in {run.run_dir} {asyncio.run(end())}")


@app.command(epilog="Example: geoemu logs us-east -f")
def logs(
    region: Region,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C.")] = False,
    run_dir: RunDir = None,
) -> None:
    """Print what a region printed."""

    async def print_lines() -> None:
        async for line in _open(run_dir).logs(region, follow=follow):
            print(line, flush=follow)

    asyncio.run(print_lines())


# --- one region -----------------------------------------------------------------------------------------


@app.command(
    epilog="Example: geoemu kill us-east; several: geoemu kill us-east us-west, or --cluster americas"
)
def kill(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Kill regions (kill -9): what they had not written down is gone."""
    _change_regions(run_dir, regions, cluster, "kill", lambda run, region: run.kill(region), "is killed")


@app.command(epilog="Example: geoemu lose us-east; or a whole cluster: geoemu lose --cluster americas")
def lose(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Kill regions that never come back: nobody waits for them, and the verdict tells what the loss cost."""
    _change_regions(run_dir, regions, cluster, "lose", lambda run, region: run.lose(region), "is lost")


@app.command(epilog="Example: geoemu stop us-east")
def stop(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Stop regions in an orderly way."""
    _change_regions(run_dir, regions, cluster, "stop", lambda run, region: run.stop(region), "is stopped")


@app.command(epilog="Example: geoemu start us-east")
def start(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Start killed, lost or stopped regions on what they had stored, and wait until they are ready."""
    _change_regions(run_dir, regions, cluster, "start", lambda run, region: run.start(region), "is ready")


@app.command(epilog="Example: geoemu restart us-east")
def restart(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Stop regions in an orderly way, start them, and wait until they are ready."""
    _change_regions(
        run_dir, regions, cluster, "restart", lambda run, region: run.restart(region), "is ready again"
    )


@app.command(epilog="Example: geoemu pause us-east")
def pause(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Freeze regions: they keep their connections and answer nothing."""
    _change_regions(run_dir, regions, cluster, "pause", lambda run, region: run.pause(region), "is paused")


@app.command(epilog="Example: geoemu resume us-east")
def resume(regions: Regions = None, cluster: Cluster = None, run_dir: RunDir = None) -> None:
    """Thaw paused regions and wait until they are ready."""
    _change_regions(
        run_dir, regions, cluster, "resume", lambda run, region: run.resume(region), "is ready again"
    )


# --- links ----------------------------------------------------------------------------------------------


@app.command(epilog="Example: geoemu cut us-east eu-central --one-way")
def cut(a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, run_dir: RunDir = None) -> None:
    """Let nothing pass between two regions: connecting fails, and who is connected hears nothing any more."""
    _change_link(run_dir, (a, b), one_way, "cut", lambda run: run.cut(a, b, one_way=one_way), "is cut")


@app.command(epilog="Example: geoemu hold us-east eu-central")
def hold(a: LinkEnd, b: OtherLinkEnd, one_way: OneWay = False, run_dir: RunDir = None) -> None:
    """Let what two regions send each other wait; `heal` delivers it in order."""
    _change_link(run_dir, (a, b), one_way, "hold", lambda run: run.hold(a, b, one_way=one_way), "is held")


@app.command(epilog="Example: geoemu latency us-east eu-central 200ms --jitter 20ms")
def latency(
    a: LinkEnd,
    b: OtherLinkEnd,
    time: Milliseconds,
    jitter: JitterMilliseconds = None,
    one_way: OneWay = False,
    run_dir: RunDir = None,
) -> None:
    """Let what two regions send each other take so long; `heal` goes back to what the topology declares."""
    from emulator.history import latency_detail

    _act(
        run_dir,
        "latency",
        lambda run: run.latency(a, b, time, jitter_ms=jitter, one_way=one_way),
        region=a,
        other_region=b,
        detail=latency_detail(time, one_way=one_way),
    )
    print(f"{a} {'->' if one_way else '<->'} {b} takes {time:g} ms")


@app.command(epilog="Example: geoemu heal us-east eu-central; or everything: geoemu heal")
def heal(a: OptionalLinkEnd = None, b: OptionalOtherLinkEnd = None, run_dir: RunDir = None) -> None:
    """Undo `cut`, `hold` and `latency` between two regions, or everywhere, and wait until regions are linked again."""
    if a is None or b is None:
        if a is not None:
            raise typer.BadParameter("name two regions, or none to heal everything", param_hint="B")
        _act(run_dir, "heal", lambda run: run.heal(), detail="everything")
        print("all links are up")
    else:
        _change_link(run_dir, (a, b), False, "heal", lambda run: run.heal(a, b), "is up")


# --- why ------------------------------------------------------------------------------------------------


@app.command(epilog="Example: geoemu explain replication orders eu-central")
def explain(
    kind: ExplainedKind,
    name: ExplainedName,
    region: OnlyRegion = None,
    as_json: AsJson = False,
    run_dir: RunDir = None,
) -> None:
    """Ask the regions why something is as it is: what it is, since when, why, and what it waits for."""
    from emulator.cli.explain import as_json as answers_as_json
    from emulator.cli.explain import as_text, ask_regions

    said = asyncio.run(ask_regions(_open(run_dir), kind, name, region))
    print(answers_as_json(kind, name, said) if as_json else as_text(said))
    raise typer.Exit(0 if any(one.explanation for one in said) else 1)


def _complete_actor(context: typer.Context, incomplete: str) -> list[str]:
    from emulator.recording.sealing import unsealed

    return unsealed(context.params.get("run_dir"), incomplete)


# --- verdicts -------------------------------------------------------------------------------------------


@app.command(epilog="Example: geoemu run region-failover --report report")
def run(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO", help="A scenario file, or the name of one that geoemu comes with."
        ),
    ],
    file: TopologyFile = DEFAULT_TOPOLOGY,
    runtime: RuntimeName = None,
    run_dir: NewRunDir = None,
    report: ReportDir = None,
    as_json: AsJson = False,
    expect: Expect = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    engine: EngineName = None,
) -> None:
    """Start a topology, play a scenario on it, and tell the verdict.

    Exit code 0 valid, 1 invalid or a limit was missed, 2 unknown."""
    from emulator.cli.drill import Drill

    drill = Drill(scenario, file, runtime, run_dir, report, as_json, expect, junit, markdown, engine)
    raise typer.Exit(asyncio.run(drill.perform()))


@app.command(epilog="Example: geoemu verify .geoemu/runs/1 --json")
def verify(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="RUN_DIR", help="The run directory. Default: the latest run of this folder."),
    ] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", metavar="DIR", help="The same.")] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="A Spark cluster. Default: this machine.")
    ] = None,
    in_network: Annotated[
        bool,
        typer.Option("--in-network", help="In a container beside the regions; this machine needs no Java."),
    ] = False,
    report: ReportDir = None,
    as_json: AsJson = False,
    expect: Expect = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    engine: EngineName = None,
    message: Followed = None,
) -> None:
    """Check what a run stored against what its clients were told. Exit code 0 valid, 1 invalid or a limit was
    missed, 2 unknown."""
    from emulator.cli.verifier import in_network_command, verify_command, verify_now
    from emulator.runtimes.run_directory import find_run

    if directory and run_dir and directory != run_dir:
        raise typer.BadParameter("name one run directory only", param_hint="--run-dir")
    if master is not None and engine == "embedded":
        raise typer.BadParameter("a cluster is Spark's", param_hint="--engine")
    path = directory or run_dir or find_run(None).path
    if in_network:
        here_only = {
            "--master": master,
            "--report": report,
            "--expect": expect,
            "--junit": junit,
            "--markdown": markdown,
            "--engine": engine,
            "--message": message,
        }
        if unfit := next((option for option, given in here_only.items() if given), None):
            raise typer.BadParameter(f"{unfit} is for a verdict on this machine", param_hint="--in-network")
        command = in_network_command(path.resolve(), as_json=as_json)
    else:
        command = verify_command(
            path,
            master=master,
            engine=engine,
            report=report,
            as_json=as_json,
            expect=expect,
            junit=junit,
            markdown=markdown,
            messages=message or (),
        )
    verdict = verify_now(command)
    print(verdict.output, end="")
    raise typer.Exit(verdict.exit_code)


@app.command(epilog="Example: geoemu tap; then start the service with the service URLs that it prints")
def tap(
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Of the history file that it writes.")
    ] = "wire",
    run_dir: RunDir = None,
) -> None:
    """Record clients of any language on the wire: opens a port in front of each region's, until Ctrl-C."""
    from emulator.cli.tap import tap_run

    asyncio.run(tap_run(_open(run_dir), name))


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
    """Close the history of programs that were killed: you say that they are gone, and what they had asked for without
    being told stays unknown."""
    from emulator.recording.sealing import seal_actors

    for sentence in seal_actors(run_dir, actors):
        print(sentence)


@app.command(epilog="Example: geoemu simulate region-failover --seeds 50 --jobs 2")
def simulate(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A scenario, as for `run`; or swarm (anything), drill (one kill, one cut), quiet.",
        ),
    ] = "swarm",
    file: TopologyFile = DEFAULT_TOPOLOGY,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", min=1, help="How many. Default: 100, or the time budget."),
    ] = None,
    first: Annotated[int, typer.Option("--from", metavar="S", min=0, help="The first seed.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", metavar="J", min=1, help="Processes to use.")] = 1,
    time_budget: Annotated[
        float | None,
        typer.Option("--time-budget", metavar="TIME", parser=seconds, help="Stop after so long: 90s, or 90."),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Make the first seed that fails as small as it can be.")
    ] = False,
    without: Annotated[
        str | None,
        typer.Option("--without", metavar="SAFEGUARD", help="Take a safeguard away (docs/INVARIANTS.md)."),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="Where the first seed that fails is kept. Default: a new one in .geoemu/simulated.",
        ),
    ] = None,
) -> None:
    """Step the brokers through faulty worlds under virtual time. Exit code 0 no seed failed, 1 one did."""
    from emulator.cli.interruption import INTERRUPTED_EXIT_CODE
    from emulator.cli.simulate import Simulate

    if seeds is None and time_budget is None:
        seeds = 100
    try:
        exit_code = Simulate(
            subject, file, seeds, first, jobs, time_budget, shrink, without, run_dir
        ).perform()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    raise typer.Exit(exit_code)


# --- what verbs share -----------------------------------------------------------------------------------

_Change = Callable[[Runtime], Awaitable[None]]


def _open(run_dir: Path | None) -> Runtime:
    from emulator.runtimes.opening import open_run

    return open_run(run_dir)


def _change_regions(
    run_dir: Path | None,
    regions: list[str] | None,
    cluster: str | None,
    verb: str,
    change: Callable[[Runtime, str], Awaitable[None]],
    outcome: str,
) -> None:
    """The same for each of them at once. A region that is not in the run is refused before anything is done. One that
    is gone already is left alone, and what it is is said: "killed" would take a loss back in the history."""
    from emulator.cli.regions import regions_meant
    from emulator.runtimes.operator import operator_history

    if bool(regions) == (cluster is not None):
        raise typer.BadParameter("name one or more regions, or --cluster and none", param_hint="REGION")
    run = _open(run_dir)
    meant = regions_meant(run.topology, regions, cluster)

    async def one(history: HistoryWriter, region: str) -> None:
        await change(run, region)
        history.write(verb, "fact", region=region)
        print(f"{region} {outcome}")

    async def all_of_them() -> None:
        left = await _left_to_do(run, verb, meant)
        if not left:
            return
        with closing(operator_history(run)) as history:
            outcomes = await asyncio.gather(
                *(one(history, region) for region in left), return_exceptions=True
            )
        failures = [failure for failure in outcomes if isinstance(failure, BaseException)]
        for failure in failures:
            if not isinstance(failure, RuntimeFailure):
                raise failure
        if failures:
            raise failures[0] if len(failures) == 1 else RuntimeFailure("\n".join(map(str, failures)))

    asyncio.run(all_of_them())


async def _left_to_do(run: Runtime, verb: str, regions: list[str]) -> list[str]:
    """The regions that `verb` changes; of the others it says why not."""
    from emulator.cli.deeds import nothing_to_do, refuse_ended

    status = await run.status()
    refuse_ended(status)
    states = {region.name: region.state for region in status.regions}
    reasons = {region: nothing_to_do(verb, region, states[region]) for region in regions}
    for reason in filter(None, reasons.values()):
        print(reason)
    return [region for region in regions if not reasons[region]]


def _change_link(
    run_dir: Path | None, ends: tuple[str, str], one_way: bool, verb: str, change: _Change, outcome: str
) -> None:
    way = "one way" if one_way else "both ways"
    _act(run_dir, verb, change, region=ends[0], other_region=ends[1], detail=way)
    print(f"{ends[0]} {'->' if one_way else '<->'} {ends[1]} {outcome}")


def _act(run_dir: Path | None, verb: str, change: _Change, **fact: str) -> None:
    """Do it, and write down as a fact of the run's history that it was done: the verdict takes it into account."""
    from emulator.runtimes.operator import operator_history

    run = _open(run_dir)

    async def act() -> None:
        from emulator.cli.deeds import refuse_ended

        refuse_ended(await run.status())
        await change(run)

    asyncio.run(act())
    with closing(operator_history(run)) as history:
        history.write(verb, "fact", **fact)


def _count(things: tuple[object, ...], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
