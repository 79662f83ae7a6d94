"""An access to the real world inside a simulation raises an error with the line that did it."""

from __future__ import annotations

import asyncio
import builtins
import datetime
import io
import logging
import multiprocessing
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime as DateTime
from pathlib import Path
from random import choice
from time import monotonic
from typing import Any

import pytest

from emulator.simulation.determinism_guard import ReachedOutside
from emulator.simulation.simulation import Simulation
from emulator.simulation.virtual_time import EPOCH_MS


def in_a_simulation(action: Callable[[], Any]) -> Any:
    """Return the outcome of `action`, called by a program."""

    async def program() -> Any:
        return action()

    async def scenario() -> Any:
        return await simulation.host("us").ask(program())

    with Simulation(1) as simulation:
        return simulation.run(scenario())


FORBIDDEN: dict[str, Callable[[], Any]] = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "from time import monotonic": lambda: monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.sleep": lambda: time.sleep(0),
    "time.localtime": lambda: time.localtime(),
    "datetime.now": lambda: datetime.datetime.now(),
    "datetime.now with a zone": lambda: datetime.datetime.now(datetime.UTC),
    "from datetime import datetime": lambda: DateTime.utcnow(),
    "date.today": lambda: datetime.date.today(),
    "random.random": lambda: random.random(),
    "random.shuffle": lambda: random.shuffle([1]),
    "from random import choice": lambda: choice([1]),
    "random.seed": lambda: random.seed(1),
    "random.Random": lambda: random.Random(),
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "os.urandom": lambda: os.urandom(1),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "secrets": lambda: secrets.token_hex(),
    "socket.socket": lambda: socket.socket(),
    "socket.create_connection": lambda: socket.create_connection(("127.0.0.1", 1)),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
    "socket.socketpair": lambda: socket.socketpair(),
    "threading.Thread": lambda: threading.Thread(target=print).start(),
    "ThreadPoolExecutor": lambda: ThreadPoolExecutor().submit(print),
    "subprocess": lambda: subprocess.run(["true"], check=False),
    "multiprocessing": lambda: multiprocessing.get_context("fork").Process(target=print).start(),
    "os.fork": lambda: os.fork(),
    "os.system": lambda: os.system("true"),
    "open for writing": lambda: open("/dev/null", "w"),  # noqa: SIM115
    "Path.write_text": lambda: Path("/dev/null").write_text(""),
    "io.open for appending": lambda: io.open("/dev/null", mode="a"),  # noqa: SIM115, UP020
    "os.open for writing": lambda: os.open("/dev/null", os.O_WRONLY),
    "os.mkdir": lambda: Path("/nowhere").mkdir(),
    "tempfile": lambda: tempfile.TemporaryFile(),  # noqa: SIM115
    "sqlite3": lambda: sqlite3.connect("/dev/null"),
}

ALLOWED: dict[str, Callable[[], Any]] = {
    "seeded chance": lambda: random.Random(1).random(),
    "a time that is given": lambda: time.gmtime(0),
    "dates that are given": lambda: datetime.datetime(2026, 1, 1) - datetime.datetime.fromtimestamp(0),
    "reading": lambda: open(__file__).close(),
    "reading a path": lambda: Path(__file__).read_bytes(),
    "a database in memory": lambda: sqlite3.connect(":memory:").close(),
    "a traceback": lambda: traceback.format_stack(),
    "a log record": lambda: logging.getLogger("test").warning("hello %s", "you"),
    "an import": lambda: _import_afresh("colorsys"),
}


def _import_afresh(name: str) -> None:
    sys.modules.pop(name, None)
    __import__(name)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_reaching_out_is_an_error_that_names_the_line(name: str):
    """File and line of the program, also when a library made the call."""
    action = FORBIDDEN[name]
    with pytest.raises(ReachedOutside) as reached:
        in_a_simulation(action)
    assert f"{__file__}:{action.__code__.co_firstlineno}: " in str(reached.value)
    assert "host 'us'" in str(reached.value)


