"""Input classes that need an event loop: bytes on the binary port and on the HTTP port of a region in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any
from unittest.mock import patch

from emulator.broker.admin.server import Admin
from emulator.broker.authorizer import Authorizer
from emulator.broker.connection.commands import TABLE
from emulator.broker.connection.connection import ClientConnection
from emulator.broker.region import Region
from emulator.config.security import AuthorizationConfig
from emulator.model.machine import HEALTHY, DiskCondition
from emulator.model.principals import Principal
from emulator.net import http_server
from emulator.net.http_server import HttpConnection
from emulator.storage.faulty import FaultyStore, with_faults
from emulator.wire.frames import PING_FRAME, PONG_FRAME
from tests.broker.regions import Regions, regions
from tests.fuzz import seeds

INPUTS_PER_REGION = 1_000
"""Inputs after which the region is replaced: topics and subscriptions that inputs create stay in its memory."""
SETTLING_TURNS = 8
"""Turns of the event loop in which most requests are complete."""


class RecordedTransport(asyncio.Transport):
    """A transport whose other side reads everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class ServedRegion:
    """A region in memory, and its event loop. An exception in any task or callback fails the current input."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._errors: list[Any] = []
        self._stack = contextlib.AsyncExitStack()
        self._inputs = 0
        self._world: Regions | None = None

    def region(self) -> Region:
        if self._world is None or self._inputs >= INPUTS_PER_REGION:
            self._inputs = 0
            self._runner.run(self._replace())
        self._inputs += 1
        assert self._world is not None
        return self._world.running["us"]

    def renew(self) -> None:
        """Replace the region before the next input: what inputs reach depends on what exists already."""
        self._inputs = INPUTS_PER_REGION

    async def _replace(self) -> None:
        await self._stack.aclose()
        self._world = await self._stack.enter_async_context(regions("us"))
        region = self._world.running["us"]
        region.store = with_faults(region.store, random.Random(1))
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._errors.append(context))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.get_loop().run_until_complete(work)  # `Runner.run` replaces signal handlers each time
        if self._errors:
            context = self._errors.pop()
            raise AssertionError(context["message"]) from context.get("exception")


SERVED = ServedRegion()


async def _settle() -> None:
    for _ in range(SETTLING_TURNS):
        await asyncio.sleep(0)


def session(data: bytes) -> None:
    """Whatever a client sends in whatever order, the region serves other clients, and no task of it fails."""
    region = SERVED.region()
    SERVED.run(_session(region, data))


async def _session(region: Region, data: bytes) -> None:
    connection, transport = ClientConnection(region, TABLE), RecordedTransport()
    connection.connection_made(transport)
    role = seeds.ROLES.get(data[:1])
    is_special = role is not None or data[:1] == seeds.UNCONNECTED
    reads = (data[1:] if is_special else data).split(seeds.PAUSE)
    if data[:1] != seeds.UNCONNECTED:
        connection.data_received(seeds.CONNECT_FRAME)
        await _settle()
    if role is not None:
        config = AuthorizationConfig(superusers=("root",))
        connection.authorizer = Authorizer(config, region.policies, region.tenancy.admin_roles)
        connection.principal = Principal(role)
    for read in reads:
        if read[:1] == seeds.FULL_DISK:
            _store_of(region).set_condition(DiskCondition("full"))
        if not transport.is_closing():
            connection.data_received(read.removeprefix(seeds.FULL_DISK))
        await _settle()
    connection.connection_lost(None)
    _store_of(region).set_condition(HEALTHY)
    other, pinged = ClientConnection(region, TABLE), RecordedTransport()
    other.connection_made(pinged)
    other.data_received(seeds.CONNECT_FRAME + PING_FRAME)
    await _settle()
    other.connection_lost(None)
    assert pinged.written.endswith(PONG_FRAME)


def _store_of(region: Region) -> FaultyStore:
    assert isinstance(region.store, FaultyStore)
    return region.store


def http(data: bytes) -> None:
    """Whatever bytes arrive at the HTTP port, no response reports an error of the region."""
    region = SERVED.region()
    with patch.multiple(
        http_server, BODY_BYTES_MAX=512, REJECTED_BODY_BYTES_MAX=1_024
    ):  # inputs have at most 4 KiB
        SERVED.run(_http(region, data))


async def _http(region: Region, data: bytes) -> None:
    connection = HttpConnection(Admin(region, {}), region.spawn, region.resources.http_connections)
    transport = RecordedTransport()
    connection.connection_made(transport)
    connection.data_received(data)
    await _settle()
    if not transport.is_closing():
        connection.eof_received()
    connection.connection_lost(None)
    # 501: not implemented, such as other codings of a body.
    assert not transport.written.startswith((b"HTTP/1.1 500", b"HTTP/1.1 503")), bytes(
        transport.written[:200]
    )
