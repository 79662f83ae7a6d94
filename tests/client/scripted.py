"""A broker whose responses a test scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from emulator.client import Client, ClientSettings
from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import CommandType, decode_send, encode_receipt
from emulator.wire.frames import FrameBuffer, simple_frame
from emulator.wire.protobuf import decode_command

QUICK = ClientSettings(
    backoff_seconds=0.01,
    backoff_seconds_max=0.05,
    partitions_interval_seconds=0.02,
    operation_timeout_seconds=2.0,
)


class ScriptedBroker(asyncio.Protocol):
    """Answers handshake, lookups and sends; tests define the response to PRODUCER."""

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
            self.world.asked_for_lookups += 1
            answer.lookupTopicResponse.brokerServiceUrl = self.world.lookups_say or self.world.url
            self.send(answer)
        elif command.type == pb.BaseCommand.PARTITIONED_METADATA:
            answer = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
            answer.partitionMetadataResponse.request_id = command.partitionMetadata.request_id
            self.world.asked_for_partitions += 1
            answer.partitionMetadataResponse.partitions = self.world.partitions
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
        self.partitions = 0
        """Reported for every topic."""
        self.asked_for_partitions = 0
        self.asked_for_lookups = 0
        self.lookups_say: str | None = None
        """Sent instead of the lookup response."""
        self.on_create: Callable[[ScriptedBroker, pb.CommandProducer], None] = lambda b, c: b.succeed(c)


@contextlib.asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Script, Client]]:
    script = Script()
    server = await asyncio.get_running_loop().create_server(lambda: ScriptedBroker(script), "127.0.0.1", 0)
    script.url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Client(script.url, settings=QUICK) as client:
        yield script, client
    server.close()
