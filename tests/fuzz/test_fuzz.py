"""Bytes of clients, peers, users and disks are read or refused; nothing else happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS, Target

EXECUTIONS = int(os.environ.get("GEOEMU_FUZZ_EXECUTIONS", "1000"))

REACHED_MIN = 0.9
"""Least part of the branches of each parser that valid and kept inputs reach. The others need a second connection, a
failing store or a larger input; the tests of these modules reach them."""


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_valid_and_kept_inputs_do_not_fail(target: Target) -> None:
    inputs = [*target.seeds(), *corpus.kept_inputs(target)]
    assert inputs
    for data in inputs:
        target.run(data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_valid_and_kept_inputs_reach_the_branches_of_the_parsers(target: Target) -> None:
    for module, part in corpus.covered_parts(target).items():
        assert part >= REACHED_MIN, f"{module}: {part:.0%} of the branches"


@pytest.mark.long
def test_fuzzing_finds_no_failure(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.fuzz", "--executions", str(EXECUTIONS), "--keep", str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("no failure") == len(TARGETS)


@pytest.mark.long
def test_an_input_that_fails_is_found_and_shown(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.fuzz import __main__ as fuzz; from tests.fuzz.targets import Target\n"
        "def parse(data): assert len(data) < 3, 'found it'\n"
        "broken = Target('broken', parse, lambda: [b'a'], ())\n"
        f"sys.exit(fuzz.succeeds(broken, 100_000, fuzz.Path({str(tmp_path)!r})))"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "it does not succeed"
    assert "broken: failed" in done.stdout
    assert "found it" in done.stdout
