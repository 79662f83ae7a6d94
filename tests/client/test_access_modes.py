"""What the client says and does as an exclusive producer, against a scripted broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from emulator.client import AccessMode, Client, ClientError, ClientSettings, Standing
from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import CommandType, decode_command, decode_send, encode_receipt
from emulator.wire.frames import FrameBuffer, simple_frame

QUICK = ClientSettings(backoff_seconds=0.01, backoff_seconds_max=0.05)


class ScriptedBroker(asyncio.Protocol):
    """Answers handshake, lookups and sends; what it says to PRODUCER is the test's."""

    def __init__(self, world: Script) -> None:
        self.world = world
        self.frames = FrameBuffer(1_000_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.world.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for type_, command, _ in self.frames.feed(data):
            if type_ == CommandType.SEND:
                send = decode_send(command)
                self.transport.write(encode_receipt(send.producer_id, send.sequence_id, 0, 1, 0))
                continue
            self._answer(decode_command(command))

    def _answer(self, command: pb.BaseCommand) -> None:
        if command.type == pb.BaseCommand.CONNECT:
            answer = pb.BaseCommand(type=pb.BaseCommand.CONNECTED)
            answer.connected.server_version = "scripted"
            self.send(answer)
        elif command.type == pb.BaseCommand.LOOKUP:
            answer = pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE)
            answer.lookupTopicResponse.request_id = command.lookupTopic.request_id
            answer.lookupTopicResponse.response = pb.CommandLookupTopicResponse.Connect
            answer.lookupTopicResponse.brokerServiceUrl = self.world.url
            self.send(answer)
        elif command.type == pb.BaseCommand.PRODUCER:
            self.world.creates.append(command.producer)
            self.world.on_create(self, command.producer)
        elif command.type == pb.BaseCommand.CLOSE_PRODUCER:
            self.world.closes.append(command.close_producer)
            answer = pb.BaseCommand(type=pb.BaseCommand.SUCCESS)
            answer.success.request_id = command.close_producer.request_id
            self.send(answer)

    def send(self, command: pb.BaseCommand) -> None:
        self.transport.write(simple_frame(command))

    def succeed(self, create: pb.CommandProducer, *, ready: bool = True, epoch: int | None = None) -> None:
        answer = pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS)
        answer.producer_success.request_id = create.request_id
        answer.producer_success.producer_name = create.producer_name or "given"
        answer.producer_success.producer_ready = ready
        if epoch is not None:
            answer.producer_success.topic_epoch = epoch
        self.send(answer)

    def refuse(self, create: pb.CommandProducer, code: ServerError) -> None:
        answer = pb.BaseCommand(type=pb.BaseCommand.ERROR)
        answer.error.request_id = create.request_id
        answer.error.error = code.value  # type: ignore[assignment]
        answer.error.message = code.name
        self.send(answer)


class Script:
    def __init__(self) -> None:
        self.url = ""
        self.connections: list[ScriptedBroker] = []
        self.creates: list[pb.CommandProducer] = []
        self.closes: list[pb.CommandCloseProducer] = []
        self.on_create: Callable[[ScriptedBroker, pb.CommandProducer], None] = lambda b, c: b.succeed(c)


@contextlib.asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Script, Client]]:
    script = Script()
    server = await asyncio.get_running_loop().create_server(lambda: ScriptedBroker(script), "127.0.0.1", 0)
    script.url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Client(script.url, settings=QUICK) as client:
        yield script, client
    server.close()


@pytest.mark.parametrize("mode", list(AccessMode))
def test_the_mode_and_the_priority_are_told(mode: AccessMode) -> None:
    """PIP-68's modes by their numbers; PIP-440's priority in its private field, signed."""

    async def story() -> None:
        async with scripted() as (script, client):
            await client.producer("orders", access_mode=mode, priority=-7)
            assert script.creates[0].producer_access_mode == mode.value
            assert script.creates[0].queue_priority == -7
            assert not script.creates[0].HasField("topic_epoch")

    asyncio.run(story())


