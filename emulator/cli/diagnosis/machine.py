"""Checks of this machine: Python, packages, file descriptors, disk space, the folder and the clock."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import emulator
from emulator.cli.diagnosis.finding import Finding
from emulator.run.directory import HOME

PYTHON_MIN: Final = (3, 11)
FILES_MIN: Final = 1024
"""Open files that a process needs at least: a region has two for each client connection and some for its log."""
FREE_BYTES_MIN: Final = 500_000_000
"""Free disk space below which a run is likely to fill the disk."""
CLOCK_SAMPLE_SECONDS: Final = 0.2
CLOCK_ERROR_SECONDS: Final = 0.05
"""Difference between wall clock and monotonic clock in a sample that shows a clock which is being set."""
DAY: Final = 86_400


def check_machine(folder: Path) -> Iterator[Finding]:
    """Yield the findings about this machine, for runs in a folder."""
    yield check_python()
    yield check_clients()
    yield check_open_files()
    yield check_disk(folder)
    yield check_folder(folder)
    yield check_clock()


def check_python() -> Finding:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        needed = ".".join(map(str, PYTHON_MIN))
        return Finding(
            "python",
            "problem",
            f"this is Python {version}",
            f"create the environment with Python {needed} or newer",
        )
    return Finding("python", "ok", f"Python {version}")


def check_clients() -> Finding:
    if find_spec("pulsar") is None:
        return Finding(
            *("clients", "note", "the package pulsar-client is missing: scenarios cannot publish or consume"),
            "pip install 'geoemu[scenarios]', or `make setup` in a checkout",
        )
    return Finding("clients", "ok", "pulsar-client is installed")


def check_open_files() -> Finding:
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < FILES_MIN:
        fix = f"`ulimit -n {FILES_MIN}` in this shell"
        if highest != resource.RLIM_INFINITY and highest < FILES_MIN:
            fix = f"raise the hard limit, {highest}, as root in /etc/security/limits.conf, and log in again"
        return Finding(
            "open files", "problem", f"a process may open {limit} files; regions need {FILES_MIN}", fix
        )
    shown = "any number of" if limit == resource.RLIM_INFINITY else str(limit)
    return Finding("open files", "ok", f"a process may open {shown} files")


def check_disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    sentence = f"{free / 1e9:.1f} GB are free at {folder}"
    if free < FREE_BYTES_MIN:
        return Finding(
            "disk space", "problem", sentence, f"delete old runs in {folder / HOME / 'runs'}, or free space"
        )
    return Finding("disk space", "ok", sentence)


def check_folder(folder: Path) -> Finding:
    """Create and remove a file where a run would be stored."""
    place = next(one for one in (folder / HOME / "runs", folder / HOME, folder) if one.is_dir())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as problem:
        return Finding(
            *("folder", "problem", f"no run can be stored in {place}: {problem.strerror}"),
            "work in a folder that you may write to, or name one with --run-dir",
        )
    return Finding("folder", "ok", f"runs are stored in {folder / HOME / 'runs'}")


def check_clock(
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Finding:
    """Compare the wall clock with the dates of geoemu's files, and its rate with the monotonic clock: histories of
    several processes are ordered by it."""
    newest = max(file.stat().st_mtime for file in Path(emulator.__file__).parent.glob("*.py"))
    set_clock = "set the clock, and keep it right: `sudo timedatectl set-ntp true`"
    if wall() < newest - DAY:
        return Finding(
            "clock", "problem", "the clock of this machine is earlier than geoemu's own files", set_clock
        )
    began = wall() - monotonic()
    wait(CLOCK_SAMPLE_SECONDS)
    error = (wall() - monotonic()) - began
    if abs(error) > CLOCK_ERROR_SECONDS:
        sentence = (
            f"the clock of this machine jumped by {error * 1000:+.0f} ms: histories may be in a wrong order"
        )
        return Finding("clock", "problem", sentence, "wait until the clock is set, then start the run")
    return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall())))
