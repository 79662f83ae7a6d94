"""Install the requirements of a goal: `.venv` with the pinned packages, geoemu itself, Java for Spark.

    scripts/setup [--is-done] light|run|compose|test|site|bench|fast

`run` installs the requirements of a run and its verdict; `light` fewer, for a verdict without Spark and Java; `compose`
adds packages to start containers; `test` adds to that the light engine, browser drivers and linters; `bench` adds the
broker that geoemu is compared with. Obstacles are checked first, so that no installation stops half way: the script
prints the command to type, and ends with exit code 2. A second call has no effect (a stamp in `.venv` records the
first). Uses only the standard library and tools of every Debian or Ubuntu; missing system packages are installed if
that is possible (as root, or with a sudo that requires no password).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from lock import LOCK, ROOT, pin, read_lock, wanted
from progress import POLL_SECONDS, Done, Line, listen, obey, watch
from system_packages import NO_NETWORK, Stopped, apt_install, find_java, provide_java, run, say, succeeds

PYTHON_MIN = (3, 11)

LIGHT = ("kafka", "cli", "scenarios", "embedded")
RUN = ("kafka", "cli", "scenarios", "spark")
GOALS = {
    "light": LIGHT,
    "run": RUN,
    "compose": (*RUN, "security", "compose", "fast"),
    "test": (*RUN, "security", "embedded", "compose", "dev", "site", "fast"),
    "site": ("site",),
    "fast": (*LIGHT, "fast"),
    "bench": (*RUN, "embedded", "compose", "bench"),
}
"""The extras of pyproject.toml that each goal requires."""
TOOLS = ("setup",)
"""The extra with the packages that install the others."""

FREE_BYTES = {"light": 400_000_000, "spark": 2_000_000_000}
"""Free disk space that a set-up requires in bytes, including temporary files."""

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "geoemu-setup.json"
SCRIPTS = tuple(
    Path(__file__).with_name(name) for name in ("setup.py", "lock.py", "progress.py", "system_packages.py")
)
INPUTS = (LOCK, ROOT / "pyproject.toml", *SCRIPTS)

PIP = ("--disable-pip-version-check", "--no-input", "--use-pep517", "--timeout", "15", "--retries", "2")


def main(arguments: list[str]) -> int:
    only_asked = arguments[:1] == ["--is-done"]
    goal = next(iter(arguments[only_asked:]), "test")
    if goal not in GOALS:
        print(f"setup: {goal} is none of {', '.join(GOALS)}", file=sys.stderr)
        return 2
    if only_asked:
        return 0 if is_done(goal) else 1
    listen()
    try:
        with one_at_a_time():
            if not is_done(goal):
                set_up(goal)
    except Stopped as stopped:
        print(f"setup: {stopped}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("setup: interrupted. To continue, type the same command again", file=sys.stderr)
        return 130
    return 0


def set_up(goal: str) -> None:
    look_at_the_disk(goal)
    say(f"Setting up in {ROOT} (the first time this takes a few minutes)")
    if "spark" in GOALS[goal]:
        provide_java()
    pip = provide_venv()
    locked = read_lock()
    extras = sorted({*GOALS[goal], *done_extras()})
    install_pinned(pip, wanted(TOOLS, locked), locked)
    install_pinned([str(VENV_PYTHON), "-m", "pip"], wanted(extras, locked), locked)
    install(pip, "geoemu", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.write_text(json.dumps({"extras": extras, "of": fingerprint()}))
    if goal == "run":
        lay_out_classes()
    say("Ready")


# ---- done already? -----------------------------------------------------------------------------------------


def is_done(goal: str) -> bool:
    has_java = "spark" not in GOALS[goal] or find_java() is not None
    return VENV_PYTHON.exists() and set(GOALS[goal]) <= done_extras() and has_java


def done_extras() -> set[str]:
    """Return the extras that earlier set-ups installed; empty if their inputs have changed since."""
    try:
        stamp = json.loads(STAMP.read_text())
        return set(stamp["extras"]) if stamp["of"] == fingerprint() else set()
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def fingerprint() -> str:
    """Return a digest of all inputs of a set-up, including the path of the folder, which installed scripts contain."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (*INPUTS, VENV / "pyvenv.cfg"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock within the `with` block, so that concurrent `make` commands do not install at the same time."""
    with open(__file__) as lock:
        line = Line("setup: ", "waiting for another setup")
        while not _is_ours(lock):
            obey()
            line.show()
            time.sleep(POLL_SECONDS)
        line.end()
        yield


