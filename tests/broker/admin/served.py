"""A region with its HTTP port on real sockets, in its own thread, for blocking clients."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from emulator.broker.admin.request import Authorize
from emulator.broker.admin.server import Admin
from emulator.broker.environment import Environment, ShiftedClock
from emulator.broker.region import Region
from emulator.client import Client
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
from emulator.net.network import SocketNetwork
from emulator.storage.configuration.memory import MemoryConfiguration
from emulator.storage.faulty import with_faults
from emulator.storage.memory import MemoryStore

DEADLINE_SECONDS = 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Served:
    """A running region and its ports. All methods block until the response arrives."""

    service_port: int
    admin_port: int
    region: Region
    loop: asyncio.AbstractEventLoop
    sockets: list[socket.socket] = field(default_factory=list)

    def raw(self, sent: bytes) -> bytes:
        """Send these bytes and return everything received until the region closes the connection."""
        with socket.create_connection(("127.0.0.1", self.admin_port), DEADLINE_SECONDS) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while chunk := connection.recv(65_536):
                received += chunk
            return received

    def ask(
        self, method: str, target: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """Send one request on a new connection. A body that is not bytes is sent as JSON; None: no body."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        given = {"Host": f"127.0.0.1:{self.admin_port}", "Connection": "close"} | (headers or {})
        if body is not None:
            given = {"Content-Type": "application/json", "Content-Length": str(len(body))} | given
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in given.items())
        return reply_in(self.raw(head.encode("latin-1") + b"\r\n" + (body or b"")))

    def ask_at_once(self, *requests: tuple[Any, ...]) -> list[int]:
        """Send requests concurrently, each with the arguments of `ask`. Return their statuses."""
        with ThreadPoolExecutor(len(requests)) as pool:
            return [reply.status for reply in pool.map(lambda request: self.ask(*request), requests)]

    def run(self, scenario: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a scenario with a client of the region, and close the client at the end."""

        async def within() -> T:
            async with Client([f"pulsar://127.0.0.1:{self.service_port}"]) as client:
                return await scenario(client)

        return asyncio.run(within())

    def get(self, target: str) -> Any:
        reply = self.ask("GET", target)
        assert reply.status == 200, (target, reply)
        return reply.json()


def reply_in(received: bytes) -> Reply:
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(status.split()[1]), headers, body)


@contextmanager
def served(authorize: Authorize | None = None, **changes: Any) -> Iterator[Served]:
    """Run a region `us` with the namespace public/default inside the `with` block."""
    namespaces = (NamespaceConfig("public/default", ("us",)),)
    fields = {"log": LogConfig("memory"), "namespaces": namespaces, **changes}
    config = RegionConfig(region="us", cluster="test", **fields)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[Region, Admin, int]:
        network = SocketNetwork()
        store = with_faults(await MemoryStore.open(region="us"), random.Random(1))
        clock = ShiftedClock(lambda: time.time_ns() // 1_000_000)
        region = Region(
            config, Environment(clock, random.Random(1), network, network, store, MemoryConfiguration())
        )
        await region.start()
        admin = Admin(region, {}, authorize)
        return region, admin, await admin.start()

    async def stop(region: Region, admin: Admin) -> None:
        admin.close()
        await region.stop()

    try:
        region, admin, port = asyncio.run_coroutine_threadsafe(start(), loop).result(DEADLINE_SECONDS)
        try:
            yield Served(region.clients.ports.service_port, port, region, loop)
        finally:
            asyncio.run_coroutine_threadsafe(stop(region, admin), loop).result(DEADLINE_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_SECONDS)
        loop.close()
