"""The memory of regions during random faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from emulator.runtimes.contract import RegionState
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.chaos.memory import MEMORY_FILE, MIB, MemoryCurves, resident_bytes
from tests.scenarios.virtual import REGIONS, PretendedRuntime, ScenarioHarness, in_virtual_time


def test_the_curve_of_each_region_is_written_and_summarised(tmp_path: Path) -> None:
    harness = ScenarioHarness(tmp_path)
    sizes = iter(range(30 * MIB, 1000 * MIB, MIB // 3))
    memory = MemoryCurves(lambda pid: next(sizes))
    harness.run("chaos: {for: 20s, seed: 1}", chaos=ChaosControl(memory=memory))
    lines = [json.loads(line) for line in (tmp_path / MEMORY_FILE).read_text().splitlines()]
    assert {line["region"] for line in lines} == set(REGIONS)
    assert 20 <= len(lines) / len(REGIONS) <= 22
    summary = list(memory.summary())
    assert [line.partition(":")[0] for line in summary] == [f"memory of {region}" for region in REGIONS]
    assert "minimum 30.0 MiB" in summary[0]
    assert "growth +1" in summary[0]


def test_a_restart_begins_a_new_curve_when_the_region_is_ready(tmp_path: Path) -> None:
    """Growth is that of one process, without the time in which its program is loaded."""
    states: Iterator[RegionState] = iter(["running"] * 4 + ["starting"] * 2 + ["running"] * 3)
    pids = iter([1, 1, 1, 1, 2, 2, 2, 2, 2])
    sizes = iter([10, 10, 10, 10, 90, 90, 90])

    async def three_regions_sampled() -> list[str]:
        runtime = PretendedRuntime(tmp_path)
        memory = MemoryCurves(lambda pid: next(sizes) * MIB)
        for pid in pids:
            one = _OneRegion(runtime, pid, next(states))
            await memory.sample(one, lambda line: None)  # type: ignore[arg-type]
        return list(memory.summary())

    assert in_virtual_time(three_regions_sampled()) == [
        "memory of us-east: minimum 10.0 MiB, median 10.0 MiB, last 90.0 MiB; "
        "growth +0.0 MiB in 4 s without a restart"
    ]


class _OneRegion:
    """The status of one region with a given process id and state."""

    def __init__(self, runtime: PretendedRuntime, pid: int, state: RegionState) -> None:
        self._runtime, self._pid, self._state = runtime, pid, state

    async def status(self) -> object:
        status = await self._runtime.status()
        return replace(status, regions=(replace(status.regions[0], pid=self._pid, state=self._state),))


def test_the_memory_of_a_process_includes_its_children() -> None:
    """The first process of a container is an init process of less than a megabyte."""
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the child runs
        own = int(Path(f"/proc/{parent.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        both = resident_bytes(parent.pid)
        parent.communicate(b"\n")
    assert both is not None
    assert both > own * 1.5


def test_the_memory_of_a_process_is_read_and_that_of_a_dead_one_is_unknown() -> None:
    assert (resident_bytes(os.getpid()) or 0) > 5 * MIB
    assert resident_bytes(2**22 + 1) is None
