"""Topology files written for one test."""

from __future__ import annotations

import textwrap
from pathlib import Path

CLUSTERS = {"americas": ["us-east", "us-west"], "europe": ["eu-central"]}


def write_topology(folder: Path, topology: str, **clusters: str) -> Path:
    """Write `topology.yaml` and clusters (those of the sample unless given) into `folder`."""
    (folder / "clusters").mkdir(exist_ok=True)
    for name, regions in CLUSTERS.items():
        if name not in clusters:
            text = "regions:\n" + "".join(f"  {region}:\n" for region in regions)
            (folder / "clusters" / f"{name}.yaml").write_text(text)
    for name, text in clusters.items():
        (folder / "clusters" / f"{name}.yaml").write_text(textwrap.dedent(text))
    path = folder / "topology.yaml"
    path.write_text(textwrap.dedent(topology))
    return path
