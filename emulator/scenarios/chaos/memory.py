"""The memory of regions during random faults: sampled into `memory.jsonl` of the run directory, and summarised."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from emulator.errors import RuntimeFailure
from emulator.runtimes.contract import Runtime

MEMORY_FILE: Final = "memory.jsonl"
SAMPLE_SECONDS: Final = 1.0
MIB: Final = 1024 * 1024


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process and its children in bytes; None if the system does not report it. The
    process of a container is an init process, whose child is the region."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError, IndexError):
        return None
    own = pages * os.sysconf("SC_PAGE_SIZE")
    return own + sum(resident_bytes(child) or 0 for child in children)


class MemoryCurves:
    """Samples the resident memory of all regions of a run. Each start of a region begins a new curve, when the region
    is ready: before, its program is still being loaded."""

    def __init__(self, read_bytes: Callable[[int], int | None] = resident_bytes) -> None:
        self._read_bytes = read_bytes
        self._samples: dict[str, dict[int, list[int]]] = {}
        """Samples in bytes by region and process id, in the order of their times."""

    async def follow(self, runtime: Runtime) -> None:
        """Append a sample of each region to `memory.jsonl` once per SAMPLE_SECONDS, until cancelled."""
        with (runtime.run_dir / MEMORY_FILE).open("a") as file:
            while True:
                await self.sample(runtime, file.write)
                file.flush()
                await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self, runtime: Runtime, write: Callable[[str], object]) -> None:
        """Sample each region once, and pass the lines of the file to `write`."""
        try:
            status = await runtime.status()
        except RuntimeFailure:
            return
        for region in status.regions:
            if (
                region.state == "starting"
                or region.pid is None
                or (size := self._read_bytes(region.pid)) is None
            ):
                continue
            self._samples.setdefault(region.name, {}).setdefault(region.pid, []).append(size)
            line = {
                "at_ms": round(time.time() * 1000),
                "region": region.name,
                "pid": region.pid,
                "rss_bytes": size,
            }
            write(json.dumps(line) + "\n")

    def summary(self) -> Iterator[str]:
        """Yield a line for each region: its minimum, median and last sample, and the growth of its longest curve, from
        the median of the second quarter to that of the last one. The first quarter includes the start."""
        for region, curves in self._samples.items():
            sizes = [size for curve in curves.values() for size in curve]
            longest = max(curves.values(), key=len)
            quarter = max(1, len(longest) // 4)
            growth = median(longest[-quarter:]) - median(longest[quarter : 2 * quarter] or longest)
            yield (
                f"memory of {region}: minimum {_mib(min(sizes))}, median {_mib(median(sizes))}, "
                f"last {_mib(sizes[-1])}; growth {growth / MIB:+.1f} MiB in {len(longest)} s without a restart"
            )


def _mib(size: float) -> str:
    return f"{size / MIB:.1f} MiB"
