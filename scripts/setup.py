"""Make everything ready: Java for Spark, `.venv` with the pinned packages, geoemu itself.

    python3 scripts/setup.py

What may stop it is looked at first, so that nothing is half done: then it says the one line to type and ends with
exit code 2. Done once, it does nothing the next time (a stamp in `.venv` tells). Only the standard library, only
what every Debian or Ubuntu has; where system packages are missing it installs them if it may (as root, or with a
sudo that asks no password).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "geoemu-setup.stamp"
LOCK = ROOT / "requirements.lock"
INPUTS = (LOCK, ROOT / "pyproject.toml", Path(__file__).resolve())

PIP = ("--disable-pip-version-check", "--no-input", "--quiet", "--use-pep517")


class Stopped(Exception):
    """The set-up cannot go on; the message ends with the line to type."""


def main() -> int:
    try:
        use_python()
        with one_at_a_time():
            if not is_done():
                set_up()
    except Stopped as stopped:
        print(f"setup: {stopped}", file=sys.stderr)
        return 2
    return 0


def set_up() -> None:
    say(f"Setting up in {ROOT} (the first time this takes a few minutes)")
    provide_java()
    pip = provide_venv()
    say(f"Installing {len(pinned())} pinned packages, about 1.2 GB")
    install(pip, "--require-hashes", "-r", str(LOCK))
    say("Installing geoemu")
    install(pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.write_text(fingerprint())
    say("Ready")


# ---- done already? -----------------------------------------------------------------------------------------


def is_done() -> bool:
    try:
        done = VENV_PYTHON.exists() and STAMP.read_text() == fingerprint()
    except OSError:
        return False
    return done and find_java() is not None


def fingerprint() -> str:
    """Changes with whatever a set-up depends on, the place of the folder included (paths stand in scripts)."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (*INPUTS, VENV / "pyvenv.cfg"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def one_at_a_time():
    """Two `make` at once must not install over one another."""
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- Python ------------------------------------------------------------------------------------------------


def use_python() -> None:
    """Go on in a Python that is new enough, if this one is not."""
    if sys.version_info >= PYTHON_MIN:
        return
    for minor in range(14, PYTHON_MIN[1] - 1, -1):
        newer = shutil.which(f"python3.{minor}")
        if newer:
            os.execv(newer, [newer, *sys.argv])
    mine = ".".join(map(str, sys.version_info[:3]))
    raise Stopped(
        f"Python 3.{PYTHON_MIN[1]} or newer is needed and {sys.executable} is {mine}. "
        "Type: sudo apt-get install python3.11 python3.11-venv"
    )


def provide_venv() -> list[str]:
    """Make sure that `.venv` is there. Returns the command that is pip for it."""
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
        f"{sys.executable} can make no virtual environment: it has neither ensurepip nor pip. "
        f"Type: sudo apt-get install {package}"
    )


def create_venv(*options: str) -> bool:
    shutil.rmtree(VENV, ignore_errors=True)
    created = succeeds([sys.executable, "-m", "venv", *options, str(VENV)])
    if not created:
        shutil.rmtree(VENV, ignore_errors=True)
    return created


def create_venv_with_virtualenv() -> bool:
    """With a virtualenv that is thrown away afterwards: neither the system nor the home folder changes."""
    shutil.rmtree(VENV, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="geoemu-setup-") as folder:
        install([sys.executable, "-m", "pip"], "--target", folder, "virtualenv")
        return succeeds([sys.executable, "-m", "virtualenv", str(VENV)], PYTHONPATH=folder)


def pip_from_outside() -> list[str]:
    return [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]


def is_usable(python: Path) -> bool:
    """Whether it runs (its base may have been removed) and is new enough."""
    return succeeds([str(python), "-c", f"import sys; sys.exit(sys.version_info < {PYTHON_MIN})"])


def has_module(name: str) -> bool:
    return succeeds([sys.executable, "-c", f"import {name}"])


def install(pip: list[str], *what: str) -> None:
    done = subprocess.run([*pip, "install", *PIP, *what], stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Stopped("pip could not install; the reason is above. When it is gone, type: make setup")


def pinned() -> list[str]:
    return re.findall(r"^[A-Za-z0-9._-]+==", LOCK.read_text(), re.MULTILINE)


# ---- Java --------------------------------------------------------------------------------------------------


def provide_java() -> None:
    """Spark runs on Java. JAVA_HOME counts more than the PATH, as it does for Spark."""
    java = find_java()
    version = java_version(java) if java else None
    if version is not None and version >= JAVA_MIN:
        return
    home = os.environ.get("JAVA_HOME")
    if home:
        found = f"Java {version}" if version else "no Java"
        raise Stopped(
            f"Spark needs Java {JAVA_MIN} or newer and JAVA_HOME ({home}) has {found}. Type: unset JAVA_HOME"
        )
    if apt_install(*JAVA_PACKAGES, why=f"Java {JAVA_MIN} or newer, for Spark"):
        java = find_java()
        version = java_version(java) if java else None
        if version is not None and version >= JAVA_MIN:
            return
    found = f"{java} is Java {version}" if version else "there is none"
    raise Stopped(f"Spark needs Java {JAVA_MIN} or newer and {found}. Type: {java_line()}")


def find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


def java_version(java: str) -> int | None:
    """17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def java_line() -> str:
    for manager, line in (
        ("apt-get", f"sudo apt-get install {JAVA_PACKAGES[0]}"),
        ("dnf", "sudo dnf install java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
    ):
        if shutil.which(manager):
            return line
    return f"sudo apt-get install {JAVA_PACKAGES[0]}"


# ---- system packages ---------------------------------------------------------------------------------------


def apt_install(*candidates: str, why: str) -> bool:
    """Install the first of these packages that the system has, if we may. Whether one is installed now."""
    apt = apt_command()
    if apt is None:
        return False
    say(f"Installing {why}, with apt-get")
    run_quietly([*apt, "update"])
    return any(
        run_quietly([*apt, "install", "--yes", "--no-install-recommends", name]) for name in candidates
    )


def apt_command() -> list[str] | None:
    """apt-get as root, or None where we are neither root nor have a sudo without password."""
    if not shutil.which("apt-get"):
        return None
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    if os.geteuid() == 0:
        return apt
    if shutil.which("sudo") and succeeds(["sudo", "-n", "true"]):
        return ["sudo", "-n", *apt]
    return None


# ---- small parts -------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def succeeds(command: list[str], **environment: str) -> bool:
    """Whether a command ends well. What it prints does not matter."""
    return not _run(command, environment).returncode


def run_quietly(command: list[str]) -> bool:
    """Whether a command ends well. Shows what it printed when it does not."""
    done = _run(command, {})
    if done.returncode:
        print("  " + done.stdout.strip().replace("\n", "\n  "), file=sys.stderr)
    return not done.returncode


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, stdout=str(error))


if __name__ == "__main__":
    sys.exit(main())
