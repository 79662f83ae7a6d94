"""Requests of many transactions in one read: they share writes, callbacks and responses, and each has the outcome that
it has alone."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from emulator.broker.connection.flow_control import REQUESTS_BYTES_MAX
from emulator.broker.transactions import coordinator
from emulator.errors import StorageError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.command_types import CommandType
from emulator.wire.entry import plain_entry
from emulator.wire.frames import FrameBuffer, simple_frame
from emulator.wire.protobuf import decode_command
from tests.broker.connection.raw import raw_client
from tests.broker.regions import DEADLINE_SECONDS, Regions, regions, until
from tests.broker.transactions.coordinator_requests import TOPIC, begin_command, store_of

ITERATIONS: int = 40
"""Of the event loop, after which a region in memory has sent every response."""


OTHER_CALLS_MAX: int = 50
"""Of timers and background work of the region, during one phase: far fewer than its transactions."""


class Session:
    """The region's end of a connection, without its socket: received bytes are passed to it, sent ones recorded."""

    def __init__(self, world: Regions, patched: pytest.MonkeyPatch) -> None:
        self.connection = next(iter(world.running["us"].clients.connections))
        self.writes: list[bytes] = []
        patched.setattr(self.connection, "write", self.writes.append)

    def receive(self, *frames: bytes) -> None:
        """Receive these frames in one read."""
        self.connection.data_received(b"".join(frames))

    def responses(self) -> list[pb.BaseCommand]:
        """Return the sent responses, and forget them."""
        frames, self.writes[:] = FrameBuffer(10_000_000).feed(b"".join(self.writes)), []
        return [decode_command(command) for type_, command, _ in frames if type_ != CommandType.PING]

    async def answers(self, *frames: bytes) -> list[pb.BaseCommand]:
        self.receive(*frames)
        await settle()
        return self.responses()

    async def create_log(self, coordinator: int) -> None:
        """End the first transaction of a coordinator. The first one waits for the coordinator's log in a task."""
        await self.answers(new(0, coordinator))
        await self.answers(end(1, (coordinator, 0)))


async def settle() -> None:
    for _ in range(ITERATIONS):
        await asyncio.sleep(0)


Txn = tuple[int, int]
"""(most, least)."""


def new(request_id: int, coordinator: int = 0) -> bytes:
    command = begin_command(coordinator)
    command.newTxn.request_id = request_id
    return simple_frame(command)


def add(request_id: int, txn: Txn, *topics: str) -> bytes:
    body = pb.CommandAddPartitionToTxn(
        request_id=request_id, partitions=topics or (TOPIC,), txnid_most_bits=txn[0], txnid_least_bits=txn[1]
    )
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=body))


def end(request_id: int, txn: Txn, *, commit: bool = True) -> bytes:
    body = pb.CommandEndTxn(
        request_id=request_id,
        txn_action=pb.COMMIT if commit else pb.ABORT,
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
    )
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.END_TXN, endTxn=body))


def send(sequence_id: int, txn: Txn) -> bytes:
    data = plain_entry("p", sequence_id, 1, b"x")
    return send_frame(1, sequence_id, data=data, txn_most=txn[0], txn_least=txn[1])


def result(command: pb.BaseCommand) -> tuple[int, int, int | None]:
    """Return (type, request or sequence id, error code or None) of a response."""
    bodies: dict[int, Any] = {
        CommandType.NEW_TXN_RESPONSE: command.newTxnResponse,
        CommandType.ADD_PARTITION_TO_TXN_RESPONSE: command.addPartitionToTxnResponse,
        CommandType.END_TXN_RESPONSE: command.endTxnResponse,
    }
    if command.type not in bodies:
        is_error = command.type == CommandType.SEND_ERROR
        body = command.send_error if is_error else command.send_receipt
        return command.type, body.sequence_id, command.send_error.error if is_error else None
    body = bodies[command.type]
    return command.type, body.request_id, body.error if body.HasField("error") else None


