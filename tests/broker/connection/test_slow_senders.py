"""Clients that send a command in many small parts: they are read less often, and merely slow ones are served."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.connection import liveness
from emulator.broker.connection.connection import ClientConnection
from emulator.net.slow_senders import PAUSE_SECONDS
from emulator.wire import commands as wire
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import PING_FRAME
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import regions, until

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time

CONNECT = wire.Connect("slow", wire.PROTOCOL_VERSION, "", b"").encode()
PRODUCER = wire.create_producer(1, "persistent://public/default/orders", 1, "p").encode()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads from clients."""
    found: list[int] = []
    receive = ClientConnection.data_received

    def recorded(self: ClientConnection, data: bytes) -> None:
        found.append(len(data))
        receive(self, data)

    monkeypatch.setattr(ClientConnection, "data_received", recorded)
    return found


async def send_in_parts(client: RawClient, data: bytes, seconds: float) -> None:
    """Send single bytes in this time."""
    for byte in data:
        client.writer.write(bytes([byte]))
        await asyncio.sleep(seconds / len(data))


async def test_one_read_returns_several_parts_of_a_slow_sender(reads: list[int]) -> None:
    async with regions("us") as world, raw_client(world) as client:
        reads.clear()
        await send_in_parts(client, PRODUCER, 20)
        assert (await client.next()).HasField("producer_success")
        assert sum(reads) == len(PRODUCER)
        assert len(reads) < len(PRODUCER) / 2
        reads.clear()
        client.writer.write(PING_FRAME)
        assert (await client.ask(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))).HasField(
            "pong"
        )
        assert max(reads) >= len(PING_FRAME), "it is read at once again"


async def test_a_client_that_does_not_wait_between_the_parts_is_not_paused(reads: list[int]) -> None:
    async with regions("us") as world, raw_client(world) as client:
        began = asyncio.get_running_loop().time()
        for _ in range(20):
            await send_in_parts(client, PING_FRAME, 0.1)
            assert (await client.next()).type == pb.BaseCommand.PONG
        assert asyncio.get_running_loop().time() - began < 20 * 0.1 + PAUSE_SECONDS


async def test_a_connect_that_is_complete_just_in_time_is_accepted() -> None:
    async with regions("us") as world, raw_client(world, handshake=False) as client:
        await send_in_parts(client, CONNECT, liveness.HANDSHAKE_SECONDS - 0.01)
        assert (await client.next()).type == pb.BaseCommand.CONNECTED


async def test_a_connect_that_does_not_end_is_refused_in_time() -> None:
    async with regions("us") as world, raw_client(world, handshake=False) as client:
        sending = asyncio.create_task(send_in_parts(client, CONNECT[:-1], 2 * liveness.HANDSHAKE_SECONDS))
        await asyncio.sleep(liveness.HANDSHAKE_SECONDS / 2)
        async with asyncio.timeout(liveness.HANDSHAKE_SECONDS / 2 + 1):
            assert "handshake" in (await client.next()).error.message
        sending.cancel()
        await until(lambda: not world.running["us"].clients.connections)
        assert not len(world.running["us"].resources.slow_senders)


async def test_a_paused_client_that_leaves_is_forgotten() -> None:
    async with regions("us") as world:
        slow_senders = world.running["us"].resources.slow_senders
        async with raw_client(world) as client:
            await send_in_parts(client, PRODUCER[:10], 5)
            await until(lambda: len(slow_senders) == 1)
        await until(lambda: not len(slow_senders))
        await until(lambda: not world.running["us"].clients.connections)


async def test_another_region_is_always_read(reads: list[int]) -> None:
    async with regions("us", "eu") as world:
        client = await RawClient.connect_as_region(world, "eu")
        assert (await client.next()).type == pb.BaseCommand.CONNECTED
        (connection,) = [
            one for one in world.running["us"].clients.connections if one.client_version == "raw"
        ]
        await send_in_parts(client, PRODUCER[:20], 5)
        assert not connection.flow_control.is_reading_paused
        client.writer.transport.abort()
