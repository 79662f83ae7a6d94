"""What it costs to have three regions: as processes and as containers, with their logs on SQLite and on a Kafka each.

    python -m benchmarks.containers [ROUNDS]

Ready: from `up` until every link is established and clients can publish. Memory: proportional set size of a region
and of its Kafka, idle, with the small programs that keep them; the largest of all. All cases in turn, in every other
round backwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.brokers import resident_bytes
from emulator.config.loading import load_topology
from emulator.errors import GeoemuError
from emulator.runtimes.compose.file import KAFKA_LABEL
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.runtimes.docker_engine import DockerEngine
from emulator.runtimes.process import ProcessRuntime

SQLITE, KAFKA = Path("topology.yaml"), Path("compose/topology.yaml")
"""The same three regions."""


@dataclass
class Case:
    """One way to run them, and what was measured."""

    where: str
    log: str
    topology: Path
    goal: str
    ready: list[float] = field(default_factory=list)
    region: list[int] = field(default_factory=list)
    kafka: list[int] = field(default_factory=list)
    failure: str = ""

    def row(self) -> str:
        if self.failure:
            return f"| {self.where} | {self.log} | {self.failure} | | | {self.goal} |"
        ready = f"{statistics.median(self.ready):.1f} ({min(self.ready):.1f} to {max(self.ready):.1f})"
        kafka = f"{max(self.kafka) / 1e6:.0f}" if self.kafka else ""
        return (
            f"| {self.where} | {self.log} | {ready} | {max(self.region) / 1e6:.0f} | {kafka} | {self.goal} |"
        )


def cases() -> list[Case]:
    return [
        Case("processes", "SQLite", SQLITE, "under 2 s, 80 MB"),
        Case("processes", "a Kafka each", KAFKA, ""),
        Case("containers", "SQLite", SQLITE, ""),
        Case("containers", "a Kafka each", KAFKA, "under 8 s, 250 MB with Kafka"),
    ]


async def measure(case: Case, folder: Path) -> None:
    """One start of all regions."""
    create: Callable[..., ProcessRuntime | ComposeRuntime] = (
        ComposeRuntime.create if case.where == "containers" else ProcessRuntime.create
    )
    runtime = create(load_topology(case.topology), folder)
    began = time.perf_counter()
    await runtime.up()
    try:
        case.ready.append(time.perf_counter() - began)
        regions = (await runtime.status()).regions
        case.region += [tree_bytes(region.pid) for region in regions if region.pid]
        if case.topology == KAFKA:
            case.kafka += [tree_bytes(pid) for pid in await kafka_pids(runtime)]
    finally:
        await runtime.down()


async def kafka_pids(runtime: ProcessRuntime | ComposeRuntime) -> list[int]:
    if isinstance(runtime, ProcessRuntime):
        keepers = runtime.run_dir.glob("regions/*/kafka/keeper.json")
        return [json.loads(keeper.read_text())["pid"] for keeper in keepers]
    kafkas = await DockerEngine().containers(runtime._containers._run_label, KAFKA_LABEL)
    return [kafka.pid for kafka in kafkas.values() if kafka.pid]


def tree_bytes(pid: int) -> int:
    """Return the memory of a process and its children: the first process in a container only waits for the others."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return resident_bytes(pid) + sum(tree_bytes(int(child)) for child in children)


def table(rounds: int = 3) -> str:
    """All figures as a Markdown table."""
    measured = cases()
    for number in range(rounds):
        for case in measured if number % 2 == 0 else measured[::-1]:
            if case.failure:
                continue
            with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
                os.chmod(folder, 0o755)  # containers look into it, too
                try:
                    asyncio.run(measure(case, Path(folder, "run")))
                except GeoemuError as failure:
                    case.failure = str(failure).splitlines()[0]
    return "\n".join(
        [
            "| regions as | log | ready (s): median, range | region (MB) | its Kafka (MB) | goal |",
            "|---|---|---|---|---|---|",
            *(case.row() for case in measured),
        ]
    )


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
    print(f"\nload of this machine in the last 5 minutes: {os.getloadavg()[1]:.1f}, cores: {os.cpu_count()}")
