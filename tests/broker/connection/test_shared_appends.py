"""How many wake-ups, appends and writes the messages of many connections cost, each with one message in flight.

Whatever arrived before the region looks at its sockets is one append and one commit. Only reads and writes of sockets
grow with the number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from emulator.broker.connection.connection import ClientConnection
from emulator.broker.connection.flow_control import ANSWERS_BYTES_MAX
from emulator.storage.memory import MemoryLog
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import Receipt, decode_receipt, send_frame
from emulator.wire.command_types import CommandType
from emulator.wire.entry import plain_entry
from emulator.wire.frames import PING_FRAME, FrameBuffer, simple_frame
from tests.broker.regions import DEADLINE_SECONDS, Regions, regions, until

CALLS_PER_MESSAGE_MAX = 45
"""Calls of functions of the broker, without those that the messages of a commit share."""
ITERATIONS_MAX = 5
"""Of the event loop, from polling the sockets to writing the receipts: poll, read, append, commit, acknowledge."""


@dataclass
class RawClient:
    """A client on a socket that the event loop does not know."""

    number: int
    world: Regions
    socket: socket.socket = field(init=False)
    connection: ClientConnection = field(init=False)
    """The region's end."""

    async def open(self, *topics: str) -> None:
        """Connect, and open a producer on each topic."""
        before = dict(self.region_connections)
        self.socket = socket.create_connection(("127.0.0.1", self.world.ports["us"]))
        greeting = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        greeting.connect.client_version, greeting.connect.protocol_version = "test", 19
        self.socket.send(simple_frame(greeting))
        for producer_id, topic in enumerate(topics):
            command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
            command.producer.topic, command.producer.producer_name = topic, self.name(producer_id)
            command.producer.producer_id = command.producer.request_id = producer_id
            self.socket.send(simple_frame(command))
        await until(lambda: len(self.region_connections) > len(before))
        (self.connection,) = self.region_connections.keys() - before.keys()
        await until(
            lambda: len(self.connection.producers.open) == len(topics) and not self.connection.responses
        )

    @property
    def region_connections(self) -> dict[ClientConnection, None]:
        return self.world.running["us"].clients.connections

    def name(self, producer_id: int) -> str:
        return f"{self.number}-{producer_id}"

    def send(self, *producer_ids: int) -> None:
        """Send a message of each of these producers."""
        entries = {number: plain_entry(self.name(number), 7, 1, b"x") for number in producer_ids}
        self.socket.send(b"".join(send_frame(number, 7, data=data) for number, data in entries.items()))

    def receipts(self, number: int) -> list[Receipt]:
        """Receive until there are this many receipts. The event loop does not run meanwhile: the region has sent them,
        but the kernel may not have delivered them yet."""
        self.socket.settimeout(DEADLINE_SECONDS)
        frames, receipts = FrameBuffer(1_000_000), list[Receipt]()
        while len(receipts) < number:
            received = frames.feed(self.socket.recv(1_000_000))
            receipts += [
                decode_receipt(one) for type_, one, _ in received if type_ == CommandType.SEND_RECEIPT
            ]
        return receipts


def wait_until_arrived(clients: list[RawClient]) -> None:
    """Wait until the kernel has delivered what each client has sent. The event loop does not run meanwhile."""
    waiting = select.poll()
    for client in clients:
        transport = client.connection._transport
        assert transport is not None
        waiting.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    arrived: set[int] = set()
    while len(arrived) < len(clients):
        events = waiting.poll(DEADLINE_SECONDS * 1_000)
        assert events, "not delivered in time"
        for descriptor, _ in events:
            arrived.add(descriptor)
            waiting.unregister(descriptor)


