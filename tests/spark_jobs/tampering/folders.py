"""Changes of the other files of a run directory: manifest, topology, regions, contracts of services."""

from __future__ import annotations

import shutil

from .kinds import in_json, in_sequence, incomplete, overwritten, removed
from .runs import WEST

FOLDERS = [
    incomplete("the record of the run removed", "run.json is missing", on_disk=removed("run.json")),
    incomplete("the topology removed", "topology.json is missing", on_disk=removed("topology.json")),
    incomplete(
        "a topology that cannot be parsed",
        "topology.json cannot be read",
        on_disk=overwritten("topology.json", "{"),
    ),
    incomplete(
        "a region removed from the topology, with its folder",
        "topology.json names region us-west, of which the run has no folder and no entry in a cluster",
        on_disk=in_sequence(
            in_json("topology.json", lambda topology: topology["clusters"][0]["regions"].pop()),
            lambda path: shutil.rmtree(path / "regions" / WEST),
        ),
    ),
    incomplete(
        "the folder of a region removed",
        "the folder regions/us-west is missing",
        on_disk=lambda path: shutil.rmtree(path / "regions" / WEST),
    ),
    incomplete(
        "the configuration of a region removed",
        "regions/us-west/region.json is missing",
        on_disk=removed(f"regions/{WEST}/region.json"),
    ),
    incomplete(
        "a configuration of a region that cannot be parsed",
        "regions/us-west/region.json cannot be read",
        on_disk=overwritten(f"regions/{WEST}/region.json", "[]"),
    ),
    incomplete(
        "another backend in the configuration of a region",
        "the log of us-west cannot be read: its backend is memory",
        on_disk=in_json(f"regions/{WEST}/region.json", lambda config: config["log"].update(backend="memory")),
    ),
    incomplete(
        "all histories removed",
        "the folder history/ has no history: the operations of the clients are unknown",
        on_disk=lambda path: shutil.rmtree(path / "history"),
    ),
    incomplete(
        "a manifest that cannot be parsed",
        "made_by.json cannot be read: the scenario and its steps are unknown",
        on_disk=overwritten("made_by.json", "{"),
    ),
    incomplete(
        "a contract that cannot be parsed",
        "the service's contract cannot be read",
        on_disk=overwritten("answers.json", "{"),
    ),
]
