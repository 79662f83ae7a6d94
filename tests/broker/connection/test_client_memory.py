"""The memory of all clients of a region together: which are paused above the limit, and what ends their pause."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from emulator.broker.connection import client_memory
from emulator.broker.connection.client_memory import (
    CHECK_SECONDS,
    RELIEF_SECONDS,
    REPORT_SECONDS,
    SHARE_BYTES,
    ClientMemory,
)
from emulator.broker.connection.flow_control import FlowControl, PauseReason
from emulator.client import InitialPosition
from emulator.simulation.simulation import Simulation
from emulator.wire.codec_hot.publishing import send_frame
from tests.broker.admin.served import served
from tests.broker.connection.raw import RawClient, entry, raw_client
from tests.broker.regions import Regions, regions, until

LIMIT_BYTES = 1_000_000
NEVER_SECONDS = 1_000_000.0
READ_BYTES_MAX = 262_144
"""Bytes that asyncio reads at once."""


class User:
    """The flow control of a connection without a transport."""

    def __init__(self, memory: ClientMemory) -> None:
        self.events: list[str] = []
        self.flow_control = FlowControl(
            memory,
            lambda: self.events.append("stop"),
            lambda: self.events.append("resume"),
            lambda: self.events.append("disconnect"),
        )

    def publish(self, size_bytes: int) -> None:
        self.flow_control.pending_bytes += size_bytes
        self.flow_control.admitted()


@pytest.fixture
def memory() -> ClientMemory:
    return ClientMemory(limit_bytes=LIMIT_BYTES)


async def test_users_with_more_than_a_share_wait_until_half_is_free(
    simulation: Simulation, memory: ClientMemory
) -> None:
    one, two, small, region = (User(memory) for _ in range(4))
    region.flow_control.is_exempt = True
    one.publish(LIMIT_BYTES)
    assert one.events == [], "it is not over the limit"
    for user, size_bytes in ((small, SHARE_BYTES), (two, SHARE_BYTES + 1), (region, LIMIT_BYTES), (one, 1)):
        user.publish(size_bytes)
    assert [user.events for user in (one, two, small, region)] == [["stop"], ["stop"], [], []]
    region.flow_control.answered(LIMIT_BYTES)
    one.flow_control.answered(LIMIT_BYTES // 2)
    await asyncio.sleep(2 * CHECK_SECONDS)
    assert one.events == two.events == ["stop"], "less than half is free"
    one.flow_control.answered(LIMIT_BYTES // 2)
    await asyncio.sleep(2 * CHECK_SECONDS)
    assert one.events == two.events == ["stop", "resume"]
    assert not memory.paused


async def test_users_are_read_again_below_the_limit_if_half_does_not_get_free(
    simulation: Simulation, memory: ClientMemory
) -> None:
    one, two = User(memory), User(memory)
    one.publish(LIMIT_BYTES - 10)
    two.publish(SHARE_BYTES + 1)
    assert two.events == ["stop"]
    two.flow_control.answered(SHARE_BYTES)
    await asyncio.sleep(RELIEF_SECONDS / 2)
    assert two.events == ["stop"]
    await asyncio.sleep(RELIEF_SECONDS)
    assert two.events == ["stop", "resume"]
    assert one.events == []


async def test_clients_that_do_not_release_their_bytes_are_disconnected(
    simulation: Simulation, memory: ClientMemory
) -> None:
    users = [User(memory) for _ in range(4)]
    publisher, reader, small, large = users
    publisher.publish(100_000)
    small.flow_control.count_incomplete(100_000)
    reader.flow_control.unsent(400_000)
    large.flow_control.count_incomplete(600_000)
    for user in users:
        user.flow_control.unsent(user.flow_control._answers.size_bytes)  # each does something
        user.flow_control.admitted()
    assert all(user.events == ["stop"] for user in users)
    await asyncio.sleep(RELIEF_SECONDS + 2 * CHECK_SECONDS)
    # 1,200,000 bytes are held: without the two largest, half is free.
    assert [len(user.events) for user in users] == [1, 2, 1, 2]
    assert memory.disconnected == 2
    for user in (large, reader):
        user.flow_control.release()
    await asyncio.sleep(2 * CHECK_SECONDS)
    assert publisher.events == small.events == ["stop", "resume"]
    assert large.events == reader.events == ["stop", "disconnect"]


async def test_publishes_alone_disconnect_no_client(simulation: Simulation, memory: ClientMemory) -> None:
    """The store is slow: the region releases the memory itself."""
    user = User(memory)
    user.publish(LIMIT_BYTES + 1)
    await asyncio.sleep(10 * RELIEF_SECONDS)
    assert user.events == ["stop"]
    user.flow_control.answered(LIMIT_BYTES + 1)
    await asyncio.sleep(2 * CHECK_SECONDS)
    assert user.events == ["stop", "resume"]


async def test_many_pauses_are_one_warning_per_minute(
    simulation: Simulation, memory: ClientMemory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, client_memory.__name__)
    user = User(memory)
    for _ in range(20):
        user.publish(LIMIT_BYTES + 1)
        user.flow_control.answered(LIMIT_BYTES + 1)
        await asyncio.sleep(2 * CHECK_SECONDS)
    assert user.events == ["stop", "resume"] * 20
    await asyncio.sleep(REPORT_SECONDS)
    user.publish(LIMIT_BYTES + 1)
    levels = [record.levelno for record in caplog.records if record.name == client_memory.__name__]
    assert levels == [logging.WARNING, *[logging.DEBUG] * 19, logging.WARNING]


async def test_without_a_limit_no_client_is_paused() -> None:
    user = User(ClientMemory())
    user.flow_control.count_incomplete(10**12)
    assert user.events == []


async def attack(
    world: Regions, stack: contextlib.AsyncExitStack, count: int, frame_bytes: int = LIMIT_BYTES
) -> list[RawClient]:
    """Open connections that hold an incomplete frame each."""
    frame = send_frame(1, 0, data=entry(b"x" * frame_bytes))
    clients = [await stack.enter_async_context(raw_client(world)) for _ in range(count)]
    for number, client in enumerate(clients):
        await client.open_producer(name=f"attacker {number}", topic=f"attacked-{number}")
        client.writer.write(frame[:-1])
    return clients


async def test_incomplete_frames_of_many_clients_use_bounded_memory_and_delay_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_memory, "RELIEF_SECONDS", NEVER_SECONDS)
    async with (
        regions("us", "eu", clients_bytes_max=LIMIT_BYTES) as world,
        world.client("us") as client,
        world.client("eu") as abroad,
        contextlib.AsyncExitStack() as stack,
    ):
        memory = world.running["us"].resources.clients
        attackers = await attack(world, stack, 12, LIMIT_BYTES // 4)  # three of them are within the limit
        await until(lambda: len(memory.paused) > 5)
        # Small messages, consumers and other regions are served.
        producer = await client.producer("orders")
        consumer = await client.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
        for number in range(20):
            await producer.send(b"%d" % number)
        await (await abroad.producer("orders")).send(b"from eu" + bytes(2 * SHARE_BYTES))
        received = [(await consumer.receive()).payload[:7] for _ in range(21)]
        assert b"from eu" in received
        assert memory.is_over
        assert memory.held_bytes <= LIMIT_BYTES + len(attackers) * (SHARE_BYTES + READ_BYTES_MAX) + 100_000
        monkeypatch.setattr(client_memory, "RELIEF_SECONDS", 0.0)
        await until(lambda: not memory.paused)
        assert 0 < memory.disconnected < len(attackers)
        assert not memory.is_over


async def test_a_client_that_was_paused_continues_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_memory, "RELIEF_SECONDS", NEVER_SECONDS)
    async with (
        regions("us", clients_bytes_max=LIMIT_BYTES) as world,
        raw_client(world) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        memory = world.running["us"].resources.clients
        await client.open_producer()
        await attack(world, stack, 3)
        await until(lambda: memory.is_over)
        connection = next(iter(world.running["us"].clients.connections))  # the first one
        for number in range(3):
            client.writer.write(send_frame(1, number, data=entry(b"x" * 300_000, number)))
        await until(lambda: connection.flow_control.reasons == PauseReason.MEMORY)
        memory.limit_bytes = 10 * LIMIT_BYTES
        for number in range(3):
            assert (await client.next()).send_receipt.sequence_id == number
        assert connection.flow_control.reasons == PauseReason.NOTHING


def test_the_memory_of_clients_is_a_metric() -> None:
    with served() as us:
        metrics = us.ask("GET", "/metrics").body.decode()
        for name in ("memory_bytes", "memory_paused", "memory_disconnected_total"):
            assert f"\ngeoemu_clients_{name} 0" in metrics
