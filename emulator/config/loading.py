"""From `topology.yaml` and `clusters/*.yaml` to a `Topology`, or to the list of all that is wrong with them.

First each file by itself (`declared`). Then what must hold between the parts (`validation`), checked on whatever of
them is right. What the files leave out is filled in last (`declared.filled_in`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import emulator
from emulator.config.declared import filled_in, in_reading_order, read_declared
from emulator.config.topology import Topology
from emulator.config.validation import check_relations
from emulator.errors import ConfigurationError, Problem

SAMPLE = Path(emulator.__file__).parents[1]
"""Where the sample topology is, in a checkout."""


def _missing(problem: Problem) -> Problem:
    """How to go on without a topology, where no other file is likely to be meant."""
    if problem.suggestion is not None:
        return problem
    copy = f"cp -r {SAMPLE}/topology.yaml {SAMPLE}/clusters ."
    sample = (
        f"copy the sample: {copy}"
        if (SAMPLE / "topology.yaml").is_file()
        else "copy the sample of geoemu's repository"
    )
    return replace(problem, rule=f"{problem.rule}; name another file with -f FILE, or {sample}")


def load_topology(path: Path) -> Topology:
    """Read `topology.yaml` and the `clusters/*.yaml` beside it.

    ConfigurationError carries every problem of all files, in reading order.
    """
    declared = read_declared(path)
    if declared.content is not None:
        check_relations(declared, declared.content)
    if not path.exists():
        raise ConfigurationError([_missing(problem) for problem in declared.file.problems])
    problems = [problem for file in declared.files() for problem in in_reading_order(file)]
    if problems:
        raise ConfigurationError(problems)
    assert declared.content is not None
    return filled_in(declared, declared.content, path)
