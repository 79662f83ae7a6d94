"""A client that sends arbitrary bytes and reads the broker's responses."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from emulator.broker.replication.peer_auth import METHOD, proof_of
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.command_types import CommandType
from emulator.wire.commands import AuthResponse
from emulator.wire.entry import build_entry
from emulator.wire.frames import FrameBuffer, simple_frame
from emulator.wire.protobuf import decode_command
from tests.broker.regions import RUN_SECRET, Regions


class RawClient:
    """A connection to the broker that sends bytes as given and decodes the received commands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameBuffer(10_000_000)
        self._ready: deque[pb.BaseCommand] = deque()
        self.pings = 0
        """Number of received PINGs; the client answers none of them."""

    @classmethod
    async def connect(cls, world: Regions, *, handshake: bool = True, host: str = "127.0.0.1") -> RawClient:
        """`host`: the client's own address."""
        streams = await asyncio.open_connection("127.0.0.1", world.ports["us"], local_addr=(host, 0))
        client = cls(*streams)
        if handshake:
            client.greet()
            connected = await client.next()
            assert connected.type == pb.BaseCommand.CONNECTED
            assert connected.connected.protocol_version == 19
        return client

    @classmethod
    async def connect_as_region(
        cls, world: Regions, name: str, *, secret: str = RUN_SECRET, answers_as: str | None = None
    ) -> RawClient:
        """Connect like another region, and answer the authentication challenge."""
        client = await cls.connect(world, handshake=False)
        client.greet(METHOD, name.encode())
        challenge = (await client.next()).authChallenge.challenge
        answer = proof_of(secret, challenge.auth_data, answers_as or name, "us")
        client.writer.write(AuthResponse(METHOD, answer).encode())
        return client

    def greet(self, method: str = "", data: bytes = b"") -> None:
        """Send CONNECT, with this authentication method and data if a method is given."""
        command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        command.connect.client_version = "raw"
        command.connect.protocol_version = 19
        if method:
            command.connect.auth_method_name = method
            command.connect.auth_data = data
        self.send(command)

    def send(self, command: pb.BaseCommand) -> None:
        self.writer.write(simple_frame(command))

    async def ask(self, command: pb.BaseCommand) -> pb.BaseCommand:
        """Send a command and return the next command received."""
        self.send(command)
        return await self.next()

    async def next(self) -> pb.BaseCommand:
        """Return the next command other than PING. Raises EOFError when the region has closed the connection."""
        async with asyncio.timeout(10):
            while not self._ready:
                data = await self.reader.read(65536)
                if not data:
                    raise EOFError
                for type_, command, _ in self._frames.feed(data):
                    if type_ == CommandType.PING:
                        self.pings += 1
                    else:
                        self._ready.append(decode_command(command))
        return self._ready.popleft()

    async def open_producer(
        self, producer_id: int = 1, topic: str = "orders", name: str = "p", **fields: object
    ) -> pb.CommandProducerSuccess:
        self.ask_for_producer(producer_id, topic, name, **fields)
        return (await self.next()).producer_success

    def ask_for_producer(
        self, producer_id: int = 1, topic: str = "orders", name: str = "p", **fields: object
    ) -> None:
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        command.producer.topic = topic
        command.producer.producer_id = producer_id
        command.producer.request_id = producer_id
        command.producer.producer_name = name
        for field, value in fields.items():
            setattr(command.producer, field, value)
        self.send(command)

    async def subscribe(self, consumer_id: int = 1, **fields: object) -> pb.BaseCommand:
        """Send SUBSCRIBE and return the response, success or error. Defaults: topic `orders`, subscription `s`,
        Exclusive; `fields` override them."""
        body = {"topic": "orders", "subscription": "s", "subType": pb.CommandSubscribe.Exclusive} | fields
        subscribe = pb.CommandSubscribe(consumer_id=consumer_id, request_id=consumer_id, **body)  # type: ignore[arg-type]
        return await self.ask(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe))


@contextlib.asynccontextmanager
async def raw_client(
    world: Regions, *, handshake: bool = True, host: str = "127.0.0.1"
) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(world, handshake=handshake, host=host)
    try:
        yield client
    finally:
        client.writer.transport.abort()


def entry(payload: bytes = b"x", sequence_id: int = 0) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    return build_entry(metadata, payload)
