"""What the compiled build (`make fast`) saves: processor time of both builds of this checkout, interleaved.

    python -m benchmarks.compiled [ROUNDS]

Both builds are copies of this checkout, and one of them is compiled. Each round runs every load once with each build,
in fresh processes; the order is reversed every round. The figures are processor time, which other programs on the
machine disturb less than rates.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.against_version import one_round
from scripts.compile import build, remove

HERE = Path(__file__).parent.parent
COPIED = ("benchmarks", "clusters", "emulator", "geoemu", "spark_jobs", "tests", "topology.yaml")
ROUND = """
import asyncio, json, time
from benchmarks import open_topics, raw_load, replicated_load
from benchmarks.brokers import geoemu
from tests.swarm.runner import run_seed
figures = []
with geoemu(deduplication=True) as broker:
    for load in ("100", "1024", "connections", "drain", "drain-disk"):
        figures.append(raw_load.LOADS[load].load(broker).broker_us)
figures += asyncio.run(replicated_load.one_round())[1:]
with geoemu(deduplication=True) as broker:
    figures.append(asyncio.run(open_topics._open(broker, 0, 1000)))
run_seed("failover", 0)
began = time.process_time()
for seed in range(1, 7):
    run_seed("failover", seed)
figures.append((time.process_time() - began) / 6 * 1e6)
print(json.dumps(figures))
"""
"""Prints the processor time of each of TITLES, in µs."""
TITLES = (
    "publish entries of 100 B",
    "publish entries of 1 KiB",
    "100 connections, one in flight each",
    "drain a backlog from memory",
    "drain a backlog from the disk",
    "replicate to two others, in the region that was published to",
    "the same in the busier of the others",
    "open a topic",
    "simulate a seed of `failover`",
)


def copy_of_checkout(folder: Path, *, compiled: bool) -> Path:
    for name in COPIED:
        source = HERE / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    remove(folder)
    if compiled:
        build(folder)
    return folder


def table(rounds: int = 5) -> str:
    """Medians of both builds as a Markdown table."""
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        builds = {
            name: copy_of_checkout(Path(folder) / name, compiled=name == "compiled")
            for name in ("sources", "compiled")
        }
        results: dict[str, list[list[float]]] = {name: [] for name in builds}
        for number in range(rounds):
            for name in builds if number % 2 == 0 else reversed(builds):
                results[name].append(one_round(builds[name], ROUND))
    rows = ["| processor time | sources (µs) | compiled (µs) | gain |", "|---|---|---|---|"]
    for column, title in enumerate(TITLES):
        pure, compiled = (statistics.median(row[column] for row in results[name]) for name in builds)
        rows.append(f"| {title} | {pure:,.1f} | {compiled:,.1f} | {pure / compiled:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
