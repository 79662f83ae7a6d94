"""Collect what is installed into an image, as wheels: python3 compose/wheels.py FOLDER PYTHON_VERSION EXTRA...

Packages come pinned and hashed from requirements.lock, and with what they need; geoemu itself is built from this
checkout. Only what pyproject names for a region (core) and for the EXTRAs gets in; pip comes along, because base
images need not have it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from lock import NotPinned, pin, read_lock, wanted  # noqa: E402

SOURCE_ONLY = frozenset({"pyspark"})
"""What its authors publish as source, of which pip makes the wheel; the same one for every Python."""
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "emulator", "spark_jobs")
LONG_AGO = "315532800"
"""1980-01-01, the first day that a zip file knows: built twice, a wheel is the same."""


def main(folder: Path, python_version: str, extras: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    locked = read_lock()
    try:
        names = [*wanted(extras, locked), "pip"]
    except NotPinned as missing:
        sys.exit(str(missing))
    pinned = [pin(locked[name]) for name in names]
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(pinned):
        for old in folder.glob("*.whl"):
            old.unlink()
        _download(folder, names, pinned, python_version)
        stamp.write_text("\n".join(pinned))
    for old in folder.glob("geoemu-*.whl"):
        old.unlink()
    _build_ours(folder)


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


def _build_ours(folder: Path) -> None:
    """From a copy: setuptools would leave its traces, and pick up older ones."""
    with tempfile.TemporaryDirectory() as temporary:
        for source in SOURCES:
            path = ROOT / source
            if path.is_dir():
                shutil.copytree(
                    path, Path(temporary) / source, ignore=shutil.ignore_patterns("__pycache__", "*.so")
                )
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
