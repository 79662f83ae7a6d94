"""The start of the three regions of topology.yaml as processes, beside three Python processes that do nothing.

    python -m benchmarks start_regions

Ready: from `up` until every link is established and clients can publish. Processor time: of the three regions until
then and of the process that imports their program once, without the runtime that waits for them. Both kinds are started
in turn.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.brokers import processor_seconds
from emulator.config.loading import load_topology
from emulator.runtimes.process import ProcessRuntime

TOPOLOGY = Path("topology.yaml")
PROCESSES = 3
ROUNDS = 7


async def _regions(folder: Path) -> tuple[float, float]:
    """(seconds until they are ready, processor seconds of all)."""
    runtime = ProcessRuntime.create(load_topology(TOPOLOGY), folder)
    began, before = time.perf_counter(), _children_seconds()
    await runtime.up()
    try:
        ready = time.perf_counter() - began
        pids = [region.pid for region in (await runtime.status()).regions]
        assert len(pids) == PROCESSES, f"{TOPOLOGY} has {PROCESSES} regions"
        importing = _children_seconds() - before
        return ready, importing + sum(processor_seconds(pid) for pid in pids if pid is not None)
    finally:
        await runtime.down()


def _bare() -> tuple[float, float]:
    """(seconds until they have ended, processor seconds of all)."""
    began, before = time.perf_counter(), _children_seconds()
    processes = [subprocess.Popen([sys.executable, "-c", "pass"]) for _ in range(PROCESSES)]
    for process in processes:
        process.wait()
    return time.perf_counter() - began, _children_seconds() - before


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def table(rounds: int = ROUNDS) -> str:
    """Medians of both as a Markdown table."""
    regions: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []
    for _ in range(rounds):
        bare.append(_bare())
        with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
            regions.append(asyncio.run(_regions(Path(folder) / "run")))
    rows = ["| three processes | ready (s) | processor time (s) |", "|---|---|---|"]
    for what, figures in (("regions, linked", regions), ("`python -c pass`", bare)):
        ready, used = (statistics.median(column) for column in zip(*figures, strict=True))
        rows.append(f"| {what} | {ready:.2f} | {used:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
