"""Run a test with one of the clients: our own runs under virtual time, in this process; all others on real sockets, in
a program of their own (driving.py). The test is the same."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from emulator.simulation.host import DRIVER
from emulator.simulation.simulation import Simulation
from tests.broker import regions as broker_regions
from tests.broker.regions import Regions, Surroundings
from tests.clients import driving
from tests.clients.driving import Program
from tests.clients.own import OwnDriver

OWN = "own"
CLIENTS = (OWN, *driving.CLIENTS)
QUICK = (OWN, "python")
"""These clients start quickly: `make test` runs all cases with them."""


def case(client: str, *values: object) -> Any:
    """Return the parameters of a case. `.ci/run` runs it with Java, too, and `.ci/long` with every client."""
    if client in QUICK:
        return pytest.param(client, *values)
    return pytest.param(client, *values, marks=pytest.mark.long if client == "java" else pytest.mark.slow)


_simulations: list[Simulation] = []
"""The simulation of the running test; empty where time is real."""


def run_with(client: str, test: Coroutine[Any, Any, None]) -> None:
    if client != OWN:
        asyncio.run(test)
        return
    with Simulation("stories") as simulation:
        _simulations.append(simulation)
        try:
            simulation.run(test)
        finally:
            _simulations.pop()


def now_ms() -> int:
    """The time by the clock of the regions and of the client."""
    return _simulations[-1].host(DRIVER).wall_clock_ms() if _simulations else time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def regions(*names: str, **wanted: Any) -> AsyncIterator[Regions]:
    """Start regions like tests.broker.regions, in the simulation if there is one."""
    if _simulations:
        host = _simulations[-1].host(DRIVER)
        ports = iter(range(6_650, 6_700))
        wanted["surroundings"] = Surroundings(lambda: host.network, host.wall_clock_ms, lambda: next(ports))
    async with broker_regions.regions(*names, **wanted) as world:
        yield world


@contextlib.asynccontextmanager
async def driver(client: str) -> AsyncIterator[Program]:
    """Start a program with a client in it."""
    if client != OWN:
        async with driving.driver(client) as process:
            yield process
        return
    made = OwnDriver(_simulations[-1])
    try:
        yield made
    finally:
        await made.end()
