"""The same seed is the same run on another machine: in a container with its own Python, libraries and system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtimes.containers import need_containers

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
IMAGE = os.environ.get("GEOEMU_REGION_IMAGE", "geoemu-region:local")
RUNS = [("swarm", seed) for seed in range(1, 7)] + [("failover", 1)]
PROGRAM = f"""
import sys
from tests.swarm.runner import run_seed
for kind, seed in {RUNS}:
    print(kind, seed, run_seed(kind, seed).digest)
print(sys.version, file=sys.stderr)
"""
"""Program that prints the digests of RUNS. Broker, client and simulation are the same on both machines; Python's
standard library may be of another patch release. Broker and client avoid asyncio's streams, whose callbacks differ
between releases."""


def run_here() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def run_there() -> subprocess.CompletedProcess[str]:
    """Run this checkout in the container, with the Python and the libraries of the image."""
    options = [
        "--rm",
        "--network",
        "none",
        "--read-only",
        "--volume",
        f"{ROOT}:/source:ro",
        "--workdir",
        "/source",
    ]
    environment = ["--env", "PYTHONPATH=/source:/geoemu/lib", "--env", "PYTHONHASHSEED=2"]
    return subprocess.run(
        ["docker", "run", *options, *environment, "--entrypoint", "python3", IMAGE, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.real
def test_the_same_seed_is_the_same_run_on_another_machine() -> None:
    need_containers("region")
    here, there = run_here(), run_there()
    assert there.returncode == 0, there.stderr
    assert here.returncode == 0, here.stderr
    assert len(here.stdout.splitlines()) == len(RUNS)
    assert there.stdout == here.stdout, f"here: {here.stderr}there: {there.stderr}"
