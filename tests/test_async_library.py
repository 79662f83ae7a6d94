"""`geoemu.up_async`: the same methods for an event loop, which they do not block."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import geoemu
from emulator.run.history_events import read_events
from geoemu.async_geo import AsyncGeo
from geoemu.asynchronous import CALLS_MAX, AsyncFault, Threads
from geoemu.run import Geo
from geoemu.scopes import FaultScope
from scripts.async_api import TARGET, generate
from tests.runtimes.fixtures import end_all, living, write_topology

ROOT = Path(__file__).parents[1]
_USERS_TEST = """
async def test_a_service_survives(geo):
    async with geo.cut("us-east", "eu-central"):
        assert await geo.state("us-east") == "running"
    await geo.drain()
"""
_USERS_FIXTURE = """
    async with geoemu.up_async("topology.yaml", run_dir="run") as geo:
        yield geo
"""
USERS_TESTS = {
    "anyio": f"""
import geoemu
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def geo(anyio_backend):{_USERS_FIXTURE}
@pytest.mark.anyio{_USERS_TEST}""",
    "asyncio": f"""
import geoemu
import pytest
import pytest_asyncio

@pytest_asyncio.fixture
async def geo():{_USERS_FIXTURE}
@pytest.mark.asyncio{_USERS_TEST}""",
}
"""Plugin for asynchronous tests -> a user's test."""
TYPED = """
import geoemu
from typing import assert_type

async def use() -> None:
    async with geoemu.up_async("topology.yaml") as geo:
        assert_type(geo, geoemu.AsyncGeo)
        assert_type(await geo.verify(), geoemu.Verdict)
        assert_type(await geo.failover_plan("t", "s", from_="a", to="b"), geoemu.FailoverPlan)
        async with geo.cut("a", "b", one_way=True):
            await geo.await_state("a", snapshot_round=2)
        await geo.kill(3)  # line 11
        await geo.nonsense()  # line 12
"""


def test_the_generated_module_is_that_of_the_present_methods() -> None:
    """`python -m scripts.async_api` generates it again."""
    assert TARGET.read_text() == generate()


def test_every_method_has_the_same_parameters() -> None:
    methods = {
        name: one for name, one in inspect.getmembers(Geo, inspect.isfunction) if not name.startswith("_")
    }
    assert len(methods) > 40
    for name, method in methods.items():
        twin = inspect.signature(getattr(AsyncGeo, name))
        assert twin.parameters == inspect.signature(method).parameters, name


async def test_a_cancelled_call_is_completed_and_undone() -> None:
    threads, begun, may_end = Threads(), asyncio.Event(), threading.Event()
    loop, undone = asyncio.get_running_loop(), []

    def call() -> str:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(30)
        return "result"

    task = asyncio.create_task(threads.run(call, undone.append))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # an impatient caller
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == ["result"]
    threads.close()


async def test_the_error_of_a_cancelled_call_is_not_lost_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads, begun, may_end = Threads(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def call() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(30)
        raise ValueError("too late")

    task = asyncio.create_task(threads.run(call))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    assert not caplog.records
    threads.close()


async def test_calls_that_wait_for_each_other_run_together() -> None:
    threads, barrier = Threads(), threading.Barrier(CALLS_MAX // 2)
    await asyncio.gather(*(threads.run(lambda: barrier.wait(30)) for _ in range(barrier.parties)))
    threads.close()


async def test_a_fault_begins_once_and_ends_with_its_block() -> None:
    done: list[str] = []

    def begin() -> FaultScope:
        done.append("begun")
        return FaultScope(lambda: done.append("ended"))

    threads = Threads()
    fault = await AsyncFault(threads, begin)
    assert done == ["begun"]
    async with fault:
        assert done == ["begun"]
    assert done == ["begun", "ended"]
    threads.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_fault_that_nothing_awaits_is_warned_of() -> None:
    threads = Threads()
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        AsyncFault(threads, lambda: FaultScope(lambda: None))  # dropped at once
    threads.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    write_topology(tmp_path)
    yield tmp_path
    end_all(tmp_path / "run")


@pytest.mark.real
async def test_a_run_does_not_block_the_event_loop(folder: Path) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    counting = asyncio.create_task(count_turns())
    async with geoemu.up_async(folder / "topology.yaml", run_dir=folder / "run") as geo:
        assert turns > 5, "the loop ran while the regions started"
        assert geo.regions == ("us-east", "us-west", "eu-central")
        assert await geo.state("us-east") == "running"
        async with geo.cut("us-east", "eu-central"):
            assert set(await geo.explain("link", "us-east", "eu-central")) == {"us-east"}
        await asyncio.gather(geo.kill("us-west"), geo.kill("eu-central"))
        waiting = asyncio.create_task(geo.drain(within="60s"))
        await asyncio.gather(*(geo.start(name) for name in ("us-west", "eu-central")))
        await waiting
        with pytest.raises(geoemu.RuntimeFailure, match="did you mean us-east"):
            await geo.kill("us-esat")
        async with geoemu.attach_async(folder / "run") as same:
            assert same.run_dir == geo.run_dir
        assert await geo.state("us-east") == "running", "leaving an attached run does not end it"
    counting.cancel()
    assert living(folder / "run") == []
    done = [event.op for event in read_events(folder / "run" / "history" / "operator.jsonl")]
    assert sorted(done) == ["cut", "heal", "kill", "kill", "start", "start"]


@pytest.mark.real
async def test_a_cancelled_start_leaves_no_region(folder: Path) -> None:
    async def use() -> None:
        async with geoemu.up_async(folder / "topology.yaml", run_dir=folder / "run"):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(use())
    deadline = asyncio.get_running_loop().time() + 30
    while not (folder / "run" / "run.json").exists():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert living(folder / "run") == []


@pytest.mark.real
async def test_the_error_of_a_block_ends_the_run_and_is_raised(folder: Path) -> None:
    async def use() -> None:
        opening = geoemu.up_async(folder / "topology.yaml", run_dir=folder / "run")
        async with opening as geo, geo.pause("us-east"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    assert living(folder / "run") == []


@pytest.mark.real
@pytest.mark.parametrize("plugin", USERS_TESTS)
def test_a_users_test_runs_with_each_plugin_for_asynchronous_tests(folder: Path, plugin: str) -> None:
    (folder / "test_service.py").write_text(USERS_TESTS[plugin])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_service.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_a_type_checker_sees_the_signatures(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(tmp_path / "use.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["11", "12"], done.stdout
