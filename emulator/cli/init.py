"""`geoemu init`: write a first topology, by a few questions or from a running Pulsar."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from emulator.cli.application import app
from emulator.cli.topology_draft import TopologyDraft

REGIONS = "us-east, us-west, eu-central"
LATENCY_MS = 40.0
NAMESPACE = "public/default"
T = TypeVar("T")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; write the defaults.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="Read clusters, tenants, namespaces and policies from the admin API of a running Pulsar.",
    ),
]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for topology.yaml and clusters/.")
]


@app.command(
    epilog="Example: geoemu init; from a Pulsar: geoemu init --from http://127.0.0.1:8080 -o imported"
)
def init(yes: Yes = False, source: From = None, output: Output = Path()) -> None:
    """Write a topology to a folder, by a few questions or from a running Pulsar. Existing files are never changed."""
    if source is not None:
        from emulator.cli.pulsar_import import read_pulsar

        draft, remarks = asyncio.run(read_pulsar(source, LATENCY_MS))
        for remark in remarks:
            print(remark, file=sys.stderr)
    else:
        draft = _draft(_default if yes or not sys.stdin.isatty() else typer.prompt)
    for path in draft.write(output):
        print(f"{path} is written")
    option = "" if output == Path() else f" -f {output / 'topology.yaml'}"
    print(f"`geoemu up{option}` starts it; `geoemu graph{option}` draws it")


def _default(text: str, default: T) -> T:
    return default


def _draft(ask: Callable[..., str]) -> TopologyDraft:
    """Return the draft of the answers. Regions with the same first word are in one cluster by default."""
    regions = list(dict.fromkeys(filter(None, map(str.strip, ask("Regions", default=REGIONS).split(",")))))
    clusters: dict[str, list[str]] = {}
    for region in regions:
        cluster = ask(
            f"Cluster of {region} (regions of a cluster share tenants and policies)",
            default=region.partition("-")[0],
        )
        clusters.setdefault(str(cluster).strip(), []).append(region)
    latency = _number(ask("One-way latency between regions in milliseconds", default=f"{LATENCY_MS:g}"))
    namespace = ask("Namespace that is replicated between all regions", default=NAMESPACE).strip()
    keys = {"regions": "all", "deduplication": True}
    return TopologyDraft("geo", clusters, latency, {namespace: keys}, [namespace.partition("/")[0]])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number of milliseconds", param_hint="latency") from None
