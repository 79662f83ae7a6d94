"""Scenes: regions and programs with one of the clients, so that the same test runs with every client. geoemu's own
client runs under virtual time in this process, all others on real sockets in separate processes (driving.py)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from emulator.broker.region import Region
from emulator.simulation.host import DRIVER
from emulator.simulation.simulation import Simulation
from tests.broker import regions as broker_regions
from tests.broker.regions import FAST, Regions, Surroundings
from tests.clients import driving
from tests.clients.driving import Failed, Program
from tests.clients.own import OwnDriver

OWN = "own"
CLIENTS = (OWN, *driving.CLIENTS)
QUICK = (OWN, "python")
"""Clients that start quickly: CI runs all cases with them."""
ORDERS = "persistent://public/default/orders"
WAIT_MS = 20_000
QUIET_MS = 1_000


def case(client: str, *values: object, java: pytest.MarkDecorator = pytest.mark.long) -> Any:
    """Return the pytest parameter of a client and further values. `.ci/run` adds Java, unless `java` is another mark,
    and Node; `.ci/long` runs Go and Rust."""
    if client in QUICK:
        return pytest.param(client, *values)
    marks = {"java": java, "node": pytest.mark.long}
    return pytest.param(client, *values, marks=marks.get(client, pytest.mark.slow))


def clients(*without: str, small: bool = False) -> pytest.MarkDecorator:
    """Parametrise a test with all clients except those without the feature (reasons: docs/CLIENTS.md). `small`: also
    with those whose drivers have few commands."""
    names = (*CLIENTS, *driving.SMALL_CLIENTS) if small else CLIENTS
    return pytest.mark.parametrize("client", [case(one) for one in names if one not in without])


class ClientProgram:
    """A program with a client for each region, named like the region. By default, methods use `us` and `orders`."""

    def __init__(self, program: Program) -> None:
        self.ask = program.ask
        self.kill = program.kill
        self.freeze = program.freeze

    def producer(
        self, topic: str = "orders", key: str = "p", client: str = "us", **more: object
    ) -> asyncio.Future[dict[str, str]]:
        return self.ask("producer", client=client, key=key, topic=topic, **more)

    async def send(self, *payloads: str, key: str = "p", **more: object) -> None:
        for payload in payloads:
            await self.ask("send", key=key, payload=payload, **more)

    async def send_batch(self, *payloads: str, key: str = "p") -> None:
        """Send these payloads, whose number is the producer's batch size, as one batch."""
        await self.ask("send_batch", key=key, payloads=",".join(payloads))

    async def send_bytes(self, size: int, seed: str = "x", key: str = "p", **more: object) -> str:
        """Send a payload that depends on the seed; return its digest."""
        return (await self.ask("send_bytes", key=key, size=size, seed=seed, **more))["digest"]

    def subscribe(
        self,
        topic: str | None = "orders",
        key: str = "c",
        client: str = "us",
        subscription: str = "s",
        **more: object,
    ) -> asyncio.Future[dict[str, str]]:
        return self.ask("subscribe", client=client, key=key, topic=topic, subscription=subscription, **more)

    def message(
        self, key: str = "c", timeout_ms: int = WAIT_MS, **more: object
    ) -> asyncio.Future[dict[str, str]]:
        """Receive the next message and acknowledge it by default. Return its fields."""
        return self.ask("receive", key=key, timeout_ms=timeout_ms, **more)

    async def receive(self, key: str = "c", timeout_ms: int = WAIT_MS, **more: object) -> str:
        """Receive the next message and return its payload."""
        return (await self.message(key, timeout_ms, **more))["payload"]

    async def receive_bytes(self, key: str = "c", timeout_ms: int = WAIT_MS) -> str:
        """Receive the next message and return the digest of its payload."""
        return (await self.ask("receive_bytes", key=key, timeout_ms=timeout_ms))["digest"]

    async def nothing_comes(self, key: str = "c") -> bool:
        with pytest.raises(Failed):
            await self.message(key, QUIET_MS)
        return True

    def reader(
        self, start: str, key: str = "r", topic: str = "orders", **more: object
    ) -> asyncio.Future[dict[str, str]]:
        return self.ask("reader", client="us", key=key, topic=topic, start=start, **more)

    async def rest(self, key: str = "r") -> list[str]:
        """Return the payloads of all messages that a reader reports as available."""
        remaining = []
        while (await self.ask("available", key=key))["answer"] == "yes":
            remaining.append((await self.ask("read", key=key, timeout_ms=WAIT_MS))["payload"])
        return remaining


