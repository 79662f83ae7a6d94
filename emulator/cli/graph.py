"""`geoemu graph`: the figure of a topology or a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from emulator.cli.application import app, open_run_of
from emulator.cli.options import DEFAULT_TOPOLOGY, TopologyFile
from emulator.errors import Refused

Form = Annotated[
    Literal["mermaid", "svg"] | None,
    typer.Option(
        "--format",
        help="mermaid: text for Markdown pages; svg: a figure. Default: as --output ends, or mermaid.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output."),
]
OfRun = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="Draw this run with its present states and latencies, instead of a topology file.",
    ),
]


@app.command(epilog="Example: geoemu graph -o topology.svg; a run: geoemu graph --run-dir .geoemu/current")
def graph(
    file: TopologyFile = DEFAULT_TOPOLOGY, form: Form = None, output: Output = None, run_dir: OfRun = None
) -> None:
    """Draw a topology as Mermaid or SVG: regions, grouped by cluster, and direct links with their latency."""
    drawn = _draw(file, run_dir, form or ("svg" if output and output.suffix == ".svg" else "mermaid"))
    if output is None:
        print(drawn, end="")
        return
    try:
        output.write_text(drawn, encoding="utf-8")
    except OSError as problem:
        raise Refused(f"{output} cannot be written: {problem.strerror}") from problem
    print(f"{output} is written")


def _draw(file: Path, run_dir: Path | None, form: str) -> str:
    from emulator.cli.mermaid import as_mermaid
    from emulator.cli.svg import as_svg
    from emulator.cli.topology_graph import graph_of

    if run_dir is not None:
        run = open_run_of(run_dir)
        found = graph_of(run.topology, asyncio.run(run.status()))
    else:
        from emulator.config.loading import load_topology

        found = graph_of(load_topology(file))
    return as_svg(found) if form == "svg" else as_mermaid(found)