def test_a_producer_in_line_waits_for_its_second_answer() -> None:
    """Not ready at once; ready later, under the same request id, with the epoch it was granted."""

    async def story() -> None:
        async with scripted() as (script, client):
            script.on_create = lambda broker, create: broker.succeed(create, ready=False)
            opening = asyncio.create_task(
                client.producer("orders", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
            )
            async with asyncio.timeout(5):
                while not script.creates:
                    await asyncio.sleep(0)
            done, _ = await asyncio.wait([opening], timeout=0.05)
            assert not done
            script.connections[-1].succeed(script.creates[0], epoch=4)
            producer = await asyncio.wait_for(opening, 5)
            assert producer.topic_epoch == 4
            assert (await producer.send(b"x")).entry == 0

    asyncio.run(story())


def test_whoever_gives_up_before_an_answer_came_says_so() -> None:
    """Otherwise the region would let it in later, and hold the topic for nobody."""

    async def story() -> None:
        async with scripted() as (script, client):
            script.on_create = lambda broker, create: None
            opening = asyncio.create_task(client.producer("orders", access_mode=AccessMode.EXCLUSIVE))
            async with asyncio.timeout(5):
                while not script.creates:
                    await asyncio.sleep(0)
                opening.cancel()
                while not script.closes:
                    await asyncio.sleep(0)
            assert [one.producer_id for one in script.closes] == [script.creates[0].producer_id]

    asyncio.run(story())


def test_a_place_in_line_that_is_lost_in_the_breath_in_which_it_was_given_is_asked_for_again() -> None:
    async def story() -> None:
        async with scripted() as (script, client):

            def wait_and_close(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
                if len(script.creates) > 1:
                    broker.succeed(create, epoch=1)
                    return
                broker.succeed(create, ready=False)
                close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
                close.close_producer.producer_id = create.producer_id
                close.close_producer.request_id = 0
                broker.send(close)

            script.on_create = wait_and_close
            waiting = client.producer("orders", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
            producer = await asyncio.wait_for(waiting, 5)
            assert producer.topic_epoch == 1

    asyncio.run(story())


def test_how_each_attempt_goes_is_told_also_after_a_lost_connection() -> None:
    async def story() -> None:
        async with scripted() as (script, client):
            heard: list[tuple[Standing, int | None]] = []
            script.on_create = lambda broker, create: broker.succeed(create, epoch=3)
            producer = await client.producer(
                "orders",
                access_mode=AccessMode.EXCLUSIVE,
                on_standing=lambda one, standing: heard.append((standing, one.topic_epoch)),
            )
            script.on_create = lambda broker, create: broker.succeed(create, ready=False)
            script.connections[-1].transport.abort()
            async with asyncio.timeout(5):
                while heard[-1][0] is not Standing.WAITS:
                    await asyncio.sleep(0)
            script.connections[-1].succeed(script.creates[-1], epoch=4)
            await asyncio.wait_for(producer.send(b"x"), 5)
            assert heard == [
                *((Standing.ASKS, None), (Standing.OPEN, 3)),
                *((Standing.ASKS, 3), (Standing.WAITS, 3), (Standing.OPEN, 4)),
            ]

    asyncio.run(story())


def test_a_reconnect_tells_the_epoch_that_was_granted() -> None:
    """So that the region can tell the owner from one that was fenced out."""

    async def story() -> None:
        async with scripted() as (script, client):
            script.on_create = lambda broker, create: broker.succeed(create, epoch=9)
            producer = await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
            script.connections[-1].transport.abort()
            await asyncio.wait_for(producer.send(b"x"), 5)
            assert script.creates[1].topic_epoch == 9
            assert script.creates[1].epoch == 1

    asyncio.run(story())


def test_a_fenced_producer_is_dead_and_says_that_its_sends_are_unknown() -> None:
    """ProducerFenced on reconnect: nothing is tried again, what was pending may have been stored."""

    async def story() -> None:
        async with scripted() as (script, client):
            producer = await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
            script.on_create = lambda broker, create: broker.refuse(create, ServerError.ProducerFenced)
            script.connections[-1].transport.abort()
            with pytest.raises(ClientError) as caught:
                await asyncio.wait_for(producer.send(b"x"), 5)
            assert caught.value.code is ServerError.ProducerFenced
            with pytest.raises(ClientError):
                producer.send_nowait(b"y")

    asyncio.run(story())


@pytest.mark.parametrize("code", [ServerError.ProducerFenced, ServerError.ProducerBusy])
def test_a_refused_create_is_definite(code: ServerError) -> None:
    """It is not tried again."""

    async def story() -> None:
        async with scripted() as (script, client):
            script.on_create = lambda broker, create: broker.refuse(create, code)
            with pytest.raises(ClientError) as caught:
                await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
            assert caught.value.code is code
            assert caught.value.definite
            assert len(script.creates) == 1

    asyncio.run(story())


def test_a_create_that_could_work_later_is_tried_again() -> None:
    """ServiceNotReady is worth another try."""

    async def story() -> None:
        async with scripted() as (script, client):

            def second_time(broker: ScriptedBroker, create: pb.CommandProducer) -> None:
                if len(script.creates) == 1:
                    broker.refuse(create, ServerError.ServiceNotReady)
                else:
                    broker.succeed(create)

            script.on_create = second_time
            await asyncio.wait_for(client.producer("orders"), 5)
            assert len(script.creates) == 2

    asyncio.run(story())
