"""Build the C programs of the benchmarks on their first use."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

BUILD = Path(__file__).parent.parent / "build"


def built(source: Path, program: str, *options: str) -> Path:
    """Return the path of a program in the folder `build`. It is compiled if it is missing or older than its source."""
    target = BUILD / program
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        compiler = os.environ.get("CC") or shutil.which("cc")
        if compiler is None:
            raise SystemExit("benchmarks: a C compiler is needed. Type: sudo apt-get install gcc")
        BUILD.mkdir(exist_ok=True)
        subprocess.run([compiler, "-O2", "-std=c11", *options, "-o", str(target), str(source)], check=True)
    return target