async def rejected(request: asyncio.Future[dict[str, str]], seconds: float = 20) -> Failed:
    """Assert that the request fails, and return the client's error."""
    with pytest.raises(Failed) as caught:
        await asyncio.wait_for(request, seconds)
    return caught.value


class Scene:
    """The regions and programs of one test (fixture `scene`)."""

    def __init__(
        self,
        client: str,
        *names: str,
        programs: int = 1,
        seconds: float = 120,
        timeout_ms: int = 30_000,
        transactions: str | None = None,
        keep_alive_ms: int | None = None,
        **options: Any,
    ) -> None:
        """`timeout_ms`: operation timeout of the clients; `keep_alive_ms`: interval of their PINGs, by default 30 s
        (not of the Python client); `options`: arguments of `tests.broker.regions.regions`."""
        self.client = client
        self.programs: list[ClientProgram] = []
        self.world: Regions
        self._names = names or ("us",)
        self._count = programs
        self._seconds = seconds
        self._client_options = {
            "timeout_ms": timeout_ms,
            "transactions": transactions,
            "keep_alive_ms": keep_alive_ms,
        }
        self._options = {"settings": FAST, **options}

    @property
    def program(self) -> ClientProgram:
        return self.programs[0]

    @property
    def region(self) -> Region:
        return self.world.running["us"]

    async def play(self, test: Coroutine[Any, Any, None]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(test.close)
            self.world = await stack.enter_async_context(regions(*self._names, **self._options))
            for _ in range(self._count):
                program = ClientProgram(await stack.enter_async_context(driver(self.client)))
                for name, port in self.world.ports.items():
                    await self.add_client(program, name, port)
                self.programs.append(program)
            async with asyncio.timeout(self._seconds):
                await test

    async def add_client(self, program: ClientProgram, key: str, port: int, **options: object) -> None:
        """Add a client of the region at this port. `options` override those of the scene."""
        url = f"pulsar://127.0.0.1:{port}"
        await program.ask("client", key=key, url=url, **{**self._client_options, **options})

    async def restart(self, name: str = "us") -> None:
        """Crash a region and start it again."""
        await self.world.crash(name)
        await self.world.start(name)


_simulations: list[Simulation] = []
"""The simulation of the running test; empty if the test runs in real time."""


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
    """Return the time of the wall clock that regions and client share."""
    return _simulations[-1].host(DRIVER).wall_clock_ms() if _simulations else time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def regions(*names: str, **options: Any) -> AsyncIterator[Regions]:
    """Start regions like tests.broker.regions; in the simulation if the test runs in one."""
    if _simulations:
        host = _simulations[-1].host(DRIVER)
        ports = iter(range(6_650, 6_700))
        options["surroundings"] = Surroundings(lambda: host.network, host.wall_clock_ms, lambda: next(ports))
    async with broker_regions.regions(*names, **options) as world:
        yield world


@contextlib.asynccontextmanager
async def driver(client: str) -> AsyncIterator[Program]:
    """Run a program with this client inside the `async with` block."""
    if client != OWN:
        async with driving.driver(client) as process:
            yield process
        return
    made = OwnDriver(_simulations[-1])
    try:
        yield made
    finally:
        await made.end()
