"""From `topology.yaml` and `clusters/*.yaml` to a `Topology`, or to the list of all that is wrong with them.

First each file by itself (`topology_declared`). Then what must hold between the parts (`topology_relations`), checked
on whatever of them is right. What the files leave out is filled in last (`topology_filling`).
"""

from __future__ import annotations

from pathlib import Path

from emulator.errors import ConfigurationError
from emulator.topology import Topology
from emulator.topology_declared import in_reading_order, read_declared
from emulator.topology_filling import filled_in
from emulator.topology_relations import check_relations


def load_topology(path: Path) -> Topology:
    """Read `topology.yaml` and the `clusters/*.yaml` beside it.

    ConfigurationError carries every problem of all files, in reading order.
    """
    declared = read_declared(path)
    if declared.content is not None:
        check_relations(declared, declared.content)
    problems = [problem for file in declared.files() for problem in in_reading_order(file)]
    if problems:
        raise ConfigurationError(problems)
    assert declared.content is not None
    return filled_in(declared, declared.content, path)
