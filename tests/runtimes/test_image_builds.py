"""Two builds of images in one checkout run one after the other."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from .containers import ROOT

WAIT_SECONDS = 60


def program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def has_waiter(file: Path) -> bool:
    """Whether a process waits for the lock of a file."""
    inode = f":{file.stat().st_ino} "
    return any(" -> " in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux, which lists locks in /proc/locks")
@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")
def test_a_build_waits_for_another_of_the_checkout(tmp_path: Path) -> None:
    """They would delete each other's wheels."""
    (tmp_path / "compose").mkdir()
    script = shutil.copy(ROOT / "compose" / "images.sh", tmp_path / "compose")
    programs, contexts, began = tmp_path / "bin", tmp_path / "build" / "images", tmp_path / "began"
    programs.mkdir()
    contexts.mkdir(parents=True)
    program(programs / "docker", "exit 0")
    program(programs / "python", f"touch {began}; exit 7")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    with (contexts / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build = subprocess.Popen(
            ["bash", script, "region"], env={**os.environ, "PATH": path, "PYTHON": str(programs / "python")}
        )
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while not has_waiter(contexts / "lock"):
                assert build.poll() is None, "the build did not wait"
                assert time.monotonic() < deadline
            assert not began.exists()
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert build.wait(WAIT_SECONDS) == 7
        finally:
            build.kill()
    assert began.exists()
