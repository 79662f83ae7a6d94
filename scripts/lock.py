"""Read requirements.lock, and select the packages of a set of extras.

pyproject.toml lists the dependencies of geoemu, and extras for optional purposes. The lock pins all packages with their
hashes, and names for each package the packages that require it. So one lock serves all purposes: `make run` installs
fewer packages than `make test`, and the image of a region fewer than `make run`. Uses only the standard library.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"


class NotPinned(Exception):
    """pyproject.toml names a package that requirements.lock does not have."""


def read_lock(path: Path = LOCK) -> dict[str, str]:
    """Return the lines of each package in the lock: its versions (some are for some versions of Python only), their
    hashes, and the packages that require it."""
    locked: dict[str, str] = {}
    for match in re.finditer(r"^([\w.-]+)==.*?(?=^[\w.-]+==|\Z)", path.read_text(), re.MULTILINE | re.DOTALL):
        name = match[1].lower()
        locked[name] = locked.get(name, "") + match[0]
    return locked


def wanted(extras: Iterable[str], locked: dict[str, str]) -> list[str]:
    """Return the names of all packages that geoemu with these extras requires, directly or indirectly.

    :raises NotPinned: if the lock does not contain one of them
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"] + [
        need for extra in extras for need in project["optional-dependencies"][extra]
    ]
    names = {re.match(r"[\w.-]+", need)[0].lower() for need in needs}
    while more := {name for name, block in locked.items() if names & _needed_by(block)} - names:
        names |= more
    if missing := names - set(locked):
        raise NotPinned(f"requirements.lock has no {', '.join(sorted(missing))}")
    return sorted(names)


def pin(block: str) -> str:
    """Return version and hashes of a package in the format of pip's requirements files."""
    return "\n".join(line for line in block.splitlines() if not line.lstrip().startswith("#"))


def _needed_by(block: str) -> set[str]:
    """Return the packages that require a package, from its comments: `# via a`, or one per line."""
    comments = [line.lstrip(" #") for line in block.splitlines() if line.lstrip().startswith("#")]
    return {comment.removeprefix("via").strip().lower() for comment in comments}