class LoopCalls:
    """Counts what is scheduled on the event loop, and the tasks among it."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.calls = self.tasks = 0
        loop = asyncio.get_running_loop()
        call_soon, create_task = loop.call_soon, loop.create_task

        def counted_call(*arguments: Any, **named: Any) -> asyncio.Handle:
            self.calls += 1
            return call_soon(*arguments, **named)

        def counted_task(*arguments: Any, **named: Any) -> asyncio.Task[Any]:
            self.tasks += 1
            return create_task(*arguments, **named)

        patched.setattr(loop, "call_soon", counted_call)
        patched.setattr(loop, "create_task", counted_task)


async def _calls_of(transactions: int, patched: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return (calls, tasks) of the event loop in each phase of that many transactions on one topic."""
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer()
        session = Session(world, patched)
        await session.create_log(0)
        txns = [(0, number + 1) for number in range(transactions)]
        phases = [
            [new(number) for number in range(transactions)],
            [add(number, txn) for number, txn in enumerate(txns)],
            [send(number, txn) for number, txn in enumerate(txns)],
            [end(number, txn) for number, txn in enumerate(txns)],
        ]
        counts = []
        with patched.context() as counting:
            calls = LoopCalls(counting)
            for phase in phases:
                before = calls.calls, calls.tasks
                found = [result(one) for one in await session.answers(*phase)]
                assert [(number, error) for _, number, error in found] == [
                    (number, None) for number in range(transactions)
                ]
                counts.append((calls.calls - before[0], calls.tasks - before[1]))
        running = world.running["us"].coordinators.get(0)
        assert (running.figures.committed, len(running.core.live)) == (transactions + 1, 0)
        return counts


async def test_the_calls_of_the_event_loop_do_not_grow_with_the_transactions_of_a_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = await _calls_of(2, monkeypatch), await _calls_of(200, monkeypatch)
    for (calls_of_few, _), (calls, tasks) in zip(few, many, strict=True):
        assert calls <= calls_of_few + OTHER_CALLS_MAX
        assert tasks <= OTHER_CALLS_MAX


