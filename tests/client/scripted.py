"""A broker whose responses a test defines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from emulator.client import Client, ClientSettings
from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import decode_send, encode_receipt
from emulator.wire.command_types import CommandType
from emulator.wire.frames import FrameBuffer, simple_frame
from emulator.wire.protobuf import decode_command

QUICK = ClientSettings(
    backoff_seconds=0.01,
    backoff_seconds_max=0.05,
    partitions_interval_seconds=0.02,
    operation_timeout_seconds=2.0,
)


class ScriptedBroker(asyncio.Protocol):
    """The broker's side of one connection. It answers handshake, lookups and sends; tests define responses to
    PRODUCER."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.frames = FrameBuffer(1_000_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.script.connections.append(self)

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
            self.script.asked_for_lookups += 1
            answer.lookupTopicResponse.brokerServiceUrl = self.script.lookups_say or self.script.url
            self.send(answer)
        elif command.type == pb.BaseCommand.PARTITIONED_METADATA:
            answer = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
            answer.partitionMetadataResponse.request_id = command.partitionMetadata.request_id
            self.script.asked_for_partitions += 1
            answer.partitionMetadataResponse.partitions = self.script.partitions
            self.send(answer)
        elif command.type == pb.BaseCommand.PRODUCER:
            self.script.creates.append(command.producer)
            self.script.on_create(self, command.producer)
        elif command.type == pb.BaseCommand.CLOSE_PRODUCER:
            self.script.closes.append(command.close_producer)
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
    """The commands that the broker received, the definition of its responses, and a client of it."""

    client: Client
    """A client of the broker with the settings QUICK."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: list[ScriptedBroker] = []
        self.creates: list[pb.CommandProducer] = []
        self.closes: list[pb.CommandCloseProducer] = []
        self.partitions = 0
        """Number of partitions that the broker reports for every topic."""
        self.asked_for_partitions = 0
        self.asked_for_lookups = 0
        self.lookups_say: str | None = None
        """Broker URL in lookup responses; None: the URL of this broker."""
        self.on_create: Callable[[ScriptedBroker, pb.CommandProducer], None] = lambda b, c: b.succeed(c)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: ScriptedBroker(self), "127.0.0.1", 0)
        self.url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with contextlib.AsyncExitStack() as self._clients:
            self.client = await self.another_client(QUICK)
            yield
        server.close()

    async def another_client(self, settings: ClientSettings) -> Client:
        return await self._clients.enter_async_context(Client(self.url, settings=settings))

    def accept(self, epoch: int | None = None, *, ready: bool = True) -> None:
        """Respond to each PRODUCER from now on with success; `ready=False`: the producer waits in the queue."""
        self.on_create = lambda broker, create: broker.succeed(create, ready=ready, epoch=epoch)

    def reject(self, code: ServerError) -> None:
        self.on_create = lambda broker, create: broker.refuse(create, code)

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)

    async def until_creates(self, count: int) -> None:
        """Wait until the broker has received this total number of PRODUCER commands."""
        await self.until(lambda: len(self.creates) >= count)
