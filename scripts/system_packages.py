"""The parts of a set-up outside `.venv`: Java for Spark, and system packages, installed with apt-get if possible.

Uses only the standard library.
"""

from __future__ import annotations

import os
import re
import shutil

import progress
from progress import Done, watch

JAVA_MIN = 17
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
NO_NETWORK = re.compile(
    r"name resolution|Name or service not known|Network is unreachable|No route to host|Connection refused"
    r"|[Tt]imed out|Temporary failure resolving|Could not connect|ProxyError"
)


class Stopped(Exception):
    """The set-up cannot continue; the message ends with the command to type."""


def provide_java() -> None:
    """Check that a Java for Spark exists, and install one otherwise. As for Spark, JAVA_HOME has precedence over
    PATH."""
    java = find_java()
    version = java_version(java) if java else None
    if version is not None and version >= JAVA_MIN:
        return
    home = os.environ.get("JAVA_HOME")
    if home:
        found = f"Java {version}" if version else "no Java"
        raise Stopped(
            f"Spark needs Java {JAVA_MIN} or newer but JAVA_HOME ({home}) has {found}. Type: unset JAVA_HOME"
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
    """Return the major version of a Java: 17 for `openjdk version "17.0.15"`, 8 for `java version "1.8.0_402"`."""
    done = run([java, "-version"])
    match = re.search(r'version "(?:1\.)?(\d+)', done.output)
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


def apt_install(*candidates: str, why: str) -> bool:
    """Install the first of these packages that apt-get can install. Return False if none was installed."""
    apt = apt_command()
    if apt is None:
        return False
    say(f"Installing {why}, with apt-get")
    updated = _apt([*apt, "update"], "updating the list of packages")
    failed = []
    for name in candidates:
        done = _apt([*apt, "install", "--yes", "--no-install-recommends", name], f"downloading {name}")
        if done.returncode == 0:
            return True
        failed.append(done)
    say(apt_sentence(updated if updated.returncode else failed[0]))
    return False


def _apt(command: list[str], text: str) -> Done:
    return watch(command, prefix="setup:   ", text=text)


def apt_sentence(done: Done) -> str:
    if match := NO_NETWORK.search(done.output):
        return f"apt-get cannot reach its packages ({match[0]})"
    last = done.output.strip().rpartition("\n")[2]
    return f"apt-get could not: {last or f'exit code {done.returncode}'}"


def apt_command() -> list[str] | None:
    """Return the command of apt-get as root; None if there is no apt-get, or neither root nor a sudo without
    password."""
    if not shutil.which("apt-get"):
        return None
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    if os.geteuid() == 0:
        return apt
    if shutil.which("sudo") and succeeds(["sudo", "-n", "true"]):
        return ["sudo", "-n", *apt]
    return None


def say(text: str) -> None:
    progress.say(f"setup: {text}")


def succeeds(command: list[str], **environment: str) -> bool:
    """Return whether a command ends with exit code 0. Its output is ignored."""
    return not run(command, **environment).returncode


def run(command: list[str], **environment: str) -> Done:
    """Run a command and show that it runs."""
    return watch(
        command, prefix="setup:   ", text=" ".join(map(os.path.basename, command[:3])), **environment
    )