class Counts:
    """Counts calls and iterations of the event loop."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        self.iterations = 0
        self.iterations_until_write = 0
        """Iterations of the event loop until the newest write."""
        for type_, name in (
            (ClientConnection, "data_received"),
            (ClientConnection, "write"),
            (MemoryLog, "append"),
        ):
            patched.setattr(type_, name, self._counted(name, getattr(type_, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            if name == "write":
                self.iterations_until_write = self.iterations
            return function(*arguments)

        return call

    @contextlib.contextmanager
    def counting_iterations(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal next_one
            self.iterations += 1
            next_one = loop.call_soon(count)

        next_one = loop.call_soon(count)
        yield
        next_one.cancel()


@pytest.mark.parametrize("connections", [1, 10, 100])
async def test_messages_of_many_connections_share_wake_ups_one_append_and_one_commit(
    connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with regions("us", deduplication=True) as world:
        clients = [RawClient(number, world) for number in range(connections)]
        for client in clients:
            await client.open("orders")
        store, counts = world.running["us"].store, Counts(monkeypatch)
        commits = store.commits
        for client in clients:
            client.send(0)
        wait_until_arrived(clients)
        with counts.counting_iterations():
            await until(lambda: counts.calls["write"] >= connections)
        assert 1 < counts.iterations_until_write <= ITERATIONS_MAX
        assert counts.calls == {"data_received": connections, "append": 1, "write": connections}
        assert store.commits == commits + 1
        receipts = [client.receipts(1) for client in clients]
        assert [(of[0].producer_id, of[0].sequence_id, len(of)) for of in receipts] == [
            (0, 7, 1)
        ] * connections
        assert sorted(of[0].entry_id for of in receipts) == [*range(connections)]
        for client in clients:
            client.socket.close()


async def test_a_message_costs_few_calls_of_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor time of a message that is alone in its read is that of some forty calls, from the bytes read to
    the receipt. What is equal for all messages of a commit is called once."""
    async with regions("us", deduplication=True) as world:
        clients = [RawClient(number, world) for number in range(20)]
        for client in clients:
            await client.open("orders")
        counts, calls = Counts(monkeypatch), Counter[str]()
        for client in clients:
            client.send(0)
        wait_until_arrived(clients)
        sys.setprofile(lambda frame, event, _: count_call(calls, frame) if event == "call" else None)
        try:
            await until(lambda: counts.calls["write"] >= len(clients))
        finally:
            sys.setprofile(None)
        for client in clients:
            client.receipts(1)
            client.socket.close()
        assert sum(calls.values()) <= CALLS_PER_MESSAGE_MAX * len(clients), calls


def count_call(calls: Counter[str], frame: FrameType) -> None:
    code = frame.f_code
    if "/emulator/" in code.co_filename:
        calls[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1


async def test_the_receipts_of_all_topics_of_a_connection_are_one_write_per_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with regions("us", deduplication=True) as world:
        client = RawClient(0, world)
        topics = [f"orders-{number}" for number in range(10)]
        await client.open(*topics)
        store, counts = world.running["us"].store, Counts(monkeypatch)
        commits = store.commits
        client.send(*range(len(topics)))
        wait_until_arrived([client])
        await until(lambda: counts.calls["write"] > 0)
        assert counts.calls == {"data_received": 1, "append": 10, "write": 1}
        assert store.commits == commits + 1
        assert [receipt.producer_id for receipt in client.receipts(10)] == [*range(10)]
        client.socket.close()


async def test_receipts_do_not_pause_reading_of_a_client_but_responses_among_them_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if each were a write of its own: the number of receipts is bounded by the publishes."""
    async with regions("us") as world:
        client = RawClient(0, world)
        await client.open("orders", "bills")
        connection = client.connection
        assert connection._transport is not None
        monkeypatch.setattr(connection._transport, "get_write_buffer_size", lambda: ANSWERS_BYTES_MAX + 1)
        connection.pause_writing()
        written = connection.liveness.written_bytes
        client.send(0, 1)
        await until(lambda: connection.liveness.written_bytes > written)
        assert len(client.receipts(2)) == 2
        assert not connection.flow_control.is_reading_paused
        connection.send_receipts(b"")
        connection.answer_soon(PING_FRAME)
        await until(lambda: connection.flow_control.is_reading_paused)
        monkeypatch.undo()
        connection.resume_writing()
        assert not connection.flow_control.is_reading_paused
        client.socket.close()
