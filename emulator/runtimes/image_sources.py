"""Check whether an image was built from the present sources.

    python -m emulator.runtimes.image_sources region     prints the digest of that image's sources

`compose/images.sh` labels images with the digest. Without the check, a developer who changes the code and does not
rebuild the image would run the old code without a warning.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import emulator

SOURCES_LABEL = "geoemu.sources"
SOURCES = {
    "region": ("emulator", "compose/region", "scripts/compile.py", "requirements.lock"),
    "kafka": ("compose/kafka",),
    "spark": ("emulator", "spark_jobs", "compose/spark", "requirements.lock"),
    "testcontainers": ("emulator", "compose/region", "compose/testcontainers", "requirements.lock"),
}
"""Sources of each image: files and folders of the checkout."""
ABOVE_THE_BROKER = frozenset({"cli", "scenarios", "runtimes", "simulation"})
"""Folders of `emulator` that no program in an image of WITHOUT_COMMAND_LINE imports; changes in them require no new
image."""
WITHOUT_COMMAND_LINE = frozenset({"region", "kafka", "spark"})


def checkout() -> Path | None:
    """Return the checkout from which this program runs; None if it is installed as a package."""
    root = Path(emulator.__file__).parents[1]
    return root if (root / "compose" / "images.sh").is_file() else None


def sources_digest(root: Path, kind: str) -> str:
    """Return a digest of the names and contents of an image's sources, without byte code, compiled modules and what no
    program in the image imports."""
    digest = hashlib.sha256()
    for path in sorted(_files(root, kind)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _files(root: Path, kind: str) -> Iterator[Path]:
    left_out = ABOVE_THE_BROKER if kind in WITHOUT_COMMAND_LINE else frozenset()
    for source in SOURCES[kind]:
        for path in (root / source).rglob("*") if (root / source).is_dir() else [root / source]:
            below = path.relative_to(root).parts
            is_made = "__pycache__" in below or path.suffix == ".so"
            if path.is_file() and not is_made and not (left_out & set(below[1:2])):
                yield path


def stale_warning(kind: str, image: str, labels: Mapping[str, str]) -> str | None:
    """Return a warning if the image was built from other sources than those of this checkout, otherwise None. Without a
    checkout nothing is checked, and of images without the label only those whose names end with `:local`."""
    root = checkout()
    if root is None or (SOURCES_LABEL not in labels and not image.endswith(":local")):
        return None
    if labels.get(SOURCES_LABEL) == sources_digest(root, kind):
        return None
    where = "" if root == Path.cwd() else f"cd {root}; "
    return (
        f"{image} was not built from the present sources and is used unchanged: `{where}bash compose/images.sh "
        f"{kind}` rebuilds it"
    )


if __name__ == "__main__":
    here = checkout()
    assert here is not None, "images are built from a checkout"
    print(sources_digest(here, sys.argv[1]))
