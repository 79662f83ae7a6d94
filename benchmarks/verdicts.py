"""Verdicts: how long one takes from the command to the report, and in how much memory, by each engine.

    python -m benchmarks.verdicts [MESSAGES …]

Of each size a run is written first (`judged_run`). Rows are what there is to read: messages, stored three times each,
and four lines of history for each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.judged_run import REGIONS, write_run

SMALL, LARGE = 3_000, 1_000_000
ENGINES = ("embedded", "spark")
GOALS = {
    ("embedded", SMALL): "2 s",
    ("spark", SMALL): "8 s",
    ("spark", LARGE): "4 GB, 100,000 rows/s and core",
}
LOOK_SECONDS = 0.5
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Taken:
    """One verdict."""

    seconds: float
    megabytes: float


def table(sizes: Sequence[int] = (SMALL,)) -> str:
    lines = [
        "| run | engine | from the command to the report (s) | memory (MB) | rows/s and core | goal |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="geoemu-verdicts-") as folder:
        for messages in sizes:
            run = write_run(Path(folder) / str(messages), messages)
            lines += (row(run, messages, engine) for engine in ENGINES)
    return "\n".join(lines)


def row(run: Path, messages: int, engine: str) -> str:
    whole = verdict(run, engine)
    rows = messages * (len(REGIONS) + 4)
    rate = f"{rows / whole.seconds / CORES:,.0f}" if messages >= LARGE else ""
    goal = GOALS.get((engine, messages), "")
    figures = f"{whole.seconds:.1f} | {whole.megabytes:,.0f} | {rate}"
    return f"| {messages:,} messages, {rows:,} rows | {engine} | {figures} | {goal} |"


def verdict(run: Path, engine: str) -> Taken:
    command = [sys.executable, "-m", "spark_jobs.verify", str(run), "--engine", engine]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most = Watched(process.pid)
    output, _ = process.communicate()
    seconds = time.perf_counter() - began
    assert output.startswith("VALID"), output
    return Taken(seconds, most.megabytes())


class Watched:
    """The most memory that a process and its children held together."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most_kilobytes = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def megabytes(self) -> float:
        self._thread.join()
        return self._most_kilobytes / 1024

    def _watch(self) -> None:
        while held := sum(map(_kilobytes, _family(self._pid))):
            self._most_kilobytes = max(self._most_kilobytes, held)
            time.sleep(LOOK_SECONDS)


def _family(pid: int) -> Iterable[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _kilobytes(pid: int) -> int:
    """Proportional: what several share counts once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    print(table([int(size) for size in sys.argv[1:]] or [SMALL]))
