"""One client cannot take the memory of all, and the broker does not time out a client whose reads it paused itself."""

from __future__ import annotations

import asyncio
import struct

import pytest

from emulator.broker.connection import attachments, liveness
from emulator.broker.connection.client_memory import ClientMemory
from emulator.broker.connection.commands import REQUEST_BYTES
from emulator.broker.connection.connection import ClientConnection
from emulator.broker.connection.flow_control import (
    ANSWERS_BYTES_MAX,
    PUBLISHES_BYTES_MAX,
    REQUESTS_BYTES_MAX,
    UNAUTHENTICATED_FRAME_BYTES_MAX,
    FlowControl,
    PauseReason,
)
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.frames import PONG_FRAME, simple_frame
from tests.broker.connection.raw import RawClient, entry, raw_client
from tests.broker.regions import Regions, regions, until


class Switch:
    """Records every request to stop or resume reading."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.clients = ClientMemory()
        self.flow_control = FlowControl(
            self.clients,
            lambda: self.told.append("stop"),
            lambda: self.told.append("go on"),
            lambda: self.told.append("disconnect"),
        )


def test_reasons_are_a_set() -> None:
    """FC2: the same reason counts once, and reading resumes when no reason is left."""
    switch = Switch()
    for reason in (PauseReason.PUBLISHES, PauseReason.PUBLISHES, PauseReason.ANSWERS):
        switch.flow_control.pause(reason)
    for reason in (PauseReason.PUBLISHES, PauseReason.PUBLISHES):
        switch.flow_control.resume(reason)
    assert (switch.told, switch.flow_control.is_reading_paused) == (["stop"], True)
    switch.flow_control.resume(PauseReason.ANSWERS)
    switch.flow_control.resume(PauseReason.ANSWERS)
    assert (switch.told, switch.flow_control.is_reading_paused) == (["stop", "go on"], False)


def test_unanswered_publishes_stop_reading_until_half_of_them_are_answered() -> None:
    switch = Switch()
    flow_control = switch.flow_control
    flow_control.pending_bytes += PUBLISHES_BYTES_MAX
    flow_control.admitted()
    assert not flow_control.is_reading_paused
    flow_control.pending_bytes += 1
    flow_control.admitted()
    assert flow_control.is_reading_paused
    assert switch.clients.held_bytes == PUBLISHES_BYTES_MAX + 1
    flow_control.answered(PUBLISHES_BYTES_MAX // 2)
    assert flow_control.is_reading_paused
    flow_control.answered(2)
    assert not flow_control.is_reading_paused
    flow_control.release()
    assert switch.clients.held_bytes == 0


def test_pending_requests_stop_reading_until_half_of_them_are_over() -> None:
    switch = Switch()
    charges = [*[REQUESTS_BYTES_MAX // 4] * 4, 1]
    for charge in charges[:4]:
        switch.flow_control.charge_request(charge)
    assert not switch.flow_control.is_reading_paused
    switch.flow_control.charge_request(charges[4])
    assert switch.flow_control.reasons == PauseReason.REQUESTS
    for charge in charges[:3]:
        switch.flow_control.release_request(charge)
    assert not switch.flow_control.is_reading_paused
    for charge in charges[3:]:
        switch.flow_control.release_request(charge)
    assert switch.clients.held_bytes == 0


def the_connection(world: Regions) -> ClientConnection:
    return next(iter(world.running["us"].clients.connections))


async def reason_of_the_end(client: RawClient) -> str:
    """Return the reason that the region sent before it closed the connection."""
    answer = await client.next()
    with pytest.raises(EOFError):
        await client.next()
    return str(answer.error.message)


async def test_bytes_of_an_incomplete_frame_are_counted_until_it_or_its_connection_ends() -> None:
    async with regions("us") as world, raw_client(world) as client:
        held = world.running["us"].resources.clients
        await client.open_producer()
        await until(lambda: held.held_bytes < REQUEST_BYTES)
        idle = held.held_bytes  # its producer
        frame = send_frame(1, 0, data=entry(b"x" * 1_000_000))
        client.writer.write(frame[:-1])
        await until(lambda: held.held_bytes == idle + len(frame) - 1)
        client.writer.write(frame[-1:])
        assert (await client.next()).HasField("send_receipt")
        assert held.held_bytes == idle
        client.writer.write(frame[:-1])
        await until(lambda: held.held_bytes == idle + len(frame) - 1)
        client.writer.transport.abort()
        await until(lambda: held.held_bytes == 0)


LARGE = UNAUTHENTICATED_FRAME_BYTES_MAX + 1


@pytest.mark.parametrize("rest", [b"", b"x" * (LARGE - 12)], ids=["announced", "complete"])
async def test_an_unauthenticated_client_may_send_small_frames_only(rest: bytes) -> None:
    """The region does not wait for the rest of a larger frame, and parses nothing of it."""
    async with regions("us") as world, raw_client(world, handshake=False) as client:
        client.writer.write(struct.pack(">II", LARGE - 4, 4) + b"\x08\x12xx" + rest)
        assert "before CONNECT, the limit is 65536" in await reason_of_the_end(client)


async def test_a_client_may_send_large_frames_in_the_same_chunk_as_connect() -> None:
    async with regions("us") as world, raw_client(world, handshake=False) as client:
        client.greet()
        client.ask_for_producer()
        client.writer.write(send_frame(9, 0, data=entry(b"x" * LARGE))[:-1])
        assert (await client.next()).HasField("connected")
        assert (await client.next()).HasField("producer_success")


@pytest.mark.parametrize("sent", [b"", struct.pack(">I", 100), PONG_FRAME], ids=["nothing", "half", "PONG"])
async def test_an_unauthenticated_client_has_a_deadline(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "HANDSHAKE_SECONDS", 0.05)

    async with regions("us") as world, raw_client(world, handshake=False) as client:
        client.writer.write(sent)
        assert "the handshake was not completed within 0.05 s" in await reason_of_the_end(client)


async def test_an_authenticated_client_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "HANDSHAKE_SECONDS", 0.05)

    async with regions("us") as world, raw_client(world) as client:
        async with raw_client(world, handshake=False) as stranger:
            await reason_of_the_end(stranger)
        assert (await client.open_producer()).producer_name


def get_topics(request_id: int) -> bytes:
    body = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace="public/default")
    return simple_frame(
        pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body)
    )


REQUESTS = 20_000
TOPICS = 8
"""The names are long: one response is 1.6 KB, and all of them exceed the buffers of any socket."""


async def test_unread_responses_pause_reading_of_that_client_alone() -> None:
    """Memory stays bounded, other clients are not affected, and no response is lost when the client reads at last."""
    async with regions("us") as world, raw_client(world) as client, raw_client(world) as other:
        connection = the_connection(world)
        for number in range(TOPICS):
            await other.open_producer(number, f"{number}-{'long' * 40}")
        client.writer.write(b"".join(map(get_topics, range(REQUESTS))))
        await until(lambda: connection.flow_control.reasons == PauseReason.ANSWERS)
        held = world.running["us"].resources.clients.held_bytes
        assert ANSWERS_BYTES_MAX < held < 2 * ANSWERS_BYTES_MAX
        assert (await other.open_producer(TOPICS, "other")).producer_name
        for number in range(REQUESTS):
            assert (await client.next()).getTopicsOfNamespaceResponse.request_id == number
        assert connection.flow_control.account.held_bytes == 0


async def test_a_consumer_that_is_attached_while_the_transport_is_full_begins_blocked() -> None:
    async with regions("us") as world, raw_client(world) as client:
        connection = the_connection(world)
        connection.pause_writing()
        await client.subscribe()
        assert connection.consumers.open[1].state.blocked
        connection.resume_writing()
        assert not connection.consumers.open[1].state.blocked


async def test_liveness_is_not_checked_while_the_region_does_not_read_the_client() -> None:
    """FC3: its PONG may still be in the socket. Once the region reads again, the timeout counts."""
    async with regions("us", keep_alive_interval_ms=20) as world, raw_client(world) as client:
        connection = the_connection(world)
        connection.flow_control.pause(PauseReason.PUBLISHES)
        reading = asyncio.create_task(client.next())
        await until(lambda: client.pings >= 4)
        assert connection.is_open
        assert await connection.is_alive()
        connection.flow_control.resume(PauseReason.PUBLISHES)
        with pytest.raises(EOFError):
            await reading


async def test_a_client_that_receives_no_bytes_of_its_responses_is_disconnected() -> None:
    """A frozen client: the region stopped reading it because of its own unread responses."""
    async with regions("us", keep_alive_interval_ms=20) as world, raw_client(world) as client:
        the_connection(world).flow_control.pause(PauseReason.ANSWERS)
        with pytest.raises(EOFError):
            await client.next()


async def test_closed_producers_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "CLOSED_PRODUCERS_MAX", 3)

    async with regions("us") as world, raw_client(world) as client:
        for number in range(5):
            await client.open_producer(number)
            close = pb.CommandCloseProducer(producer_id=number, request_id=number)
            command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=close)
            assert (await client.ask(command)).success.request_id == number
        assert list(the_connection(world).producers.closed) == [2, 3, 4]