def _is_ours(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# ---- the disk ----------------------------------------------------------------------------------------------


def look_at_the_disk(goal: str) -> None:
    """Check that the disk is writable and has enough space, because later errors would not name the disk as their
    cause."""
    if not os.access(ROOT, os.W_OK | os.X_OK):
        raise Stopped(f"{ROOT} is not writable, but .venv is created there. Use a copy that you own")
    wanted_bytes = FREE_BYTES["spark" if "spark" in GOALS[goal] else "light"]
    for folder in (str(ROOT), tempfile.gettempdir()):
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < wanted_bytes:
            raise Stopped(
                f"{wanted_bytes / 1e9:.1f} GB of temporary space are needed and {folder} has {free_bytes / 1e9:.1f}. "
                "Free space there, or set TMPDIR to another folder; then type the same command again"
            )


# ---- Python ------------------------------------------------------------------------------------------------


def provide_venv() -> list[str]:
    """Create `.venv` if it does not exist or is not usable. Return the command of pip for it."""
    inner = [str(VENV_PYTHON), "-m", "pip"]
    if is_usable(VENV_PYTHON):
        if succeeds([*inner, "--version"]):
            return inner
        if has_module("pip"):
            return pip_from_outside()
    version = ".".join(map(str, sys.version_info[:3]))
    say(f"Creating .venv with Python {version}")
    if create_venv():
        return inner
    if has_module("pip"):
        # A Python without ensurepip, or without venv at all, but with pip: Debian without python3-venv.
        if create_venv("--without-pip"):
            return pip_from_outside()
        if create_venv_with_virtualenv():
            return inner
    package = f"python3.{sys.version_info[1]}-venv"
    if apt_install(package, "python3-venv", why="what Python needs for .venv") and create_venv():
        return inner
    raise Stopped(
        f"{sys.executable} cannot create a virtual environment: it has neither ensurepip nor pip. Type: sudo "
        f"apt-get install {package}"
    )


def create_venv(*options: str) -> bool:
    shutil.rmtree(VENV, ignore_errors=True)
    created = succeeds([sys.executable, "-m", "venv", *options, str(VENV)])
    if not created:
        shutil.rmtree(VENV, ignore_errors=True)
    return created


def create_venv_with_virtualenv() -> bool:
    """Create `.venv` with a temporary installation of virtualenv, which changes neither the system nor the home
    folder."""
    shutil.rmtree(VENV, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="geoemu-setup-") as folder:
        install([sys.executable, "-m", "pip"], "virtualenv", "--target", folder, "virtualenv")
        return succeeds([sys.executable, "-m", "virtualenv", str(VENV)], PYTHONPATH=folder)


def pip_from_outside() -> list[str]:
    return [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]


def is_usable(python: Path) -> bool:
    """Return whether a Python runs (its base installation may have been removed) and is new enough."""
    return succeeds([str(python), "-c", f"import sys; sys.exit(sys.version_info < {PYTHON_MIN})"])


def has_module(name: str) -> bool:
    return succeeds([sys.executable, "-c", f"import {name}"])


def install_pinned(pip: list[str], names: list[str], locked: dict[str, str]) -> None:
    """Install these packages in the locked versions, and check their hashes."""
    with tempfile.NamedTemporaryFile("w", prefix="geoemu-", suffix=".txt") as pins:
        pins.write("\n".join(pin(locked[name]) for name in names))
        pins.flush()
        install(pip, f"{len(names)} pinned packages", "--require-hashes", "-r", pins.name)


def install(pip: list[str], what: str, *options: str) -> None:
    say(f"Installing {what}")
    reports = ("--progress-bar", "raw") if reports_progress(pip) else ()
    command = [*pip, "install", *PIP, *reports, *options]
    done = watch(command, prefix="setup:   ", text="resolving packages", reader=PipReader())
    if done.returncode != 0:
        raise Stopped(pip_sentence(done))


def reports_progress(pip: list[str]) -> bool:
    """Return whether this pip can report the progress of downloads to programs; it can since version 24.1."""
    version = re.match(r"pip (\d+)\.(\d+)", run([*pip, "--version"]).output)
    return version is not None and (int(version[1]), int(version[2])) >= (24, 1)


class PipReader:
    """Converts the output of pip to progress texts."""

    def __init__(self) -> None:
        self.package = ""

    def __call__(self, line: str) -> str | None:
        line = line.strip()
        if match := re.match(
            r"(?:Downloading|Using cached) ([\w.]+-\d+(?:\.\w+)*?)(?:-|\.tar|\.whl|\.zip)", line
        ):
            self.package = match[1]
            return f"downloading {self.package}"
        if match := re.match(r"Progress (\d+) of (\d+)", line):
            have, size = (int(part) / 1e6 for part in match.groups())
            return f"downloading {self.package}: {have:.0f} of {size:.0f} MB"
        if match := re.match(r"Building wheel for (\S+)", line):
            return f"unpacking {match[1]}"
        if line.startswith("Installing collected packages:"):
            return f"installing {line.count(',') + 1} packages"
        return None


def pip_sentence(done: Done) -> str:
    """Return an error message for a failed pip: one sentence if the network is the cause, otherwise pip's errors."""
    if match := NO_NETWORK.search(done.output):
        return (
            f"pip cannot reach the package registry ({match[0]}). Check the network, or set a proxy (HTTPS_PROXY) "
            "or a mirror (PIP_INDEX_URL) for pip; then type the same command again"
        )
    lines = [line for line in done.output.splitlines() if line.strip() and not line.startswith("Progress")]
    errors = [line for line in lines if line.lstrip().startswith("ERROR")] or lines
    return (
        "pip could not install:\n  "
        + "\n  ".join(errors[-8:])
        + "\nWhen the cause is removed, type the same command again"
    )


# ---- Spark -----------------------------------------------------------------------------------------------


def lay_out_classes() -> None:
    """Create a class archive, which speeds up verdicts with Spark. A failure is not an error."""
    say("Creating a class archive for Spark (once, 150 MB; verdicts start faster)")
    command = [str(VENV_PYTHON), "-m", "spark_jobs.engines.archive"]
    done = watch(command, prefix="setup:   ", text="starting Spark to record the classes that it loads")
    if done.returncode != 0:
        say("No class archive was created; verdicts start more slowly and are the same")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