@pytest.mark.parametrize("name", ALLOWED)
def test_what_follows_from_the_seed_is_allowed(name: str):
    """And what a program cannot do without."""
    in_a_simulation(ALLOWED[name])


def test_swallowing_the_error_does_not_help():
    async def program() -> None:
        try:
            time.time()
        except BaseException:
            return

    with Simulation(1) as simulation:
        simulation.host("us").start(program())
        with pytest.raises(ReachedOutside):
            simulation.run_for(1)


def test_callbacks_without_a_line_of_their_own_are_caught_too():
    """`call_soon(time.sleep, 0)`, an executor's call: the error names the host."""

    async def program() -> None:
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0)

    with Simulation(1) as simulation:
        simulation.host("us").start(program())
        with pytest.raises(ReachedOutside, match=r"host 'us'"):
            simulation.run_for(1)


def test_the_main_program_may_step_outside():
    """`simulation.outside()` is for a test's own files; otherwise the test is guarded, too."""

    async def scenario() -> None:
        with simulation.outside():
            assert time.time() > 0
        with pytest.raises(ReachedOutside):
            time.time()

    with Simulation(1) as simulation, pytest.raises(ReachedOutside):
        simulation.run(scenario())


def test_other_threads_are_not_simulated():
    seen: list[float] = []
    go_on, done = threading.Event(), threading.Event()

    def look() -> None:
        go_on.wait(10)
        seen.append(time.time())
        done.set()

    def wait() -> None:
        go_on.set()
        done.wait(10)

    thread = threading.Thread(target=look)
    thread.start()
    in_a_simulation(wait)
    thread.join()
    assert seen[0] > 0


def test_log_records_are_stamped_with_the_hosts_own_time(caplog: pytest.LogCaptureFixture):
    """With its offset; and with its process id, which changes with a restart."""

    async def program() -> None:
        logging.getLogger("test").warning("%d", os.getpid())

    with Simulation(1) as simulation:
        us = simulation.host("us")
        us.wall_clock_ms.jump(500)
        us.start(program())
        simulation.run_for(1)
        us.kill()
        us.start(program())
        simulation.run_for(1)
    first, second = caplog.records
    assert (first.created * 1000, second.created * 1000) == (EPOCH_MS + 500, EPOCH_MS + 1500)
    assert first.getMessage() != second.getMessage()
    assert int(first.getMessage()) != os.getpid()


def test_instances_of_the_real_classes_are_instances_of_the_stand_ins():
    made_before = datetime.datetime(2026, 1, 1)

    def check() -> None:
        assert isinstance(made_before, datetime.datetime)
        assert isinstance(made_before, datetime.date)
        assert isinstance(made_before, DateTime)
        assert issubclass(type(made_before), datetime.datetime)
        made_inside.append(datetime.datetime.fromisoformat("2026-01-01"))
        made_inside.append(datetime.datetime(2026, 1, 1))

    made_inside: list[datetime.datetime] = []
    in_a_simulation(check)
    assert made_inside == [made_before, made_before]
    assert {type(made) for made in made_inside} == {datetime.datetime}


def test_everything_is_as_it_was_afterwards():
    before = (time.time, builtins.open, random.random, datetime.datetime, socket.socket.__init__, monotonic)
    with pytest.raises(ReachedOutside):
        in_a_simulation(FORBIDDEN["time.time"])
    after = (time.time, builtins.open, random.random, datetime.datetime, socket.socket.__init__, monotonic)
    assert before == after
    assert time.time() > 0
    assert datetime.datetime.now().year >= 2026


def test_a_simulation_can_go_without_a_guard():
    """For use with a debugger."""

    async def scenario() -> float:
        return time.time()

    with Simulation(1, guarded=False) as simulation:
        assert simulation.run(scenario()) > 0
