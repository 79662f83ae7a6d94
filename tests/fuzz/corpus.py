"""The kept inputs of each input class, and the branches of the parsers that they reach.

    python -m tests.fuzz.corpus TARGET FOLDER    adds the inputs of FOLDER that reach another branch

`corpus/TARGET.txt` has one input per line, in Base64: those that reach a branch which no valid input reaches, and those
that once failed.
"""

from __future__ import annotations

import base64
import json
import logging
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from coverage import Coverage

from tests.fuzz.served import SERVED
from tests.fuzz.targets import TARGETS, Target

FOLDER = Path(__file__).parent / "corpus"

Branches = set[tuple[str, int, int]]
"""(file, line, next line)."""


def kept_inputs(target: Target) -> list[bytes]:
    path = FOLDER / f"{target.name}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def files_of(target: Target) -> list[str]:
    """Return the source files of the target's parsers."""
    specs = [find_spec(module) for module in target.modules]
    return [spec.origin for spec in specs if spec is not None and spec.origin is not None]


def reached_by(target: Target, inputs: Iterable[bytes]) -> Iterator[tuple[bytes, Branches]]:
    """Yield each input with the branches of the parsers that it reaches."""
    files = files_of(target)
    for data in inputs:
        measured = Coverage(branch=True, include=files, data_file=None, messages=False)
        with measured.collect():
            target.run(data)
        found = measured.get_data()
        yield data, {(file, *arc) for file in files for arc in found.arcs(file) or ()}


def covered_parts(target: Target) -> dict[str, float]:
    """Return the part of the branches of each parser that valid and kept inputs reach, over the functions that they
    reach at all: the modules contain encoders, too."""
    inputs = [*target.seeds(), *kept_inputs(target)]  # not measured: encoders made them
    measured = Coverage(branch=True, include=files_of(target), data_file=None, messages=False)
    SERVED.renew()
    with measured.collect():
        for data in inputs:
            target.run(data)
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        measured.json_report(outfile=report.name)
        files = json.load(report)["files"]
    parts: dict[str, float] = {}
    for file, found in files.items():
        reached = [one["summary"] for one in found["functions"].values() if one["executed_lines"]]
        branches = sum(one["num_branches"] for one in reached)
        parts[file] = sum(one["covered_branches"] for one in reached) / max(branches, 1)
    return parts


def selected(target: Target, found: Iterable[bytes]) -> list[bytes]:
    """Return the kept inputs, and of `found` those that reach a branch that none before them reaches."""
    reached: Branches = set()
    for _, branches in reached_by(target, target.seeds()):
        reached |= branches
    chosen = kept_inputs(target)
    for _, branches in reached_by(target, chosen):
        reached |= branches
    for data, branches in reached_by(target, found):
        if branches - reached:
            chosen.append(data)
            reached |= branches
    return chosen


def main(name: str, folder: str) -> None:
    logging.disable(logging.CRITICAL)
    target = TARGETS[name]
    found = sorted((path.read_bytes() for path in Path(folder).iterdir() if path.is_file()), key=len)
    chosen = selected(target, found)
    FOLDER.mkdir(exist_ok=True)
    text = "".join(base64.b64encode(data).decode() + "\n" for data in chosen)
    (FOLDER / f"{name}.txt").write_text(text)
    print(f"{name}: {len(chosen)} inputs, {len(text)} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
