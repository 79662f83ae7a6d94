"""The same seed gives the same run, up to the last callback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.simulation.simulation import Simulation
from emulator.simulation.trace import callback_name
from tests.swarm.generator.kinds import KINDS

from .chatter import trace_of

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SEEDS = range(5)
WORKLOADS = f"""
from tests.swarm.generator.kinds import draw
from tests.swarm.runner import run_plan
for kind in {list(KINDS)}:
    listener = None if kind == "encryption" else lambda at, host, what: None
    print(kind, run_plan(draw(kind, 2), listener=listener).digest)
"""
"""A listener makes callbacks and bytes part of the digest. OpenSSL draws the keys and the padding of `encryption`: its
bytes differ between processes; its steps and sizes do not."""


def test_the_same_seed_twice_is_the_same_run():
    """Every callback of every host at the same virtual time, every byte, every commit."""
    for seed in SEEDS:
        assert trace_of(seed) == trace_of(seed)


def test_what_else_the_process_does_makes_no_difference():
    """Different memory contents, and uncollected garbage."""
    before = trace_of(1)
    rubbish = [[object() for _ in range(1000)] for _ in range(100)]
    for one in rubbish:
        one.append(one)
    del rubbish, one
    gc.collect(0)
    assert trace_of(1) == before


def test_sets_of_tasks_and_futures_have_the_same_order_in_every_run():
    """asyncio keeps them in sets, which decide the order of cancellation and of results."""

    async def member(number: int, cancelled: list[object]) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def scenario() -> list[object]:
        seen: list[object] = []
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(member(number, seen))
                await asyncio.sleep(1)
                group.create_task(asyncio.to_thread(lambda: 1 / 0))
        loop = asyncio.get_running_loop()
        futures = {loop.create_future(): number for number in range(50)}
        for future in futures:
            loop.call_later(1, future.set_result, None)
        done, _ = await asyncio.wait(list(futures))
        seen += [futures[future] for future in done]
        seen += sorted(task.get_name() for task in asyncio.all_tasks())
        return seen

    def run() -> list[object]:
        with Simulation(1) as simulation:
            return simulation.run(scenario())

    first = run()
    rubbish = [bytes(n) for n in range(1000)]
    assert run() == first
    del rubbish
    assert run() == first
    assert len(first) == 101


def test_different_seeds_are_different_runs():
    assert len({trace_of(seed) for seed in SEEDS}) == len(SEEDS)
    assert len({trace_of(seed, detail=False) for seed in SEEDS}) == len(SEEDS)


def test_another_process_under_another_hash_seed_has_the_same_run():
    """No order of a set or of addresses decides anything."""
    here = trace_of(3)
    for hash_seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.chatter", "3"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.split() == here.split()


def test_every_workload_has_the_same_trace_under_another_hash_seed():
    """No workload depends on the order of a set of names, or of a set of objects, which is that of their addresses."""
    first, second = (
        subprocess.run(
            [sys.executable, "-c", WORKLOADS],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "77")
    )
    assert [line.split()[0] for line in first] == list(KINDS)
    assert first == second


def test_a_run_can_be_listened_to():
    """The trace has time, host and event, and no address."""
    heard: list[tuple[float, str, str]] = []

    async def program() -> None:
        pass

    with Simulation(1, listener=lambda *what: heard.append(what)) as simulation:
        simulation.host("us").start(program())
        simulation.run_for(1)
    assert (0.0, "us", f"task {program.__qualname__}") in heard
    assert not any("0x" in what for _, _, what in heard)


def test_names_of_callbacks_say_nothing_of_where_they_lie():
    """Functions, methods, partials, callables."""

    class Callable:
        def __call__(self) -> None: ...

        def method(self) -> None: ...

    from functools import partial

    prefix = "test_names_of_callbacks_say_nothing_of_where_they_lie.<locals>."
    assert callback_name(partial(partial(Callable().method), 1)) == prefix + "Callable.method"
    assert callback_name(Callable()) == prefix + "Callable"
    assert callback_name([].append) == "list.append"