def _stream() -> Iterator[bytes]:
    """The requests of some transactions, with duplicates, errors and forged ids among them; none depends on an earlier
    response."""
    for number in range(6):
        yield new(number, number % 2)
    for number in range(6):
        txn = (number % 2, 1 + number // 2)
        yield add(10 + number, txn, *([TOPIC, "bills"] if number == 3 else [TOPIC]))
        yield add(20 + number, txn)  # has it already
        if number == 1:
            yield add(30, txn, "non-persistent://public/default/orders")
            yield add(31, txn, "not/a/name")
    yield new(32, 9)  # there is no such coordinator
    yield new(33, 2**63)
    yield add(34, (9, 0))
    yield add(35, (0, 2**64 - 1))
    yield end(36, (1, 77))
    for number in range(6):
        txn = (number % 2, 1 + number // 2)
        yield end(40 + number, txn, commit=number != 4)
        yield end(50 + number, txn, commit=number != 4)  # the same once more
        yield end(60 + number, txn, commit=number == 4)  # the other outcome
        yield add(70 + number, txn, "late")


async def _outcome_of(reads: list[bytes], patched: pytest.MonkeyPatch, *, waits: bool) -> tuple[Any, ...]:
    """Return the responses to a stream that arrives in these reads, the logs and the outcomes. `waits`: process each
    read before the next one arrives."""
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer()
        session = Session(world, patched)
        for number in (0, 1):
            await session.create_log(number)
        for read in reads:
            session.receive(read)
            if waits:
                await settle()
        await settle()
        responses = Counter(result(one) for one in session.responses())
        loaded = world.running["us"].coordinators.loaded
        for each in loaded:
            each.write_ended()
        await settle()
        stored = [await one.journal._log.read(0, 1_000, 1_000_000) for one in loaded[:2]]  # type: ignore[union-attr]
        logs = [Counter(entry.data.split(b",")[0] for entry in log) for log in stored]
        outcomes = [dict.fromkeys(one.core.outcomes) for one in loaded]
        return responses, logs, outcomes, [len(one.core.live) for one in loaded]


async def test_requests_have_the_same_outcome_in_groups_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any split of their stream into reads, also within a frame."""
    stream = list(_stream())
    alone = await _outcome_of(stream, monkeypatch, waits=True)
    assert {error for _, _, error in alone[0]} > {None, pb.InvalidTxnStatus, pb.TransactionNotFound}
    assert len(alone[0]) == len(stream)
    whole = b"".join(stream)
    source = random.Random(1)
    for _ in range(6):
        places = sorted(source.sample(range(1, len(whole)), source.choice([0, 1, 5, 40])))
        reads = [whole[begin:end] for begin, end in zip([0, *places], [*places, len(whole)], strict=True)]
        assert await _outcome_of(reads, monkeypatch, waits=source.random() < 0.5) == alone


async def _stored_kinds(world: Regions) -> list[str]:
    """Return the kinds of the entries in the log of the first coordinator."""
    log = await world.running["us"].store.open_log("internal://pulsar/system/__transaction_log_0")
    assert log is not None
    return [json.loads(entry.data)[0] for entry in await log.read(0, 1_000, 1_000_000)]


async def test_a_transaction_that_is_over_is_written_without_another_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with regions("us") as world, raw_client(world):
        await Session(world, monkeypatch).create_log(0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await _stored_kinds(world) != ["began", "decided", "ended"]:
                await asyncio.sleep(0)


async def test_the_next_write_takes_along_that_transactions_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "ENDED_SECONDS_MAX", 1_000)
    async with regions("us") as world, raw_client(world):
        session, running = Session(world, monkeypatch), world.running["us"].coordinators.get(0)
        await session.create_log(0)
        await session.answers(new(2), new(3))
        await session.answers(end(4, (0, 1)), end(5, (0, 2)))
        assert running.core.live == {}
        appends = Counter[str]()
        assert running.journal._log is not None
        append = running.journal._log.append

        def counted(entries: Sequence[bytes]) -> asyncio.Future[int]:
            appends["all"] += 1
            return append(entries)

        monkeypatch.setattr(running.journal._log, "append", counted)
        await session.answers(new(6))
        assert appends == {"all": 1}
        assert (await _stored_kinds(world))[-3:] == ["ended", "ended", "began"]


async def test_a_region_that_stops_writes_that_transactions_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would load their topics when it starts again."""
    monkeypatch.setattr(coordinator, "ENDED_SECONDS_MAX", 1_000)
    async with regions("us") as world, raw_client(world):
        session = Session(world, monkeypatch)
        await session.create_log(0)
        region = world.running["us"]
        region.coordinators.close()
        await settle()
        assert await _stored_kinds(world) == ["began", "decided", "ended"]


async def test_a_failed_write_rejects_every_request_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with regions("us") as world, raw_client(world):
        session = Session(world, monkeypatch)
        await session.create_log(0)
        store_of(world).fail_next_group(StorageError("the disk is away", definite=True))
        found = await session.answers(*[new(number) for number in range(5)])
        assert [result(one)[1:] for one in found] == [(number, pb.PersistenceError) for number in range(5)]
        assert session.connection.flow_control._requests.size_bytes == 0


async def test_requests_that_wait_together_are_charged_one_by_one_and_pause_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with regions("us") as world, raw_client(world):
        session = Session(world, monkeypatch)
        await session.create_log(0)
        flow_control, store = session.connection.flow_control, store_of(world)
        store.hold()
        session.receive(*[new(number) for number in range(2_000)])
        assert flow_control.is_reading_paused
        held = flow_control._requests.size_bytes
        assert REQUESTS_BYTES_MAX < held < 1.1 * REQUESTS_BYTES_MAX
        store.release()
        answered: list[pb.BaseCommand] = []

        def all_answered() -> bool:
            answered.extend(session.responses())
            return len(answered) == 2_000

        await until(all_answered)
        assert [result(one)[1] for one in answered] == list(range(2_000))
        assert flow_control._requests.size_bytes == 0


async def test_requests_of_a_connection_that_has_ended_release_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with regions("us") as world, raw_client(world) as client:
        session = Session(world, monkeypatch)
        await session.create_log(0)
        store = store_of(world)
        store.hold()
        session.receive(*[new(number) for number in range(5)], end(9, (0, 1)))
        client.writer.transport.abort()
        await until(lambda: not session.connection.is_open)
        store.release()
        await settle()
        assert session.connection.flow_control._requests.size_bytes == 0
        assert session.responses() == []
