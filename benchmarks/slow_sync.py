"""Measure on slower disks: syncs of a program and of the programs that it starts take a given time (`slow_sync.c`).

A virtual machine's disk may sync in less than 0.1 ms, because a cache of its host confirms the write. An SSD with a
protected cache has about the same, an SSD of a laptop 0.5 to 5 ms, and a hard disk about 10 ms.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.c_programs import built

SOURCE = Path(__file__).with_suffix(".c")


def output_of(module: str, *arguments: str, sync_ms: float) -> str:
    """Run a module of Python whose syncs, and those of all programs that it starts, take `sync_ms`, or as long as the
    disk takes if that is longer. Return what it printed."""
    library = built(SOURCE, "slow_sync.so", "-shared", "-fPIC")
    environment = {**os.environ, "LD_PRELOAD": str(library), "SYNC_NS": str(round(sync_ms * 1e6))}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
