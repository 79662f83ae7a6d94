"""Helpers of tests with containers: require a real engine and images of this checkout, and remove containers."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from emulator.errors import GeoemuError
from emulator.runtimes.compose.command import compose, compose_command
from emulator.runtimes.docker_engine import DockerEngine

ROOT = Path(__file__).parents[2]
IMAGES_SECONDS = 600


def need_containers(*images: str) -> None:
    """Skip the test without an engine, without Compose, or if the images cannot be built; in CI, fail it."""
    missing = _what_is_missing(images)
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@cache
def _what_is_missing(images: tuple[str, ...]) -> str:
    try:
        DockerEngine()
        compose_command()
    except GeoemuError as refusal:
        return str(refusal)
    made = subprocess.run(
        ["bash", "compose/images.sh", *images],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=IMAGES_SECONDS,
    )
    return made.stderr if made.returncode else ""


async def remove(run_dir: Path) -> None:
    """Remove the containers, networks and volumes of a run, if there are any."""
    if (run_dir / "compose.yaml").exists():
        await compose(run_dir, "down", "--volumes", "--remove-orphans", "--timeout", "0", seconds=60)
