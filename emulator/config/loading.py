"""Load a `Topology` from `topology.yaml` and `clusters/*.yaml`, or report all problems in them.

First each file is checked separately (`declared`), then relations between their valid parts (`validation`). Defaults
are added last (`declared.with_defaults`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import emulator
from emulator.config.authentication_files import check_authentication
from emulator.config.authorization_roles import check_authorization
from emulator.config.declared import problems_by_line, read_declared, with_defaults
from emulator.config.security_files import check_security, security_config
from emulator.config.topology import Topology
from emulator.config.validation import check_relations
from emulator.errors import ConfigurationError, Problem

SAMPLE = Path(emulator.__file__).parents[1]
"""Folder of the sample topology in a checkout."""


def _with_next_steps(problem: Problem) -> Problem:
    """Add the next steps to the problem of a missing file, unless it suggests another file."""
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
    """Read a topology file and the `clusters/*.yaml` beside it.

    Raises ConfigurationError with the problems of all files, sorted by file and line.
    """
    declared = read_declared(path)
    if declared.content is not None:
        check_relations(declared, declared.content)
        check_security(declared, declared.content.security)
        check_authentication(declared, declared.content.security)
        check_authorization(declared, declared.content.security)
    if not path.exists():
        raise ConfigurationError([_with_next_steps(problem) for problem in declared.file.problems])
    problems = [problem for file in declared.files() for problem in problems_by_line(file)]
    if problems:
        raise ConfigurationError(problems)
    assert declared.content is not None
    topology = with_defaults(declared, declared.content, path)
    return replace(topology, security=security_config(declared.content.security, path.parent))
