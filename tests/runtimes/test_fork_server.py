"""Regions that are started as forks of one process, and what happens where that fails."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import RuntimeFailure
from emulator.run.processes import state_of
from emulator.runtimes import fork_server
from emulator.runtimes.process import ProcessRuntime

from .fixtures import REGIONS, small_topology

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks regions"),
]

DEADLINE_SECONDS = 120


def play(folder: Path, scenario: Callable[[ProcessRuntime], Coroutine[Any, Any, None]]) -> None:
    runtime = ProcessRuntime.create(small_topology(folder), folder / "run")

    async def run() -> None:
        try:
            await runtime.up()
            await scenario(runtime)
        finally:
            await runtime.down()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_SECONDS))


async def pids_of(runtime: ProcessRuntime) -> dict[str, int]:
    status = await runtime.status()
    return {region.name: region.pid for region in status.regions if region.pid is not None}


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_regions_are_processes_of_their_own_and_outlive_the_server(tmp_path: Path) -> None:
    async def steps(runtime: ProcessRuntime) -> None:
        pids = await pids_of(runtime)
        assert set(pids) == set(REGIONS)
        for name, pid in pids.items():
            folder = runtime.run_dir.resolve() / "regions" / name
            assert "emulator.broker.fork_server" in command_of(pid)
            assert command_of(pid).endswith(f" {runtime.run_dir} "), (
                "a pattern with one region's name matches none"
            )
            assert os.getsid(pid) == pid
            assert Path(f"/proc/{pid}/cwd").resolve() == folder
            opened = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
            assert opened == ["/dev/null", str(folder / "output.log"), str(folder / "output.log")]
        assert not any("fork_server" in command_of(child) for child in children())

    play(tmp_path, steps)


def children() -> list[int]:
    """Return the child processes of this process."""
    return [
        int(number)
        for tasks in Path("/proc/self/task").iterdir()
        for number in (tasks / "children").read_text().split()
    ]


def test_a_killed_region_starts_again_as_a_program(tmp_path: Path) -> None:
    async def steps(runtime: ProcessRuntime) -> None:
        other = (await pids_of(runtime))[REGIONS[1]]
        await runtime.kill(REGIONS[0])
        await runtime.start(REGIONS[0])
        pids = await pids_of(runtime)
        assert command_of(pids[REGIONS[0]]).endswith(
            "-m emulator.broker " + config_of(runtime, REGIONS[0]) + " "
        )
        assert pids[REGIONS[1]] == other

    play(tmp_path, steps)


def config_of(runtime: ProcessRuntime, region: str) -> str:
    return str(runtime.run_dir / "regions" / region / "region.json")


BROKEN_SERVERS = {
    "ends at once": "",
    "prints something else": "print('no module')",
    "ends after it was ready": "print('ready', flush=True)",
    "answers with no process id": "print('ready', flush=True); input(); print('sorry', flush=True)",
    "is never ready": "input()",
    "never responds": "print('ready', flush=True); input(); import time; time.sleep(1000)",
    "is killed": "import os; print('ready', flush=True); os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("program", BROKEN_SERVERS.values(), ids=BROKEN_SERVERS)
def test_without_a_working_server_regions_start_as_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(fork_server, "PROGRAM", (sys.executable, "-c", program))
    monkeypatch.setattr(fork_server, "READY_SECONDS", 1.0)
    monkeypatch.setattr(fork_server, "FORK_SECONDS", 0.2)

    async def steps(runtime: ProcessRuntime) -> None:
        pids = await pids_of(runtime)
        for name in REGIONS:
            assert command_of(pids[name]).endswith("-m emulator.broker " + config_of(runtime, name) + " ")

    play(tmp_path, steps)


def test_a_region_that_cannot_start_is_reported_with_its_output(tmp_path: Path) -> None:
    runtime = ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")
    Path(config_of(runtime, REGIONS[1])).with_name("log.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(RuntimeFailure) as failure:
        asyncio.run(asyncio.wait_for(runtime.up(), DEADLINE_SECONDS))
    assert f"{REGIONS[1]} ended before it was ready; the last lines of " in str(failure.value)
    assert "log.sqlite" in str(failure.value)
    for region in runtime._directory.read().regions.values():
        assert region.process is None or state_of(region.process) == "gone"


async def test_an_interrupted_start_ends_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "started"
    program = f"import pathlib, time, sys; pathlib.Path({str(mark)!r}).touch(); sys.stdin.read()"
    monkeypatch.setattr(fork_server, "PROGRAM", (sys.executable, "-c", program))
    servers: list[int] = []

    async def start() -> None:
        async with fork_server.open_fork_server(tmp_path, 2, os.environ):
            raise AssertionError("it never says that it is ready")

    starting = asyncio.create_task(start())
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not mark.exists():
            await asyncio.sleep(0.01)
    servers += [pid for pid in children() if str(tmp_path) in command_of(pid)]
    assert len(servers) == 1
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(servers[0], signal.SIGCONT)
