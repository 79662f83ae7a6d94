"""Collect what is installed into the image of a region, as wheels: python3 compose/wheels.py FOLDER PYTHON_VERSION

Packages come pinned and hashed from requirements.lock; geoemu itself is built from this checkout. Only what pyproject
names for a region (core and Kafka) gets in; pip comes along, because base images need not have it.
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
EXTRAS = ("kafka",)
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "emulator", "spark_jobs")
LONG_AGO = "315532800"
"""1980-01-01, the first day that a zip file knows: built twice, a wheel is the same."""


def main(folder: Path, python_version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pinned = [_block(name) for name in wanted()]
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(pinned):
        for old in folder.glob("*.whl"):
            old.unlink()
        _download(folder, pinned, python_version)
        stamp.write_text("\n".join(pinned))
    for old in folder.glob("geoemu-*.whl"):
        old.unlink()
    _build_ours(folder)


def wanted() -> list[str]:
    """The distributions that a region needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"] + [
        need for extra in EXTRAS for need in project["optional-dependencies"][extra]
    ]
    return sorted({re.match(r"[\w.-]+", need)[0] for need in needs})


def _block(name: str) -> str:
    """What requirements.lock says of a distribution: its version and hashes."""
    lock = (ROOT / "requirements.lock").read_text()
    found = re.search(rf"^{re.escape(name)}==.*?(?=^[\w.-]+==|\Z)", lock, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"requirements.lock has no {name}")
    return "\n".join(line for line in found[0].splitlines() if not line.lstrip().startswith("#"))


def _download(folder: Path, pinned: list[str], python_version: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_text("\n".join(pinned))
        target = ("--only-binary", ":all:", "--python-version", python_version, "--implementation", "cp")
        _pip("download", "--no-deps", "--require-hashes", *target, "--dest", folder, "-r", requirements)
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
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
