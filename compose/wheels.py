"""Collect what is installed into an image, as wheels: python3 compose/wheels.py FOLDER PYTHON_VERSION EXTRA...

Packages come pinned and hashed from requirements.lock, and with what they need; geoemu itself is built from this
checkout. Only what pyproject names for a region (core) and for the EXTRAs gets in; pip comes along, because base
images need not have it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ONLY = frozenset({"pyspark"})
"""What its authors publish as source, of which pip makes the wheel; the same one for every Python."""
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "emulator", "spark_jobs")
LONG_AGO = "315532800"
"""1980-01-01, the first day that a zip file knows: built twice, a wheel is the same."""


def main(folder: Path, python_version: str, extras: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    locked = _locked()
    names = wanted(extras, locked)
    pinned = [_without_comments(locked[name]) for name in names]
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(pinned):
        for old in folder.glob("*.whl"):
            old.unlink()
        _download(folder, names, pinned, python_version)
        stamp.write_text("\n".join(pinned))
    for old in folder.glob("geoemu-*.whl"):
        old.unlink()
    _build_ours(folder)


def wanted(extras: list[str], locked: dict[str, str]) -> list[str]:
    """The distributions that an image needs, by name, and those that they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"] + [
        need for extra in extras for need in project["optional-dependencies"][extra]
    ]
    names = {re.match(r"[\w.-]+", need)[0].lower() for need in needs}
    while more := {name for name, block in locked.items() if names & _needed_by(block)} - names:
        names |= more
    if missing := names - set(locked):
        sys.exit(f"requirements.lock has no {', '.join(sorted(missing))}")
    return sorted(names)


def _locked() -> dict[str, str]:
    """Distribution -> what requirements.lock says of it: its version, its hashes, and who needs it."""
    lock = (ROOT / "requirements.lock").read_text()
    found = re.finditer(r"^([\w.-]+)==.*?(?=^[\w.-]+==|\Z)", lock, re.MULTILINE | re.DOTALL)
    return {match[1].lower(): match[0] for match in found}


def _needed_by(block: str) -> set[str]:
    """`# via a`, or one per line."""
    comments = [line.lstrip(" #") for line in block.splitlines() if line.lstrip().startswith("#")]
    return {comment.removeprefix("via").strip().lower() for comment in comments}


def _without_comments(block: str) -> str:
    return "\n".join(line for line in block.splitlines() if not line.lstrip().startswith("#"))


def _download(folder: Path, names: list[str], pinned: list[str], python_version: str) -> None:
    of = dict(zip(names, pinned, strict=True))
    target = ("--only-binary", ":all:", "--python-version", python_version, "--implementation", "cp")
    with tempfile.TemporaryDirectory() as temporary:
        built, fetched = Path(temporary) / "built.txt", Path(temporary) / "fetched.txt"
        built.write_text("\n".join(of[name] for name in names if name in SOURCE_ONLY))
        fetched.write_text("\n".join(of[name] for name in names if name not in SOURCE_ONLY))
        _pip("download", "--no-deps", "--require-hashes", *target, "--dest", folder, "-r", fetched)
        if SOURCE_ONLY & set(names):
            # Takes the wheel that `make setup` left in pip's cache, if it did.
            options = ("--no-deps", "--require-hashes", "--use-pep517")
            _pip("wheel", *options, "--wheel-dir", folder, "-r", built)
    _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", folder, "pip")


def _build_ours(folder: Path) -> None:
    """From a copy: setuptools would leave its traces, and pick up older ones."""
    with tempfile.TemporaryDirectory() as temporary:
        for source in SOURCES:
            path = ROOT / source
            if path.is_dir():
                shutil.copytree(path, Path(temporary) / source, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, temporary)
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, temporary)


def _pip(*arguments: str | Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": LONG_AGO},
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:])
