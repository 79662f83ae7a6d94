"""Options and arguments that several verbs take, and how the shell completes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.errors import GeoemuError
from emulator.model import seconds_in
from emulator.runtimes.opening import RUNTIMES
from emulator.runtimes.run_directory import find_run


def _complete_region(context: typer.Context, incomplete: str) -> list[str]:
    """Regions of the run that the verb is about, without those that were typed already."""
    try:
        regions = find_run(context.params.get("run_dir")).read().regions
    except GeoemuError:
        return []
    typed = set(context.params.values())
    return [region for region in regions if region.startswith(incomplete) and region not in typed]


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
Region = Annotated[str, typer.Argument(metavar="REGION", autocompletion=_complete_region, show_default=False)]
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


Milliseconds = Annotated[
    float,
    typer.Argument(
        metavar="TIME", parser=_milliseconds, help="One way, like 200ms or 1.5s.", show_default=False
    ),
]
JitterMilliseconds = Annotated[
    float | None,
    typer.Option(
        "--jitter", metavar="TIME", parser=_milliseconds, help="Up to so much longer. Default: as it was."
    ),
]
OneWay = Annotated[bool, typer.Option("--one-way", help="Only what goes from A to B.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
ReportDir = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="DIR", help="Where the report goes. Default: report/ in the run directory."
    ),
]
