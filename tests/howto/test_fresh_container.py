"""The tutorial, typed literally in a container that has only a bare Debian with the packages that it asks for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .documented_commands import ROOT, blocks_of

pytestmark = [pytest.mark.real, pytest.mark.slow]

BASE = "geoemu-base-python:local"
TUTORIAL_SECONDS = 600
"""What the page promises, from `git clone` to the last verdict."""
PREPARATION_SECONDS = 900
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PREREQUISITES = """
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends git make >/dev/null
"""


def docker(*arguments: str, seconds: float = PREPARATION_SECONDS) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout


def want_base_image() -> None:
    """Build the image of a bare Debian, if it is missing. Skip the test where that is not possible; in CI, fail it."""
    made = subprocess.run(
        ["bash", "compose/base-images.sh", "python"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PREPARATION_SECONDS,
    )
    if made.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(made.stderr)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[str]:
    """A container with `git`, `make` and Python, this machine's way to packages, and the commits of this checkout."""
    want_base_image()
    bundle = tmp_path / "geoemu.bundle"
    subprocess.run(["git", "bundle", "create", "--quiet", bundle, "HEAD"], cwd=ROOT, check=True)
    name = f"geoemu-tutorial-{os.getpid()}"
    mounts = {"/etc/apt": "/etc/apt", "/etc/resolv.conf": "/etc/resolv.conf", str(bundle): "/geoemu.bundle"}
    options = [f"--volume={source}:{target}:ro" for source, target in mounts.items()]
    if CERTIFICATES.exists():
        options += [f"--volume={CERTIFICATES}:/certificates.crt:ro", "--env=PIP_CERT=/certificates.crt"]
    proxies = [
        f"--env={one}" for one in os.environ if one.lower() in ("http_proxy", "https_proxy", "no_proxy")
    ]
    try:
        docker(
            "run",
            "--detach",
            "--init",
            "--network=host",
            "--name",
            name,
            *options,
            *proxies,
            BASE,
            "sleep",
            "3600",
        )
        docker("exec", name, "bash", "-ec", PREREQUISITES)
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True)


def typed() -> str:
    """Return the commands of the page after a clone, which print the seconds that each step took."""
    steps = [block.text for block in blocks_of(ROOT / "docs" / "TUTORIAL.md") if block.language == "bash"]
    lines = ["set -euo pipefail", "git clone --quiet /geoemu.bundle geoemu", "cd geoemu"]
    lines.append('echo "TOOK $SECONDS s: git clone"')
    for number, step in enumerate(steps, 1):
        lines += ["began=$SECONDS", step, f'echo "TOOK $((SECONDS - began)) s: step {number}"']
    return "\n".join([*lines, 'echo "TOOK $SECONDS s: everything"'])


def test_the_tutorial_in_a_fresh_container_takes_less_than_ten_minutes(container: str) -> None:
    output = docker("exec", container, "bash", "-c", typed(), seconds=TUTORIAL_SECONDS)
    took = re.findall(r"^TOOK .*", output, re.MULTILINE)
    assert len(took) == 8
    print(*took, sep="\n", file=sys.stderr)
    assert re.findall(r"^VALID ", output, re.MULTILINE) == ["VALID "] * 2
    assert "us-east: received and acknowledged 200 messages" in output
