"""Options and arguments that several verbs take, and how the shell completes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from emulator.addresses import HOST_RULE, is_host
from emulator.errors import GeoemuError
from emulator.explanations import KINDS
from emulator.model import seconds_in
from emulator.runtimes.opening import RUNTIMES
from emulator.runtimes.run_directory import find_run


def _complete_region(context: typer.Context, incomplete: str) -> list[str]:
    """Regions of the run that the verb is about, without those that were typed already."""
    try:
        regions = find_run(context.params.get("run_dir")).read().regions
    except GeoemuError:
        return []
    typed = {
        name
        for value in context.params.values()
        for name in (value if isinstance(value, list | tuple) else [value])
    }
    return [region for region in regions if region.startswith(incomplete) and region not in typed]


def _complete_cluster(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters of the run that the verb is about."""
    try:
        regions = find_run(context.params.get("run_dir")).read().regions
    except GeoemuError:
        return []
    clusters = {region.cluster for region in regions.values()}
    return sorted(cluster for cluster in clusters if cluster.startswith(incomplete))


def _complete_runtime(incomplete: str) -> list[str]:
    return [runtime for runtime in RUNTIMES if runtime.startswith(incomplete)]


DEFAULT_TOPOLOGY = Path("topology.yaml")
TopologyFile = Annotated[
    Path,
    typer.Option("-f", "--file", "--topology", metavar="FILE", help="The topology.", show_default=True),
]
RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", metavar="DIR", help="The run directory. Default: the latest run of this folder."
    ),
]
NewRunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", metavar="DIR", help="Where the run is kept. Default: a new one in .geoemu/runs."
    ),
]
RuntimeName = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="NAME",
        help=f"Where regions run: {' or '.join(RUNTIMES)}. Default: what the topology says.",
        autocompletion=_complete_runtime,
    ),
]


def _address(text: str) -> str:
    if not is_host(text):
        raise typer.BadParameter(f"{text!r} {HOST_RULE}")
    return text


Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="ADDRESS",
        parser=_address,
        help="Listen on this address of this machine, all regions. Default: what the topology names, or 127.0.0.1.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow addresses that other machines can reach, although regions authenticate no client.",
    ),
]
Region = Annotated[str, typer.Argument(metavar="REGION", autocompletion=_complete_region, show_default=False)]
Regions = Annotated[
    list[str] | None,
    typer.Argument(metavar="REGION...", autocompletion=_complete_region, show_default=False),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help="All regions of a cluster.", autocompletion=_complete_cluster
    ),
]
WithStore = Annotated[
    bool,
    typer.Option(
        "--with-store",
        help="With --cluster: its configuration store is lost, too. Started again, it begins with an empty one.",
    ),
]
LinkEnd = Annotated[str, typer.Argument(metavar="A", autocompletion=_complete_region, show_default=False)]
OtherLinkEnd = Annotated[
    str, typer.Argument(metavar="B", autocompletion=_complete_region, show_default=False)
]
OptionalLinkEnd = Annotated[
    str | None, typer.Argument(metavar="A", autocompletion=_complete_region, show_default=False)
]
OptionalOtherLinkEnd = Annotated[
    str | None, typer.Argument(metavar="B", autocompletion=_complete_region, show_default=False)
]


def _milliseconds(text: str) -> float:
    try:
        return seconds_in(text) * 1000
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


def seconds(text: str) -> float:
    """A time as people write it; a bare number is seconds."""
    try:
        return float(text) if text.replace(".", "", 1).isdigit() else seconds_in(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r} {problem}") from None


Milliseconds = Annotated[
    float,
    typer.Argument(
        metavar="TIME", parser=_milliseconds, help="One way, like 200ms or 1.5s.", show_default=False
    ),
]


def _signed_milliseconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * round(_milliseconds(text.removeprefix("-").removeprefix("+")))


SignedMilliseconds = Annotated[
    int,
    typer.Argument(
        metavar="TIME",
        parser=_signed_milliseconds,
        help="Like +250ms or -2s; 0ms: right again.",
        show_default=False,
    ),
]
JitterMilliseconds = Annotated[
    float | None,
    typer.Option(
        "--jitter", metavar="TIME", parser=_milliseconds, help="Up to so much longer. Default: as it was."
    ),
]


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Words of names that the regions of the run know."""
    from emulator.cli.explain import complete_name

    kind, typed = context.params.get("kind"), context.params.get("name") or ()
    try:
        return complete_name(context.params.get("run_dir"), kind or "", list(typed), incomplete)
    except GeoemuError:
        return []


ExplainedKind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="; ".join(f"{name}: {kind.doc}" for name, kind in KINDS.items()),
        autocompletion=_complete_kind,
        show_default=False,
    ),
]
ExplainedName = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="; ".join(f"{name}: {' '.join(kind.words)}" for name, kind in KINDS.items()),
        autocompletion=_complete_name,
        show_default=False,
    ),
]
OnlyRegion = Annotated[
    str | None,
    typer.Option("--region", metavar="REGION", help="Ask this one only.", autocompletion=_complete_region),
]
OneWay = Annotated[bool, typer.Option("--one-way", help="Only what goes from A to B.")]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(
        "--log-format", help="How regions print what they do: a line each, or a JSON object a line."
    ),
]
AsCurl = Annotated[
    bool,
    typer.Option("--curl", help="Print what curl would have to be told for the same, and do nothing."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def _limits(text: str) -> str:
    from emulator.limits import parse_limits

    try:
        parse_limits(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    return text


Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="LIMITS",
        parser=_limits,
        help="Limits, like unrecovered=0,repeated<=500,gap<=5s; a missed one is exit code 1 (docs/LIMITS.md).",
    ),
]
JunitFile = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the checks as JUnit XML, too.")
]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write the checks as Markdown, too.")
]
Followed = Annotated[
    list[str] | None,
    typer.Option(
        "--message",
        metavar="PRODUCER:NUMBER",
        help="Tell all that is known of a message, by its producer and its sequence id. Several times for several.",
    ),
]
EngineName = Annotated[
    Literal["spark", "embedded"] | None,
    typer.Option(
        "--engine",
        help="Who works the verdict out: Spark, or a database in the verifier itself, without Java. Default: spark, or"
        " embedded where there is no Java.",
    ),
]
ReportDir = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="DIR", help="Where the report goes. Default: report/ in the run directory."
    ),
]
