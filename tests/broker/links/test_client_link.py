"""The emulated link between clients and their region, with clients that do not read, during the handshake, and while
the region stops."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.connection.connection import ClientConnection
from emulator.broker.connection.flow_control import PauseReason
from emulator.broker.links.delay_line import LINE_BYTES_MAX, SLOW_LINE_BYTES_MIN
from emulator.broker.links.emulation import EmulatedLink
from emulator.broker.topic.entry_cache import READ_BYTES
from emulator.client import AccessMode
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_flow
from emulator.wire.frames import frame_of, simple_frame
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.connection.test_flow_control import REQUESTS, TOPICS, get_topics
from tests.broker.regions import Regions, regions, until

MESSAGE_BYTES = 1_000_000
MESSAGES = 30
"""Together larger than the buffers of the sockets and the line."""


def link_of(world: Regions) -> EmulatedLink:
    return world.running["us"].environment.client_link


def the_connection(world: Regions) -> ClientConnection:
    (connection,) = world.running["us"].clients.connections
    return connection


def set_both(world: Regions, **changes: object) -> None:
    for outbound in (True, False):
        link_of(world).set(outbound=outbound, **changes)


async def publish_backlog(world: Regions) -> None:
    async with world.client("us") as client:
        producer = await client.producer("orders")
        for number in range(MESSAGES):
            await producer.send(b"%d" % number + bytes(MESSAGE_BYTES))


async def receive_backlog(client: RawClient) -> None:
    for _ in range(MESSAGES):
        assert (await client.next()).type == pb.BaseCommand.MESSAGE


async def begin_to_deliver_backlog(world: Regions, client: RawClient) -> None:
    await publish_backlog(world)
    await until(lambda: len(world.running["us"].clients.connections) == 1)
    earliest = pb.CommandSubscribe.Earliest
    assert (await client.subscribe(initialPosition=earliest)).HasField("success")
    client.writer.write(frame_of(encode_flow(1, 10 * MESSAGES)))


async def leave_responses_unread(world: Regions, client: RawClient) -> None:
    """Until the region pauses reading from the client. The names are long, so that the responses exceed the buffers of
    the sockets."""
    connection = the_connection(world)
    async with world.client("us") as other:
        for number in range(TOPICS):
            await other.producer(f"{number}-{'long' * 40}")
    client.writer.write(b"".join(map(get_topics, range(REQUESTS))))
    await until(lambda: PauseReason.ANSWERS in connection.flow_control.reasons)


async def test_a_client_whose_buffers_were_full_when_the_fault_began_receives_everything() -> None:
    """The link takes over a connection whose writing is paused; the region must resume it."""
    async with regions("us") as world, raw_client(world) as client:
        await begin_to_deliver_backlog(world, client)
        await until(lambda: the_connection(world).flow_control.is_writing_paused)
        set_both(world, latency_ms=1)
        set_both(world, latency_ms=0)
        await receive_backlog(client)


@pytest.mark.parametrize("state", ["cut", "held"])
async def test_a_region_stops_to_dispatch_to_a_client_whose_link_carries_nothing(state: str) -> None:
    async with regions("us") as world, raw_client(world) as client:
        set_both(world, latency_ms=1)
        set_both(world, state=state)
        delivery = asyncio.create_task(begin_to_deliver_backlog(world, client))
        await until(lambda: len(world.running["us"].clients.connections) == 2)
        assert not delivery.done()
        set_both(world, state="up")
        await delivery
        set_both(world, state=state)
        connection = the_connection(world)
        (emulated,) = link_of(world).connections
        await until(lambda: connection.flow_control.is_writing_paused or emulated.outbound.is_empty)
        assert emulated.outbound.waiting_bytes <= LINE_BYTES_MAX + 2 * MESSAGE_BYTES
        set_both(world, state="up", latency_ms=0)
        await receive_backlog(client)


async def test_the_line_to_a_slow_reader_is_short_and_its_backlog_stays_in_the_log() -> None:
    async with regions("us") as world, raw_client(world) as client:
        link_of(world).set(outbound=True, bandwidth_bytes_per_second=SLOW_LINE_BYTES_MIN)
        unsent_bytes_max = SLOW_LINE_BYTES_MIN + READ_BYTES + 2 * MESSAGE_BYTES
        await begin_to_deliver_backlog(world, client)
        connection = the_connection(world)
        await until(lambda: connection.flow_control.is_writing_paused)
        (emulated,) = link_of(world).connections
        for _ in range(20):
            await asyncio.sleep(0)
            assert emulated.outbound.waiting_bytes <= unsent_bytes_max
        # Unsent messages count as memory of the client.
        assert world.running["us"].resources.clients.held_bytes <= unsent_bytes_max
        link_of(world).set(outbound=True, bandwidth_bytes_per_second=None)
        await receive_backlog(client)


@pytest.mark.usefixtures("simulation")
async def test_a_half_open_client_that_left_responses_unread_is_disconnected_by_the_keep_alive() -> None:
    async with regions("us", keep_alive_interval_ms=2_000) as world, raw_client(world) as client:
        await leave_responses_unread(world, client)
        link_of(world).make_half_open()
        await until(lambda: not world.running["us"].clients.connections)
        link_of(world).end_half_open()
        await until(lambda: not link_of(world).connections)


@pytest.mark.parametrize("state", ["cut", "held"])
async def test_a_client_that_connects_while_its_link_carries_nothing_is_admitted_after_heal(
    state: str,
) -> None:
    """Also if CONNECT arrives byte by byte, before and after the begin of the fault."""
    async with regions("us") as world, raw_client(world, handshake=False) as client:
        connect = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        connect.connect.client_version, connect.connect.protocol_version = "raw", 19
        frame = simple_frame(connect)
        client.writer.write(frame[:7])
        await until(lambda: bool(world.running["us"].clients.connections))
        set_both(world, state=state)
        for start in range(7, len(frame)):
            client.writer.write(frame[start : start + 1])
            await client.writer.drain()
        answer = asyncio.create_task(client.next())
        await until(lambda: bool(link_of(world).connections))
        assert not answer.done()
        set_both(world, state="up")
        assert (await answer).type == pb.BaseCommand.CONNECTED
        await client.open_producer()


async def test_faults_that_begin_and_end_quickly_leave_a_working_connection() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        consumer = await client.subscribe("orders", "s")
        for number in range(100):
            sent = asyncio.ensure_future(producer.send(b"%d" % number))
            match number % 4:
                case 0:
                    set_both(world, state="cut")
                case 1:
                    set_both(world, state="held", latency_ms=1)
                case 2:
                    link_of(world).reset()
                case 3:
                    link_of(world).make_half_open()
                    link_of(world).end_half_open()
            set_both(world, state="up", latency_ms=0)
            await sent
        received: set[int] = set()
        while len(received) < 100:
            message = await asyncio.wait_for(consumer.receive(), 10)
            received.add(int(message.payload))
        await until(lambda: len(link_of(world).connections) <= 1)


@pytest.mark.parametrize("fault", ["cut", "held", "half_open"])
async def test_a_region_stops_while_the_link_of_a_client_with_a_backlog_carries_nothing(fault: str) -> None:
    async with regions("us") as world, raw_client(world) as client:
        await begin_to_deliver_backlog(world, client)
        link = link_of(world)
        if fault == "half_open":
            link.make_half_open()
        else:
            set_both(world, state=fault)
        async with asyncio.timeout(10):
            await world.stop("us")
        for outbound in (True, False):
            link.set(outbound=outbound, state="up")
        link.end_half_open()
        client.writer.transport.abort()
        await until(lambda: not link.connections)


@pytest.mark.parametrize("mode", [pb.Exclusive, pb.Shared])
async def test_the_keep_alive_frees_the_topic_and_name_of_a_half_open_producer(mode: int) -> None:
    async with regions("us", keep_alive_interval_ms=200) as world, raw_client(world) as owner:
        await owner.open_producer(name="p", producer_access_mode=mode)
        link_of(world).make_half_open()
        async with world.client("us") as client:
            name = "p" if mode == pb.Shared else None
            producer = await client.producer(
                "orders", name=name, access_mode=AccessMode.SHARED if name else AccessMode.WAIT_FOR_EXCLUSIVE
            )
            await producer.send(b"mine")
        link_of(world).end_half_open()
        with pytest.raises(ConnectionResetError):
            await owner.next()
