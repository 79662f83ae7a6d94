"""Clients that request exclusive access with false epochs, too often, or at a bad moment."""

from __future__ import annotations

import asyncio
import time

import pytest

from emulator.broker.connection import flow_control
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import AccessMode
from emulator.errors import StorageError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.frames import simple_frame
from tests.broker.connection.raw import RawClient, entry, raw_client
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"
EXCLUSIVE, WAITING, FENCING = pb.Exclusive, pb.WaitForExclusive, pb.ExclusiveWithFencing


def line(world: Regions) -> list[str]:
    topic = world.running["us"].directory.serving.get(TOPIC)
    return [] if topic is None else [one.producer_name for one in topic.access.waiting]


def owner_of(world: Regions) -> str:
    topic = world.running["us"].directory.serving[TOPIC]
    owner = topic.access.owner
    return "" if owner is None else owner.producer_name


def close_producer(producer_id: int, request_id: int) -> pb.BaseCommand:
    body = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=body)


async def asks(client: RawClient, producer_id: int, name: str, **fields: object) -> pb.BaseCommand:
    client.ask_for_producer(producer_id, name=name, **fields)
    return await client.next()


async def asks_saying(client: RawClient, producer_id: int, size_bytes: int) -> pb.BaseCommand:
    """Request to wait for access, with metadata of this size."""
    about = [pb.KeyValue(key="about", value="w" * size_bytes)]
    body = pb.CommandProducer(
        topic="orders",
        producer_id=producer_id,
        request_id=producer_id,
        producer_name=f"waiter {producer_id}",
        producer_access_mode=WAITING,
        metadata=about,
    )
    return await client.ask(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body))


@pytest.mark.parametrize("epoch", [1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=["exclusive", "waiting", "fencing"])
async def test_an_invented_epoch_gains_no_access_and_fences_no_producer(epoch: int, mode: int) -> None:
    async with regions("us") as world, raw_client(world) as liar, raw_client(world) as honest:
        said = await asks(liar, 1, "liar", producer_access_mode=mode, topic_epoch=epoch, epoch=epoch)
        assert said.producer_success.topic_epoch == 0
        won = await asks(honest, 1, "honest", producer_access_mode=FENCING)
        assert won.producer_success.topic_epoch == 1


async def test_priorities_are_ordered_from_the_smallest_to_the_largest_number() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        for number, priority in enumerate((-(2**31), -1, 2**31 - 1, 1)):
            said = await asks(
                client, number + 2, str(priority), producer_access_mode=WAITING, queue_priority=priority
            )
            assert not said.producer_success.producer_ready
        await asks(client, 9, "absent", producer_access_mode=WAITING)
        assert line(world) == [str(2**31 - 1), "1", "absent", "-1", str(-(2**31))]


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=["exclusive", "waiting", "fencing"])
async def test_the_name_of_a_live_owner_or_waiting_producer_is_not_taken_over(mode: int) -> None:
    async with regions("us") as world, raw_client(world) as liar, world.client("us") as honest:
        owner = await honest.producer("orders", name="owner", access_mode=AccessMode.EXCLUSIVE)
        waiting = asyncio.ensure_future(
            honest.producer("orders", name="waiter", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        )
        await until(lambda: line(world) == ["waiter"])
        for number, name in enumerate(("owner", "waiter")):
            said = await asks(liar, number, name, producer_access_mode=mode, topic_epoch=0, epoch=1)
            assert said.error.error == pb.ProducerBusy
        await owner.send(b"still mine")
        await owner.close()
        await waiting


async def test_a_send_of_a_waiting_producer_is_not_stored_and_closes_only_its_connection() -> None:
    async with regions("us") as world, raw_client(world) as owner, raw_client(world) as liar:
        await owner.open_producer(name="owner", producer_access_mode=EXCLUSIVE)
        await asks(liar, 1, "liar", producer_access_mode=WAITING)
        liar.writer.write(send_frame(1, 0, data=entry()))
        with pytest.raises(EOFError):
            await liar.next()
        await until(lambda: line(world) == [])
        assert owner_of(world) == "owner"
        assert world.running["us"].directory.serving[TOPIC].log.next_entry_id == 0


async def test_a_waiting_producer_may_be_closed_twice_and_created_again() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        await asks(client, 2, "waiter", producer_access_mode=WAITING)
        for request_id in (10, 11):
            assert (await client.ask(close_producer(2, request_id))).success.request_id == request_id
        assert line(world) == []
        said = await asks(client, 2, "waiter", producer_access_mode=WAITING)
        assert not said.producer_success.producer_ready
        assert line(world) == ["waiter"]


async def test_a_waiting_producer_created_again_with_another_name_or_topic_waits_only_there() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        await asks(client, 2, "waiter", producer_access_mode=WAITING)
        await asks(client, 2, "renamed", producer_access_mode=WAITING)
        assert line(world) == ["renamed"]
        moved = await client.open_producer(2, "elsewhere", name="moved", producer_access_mode=WAITING)
        assert (moved.producer_ready, moved.topic_epoch) == (True, 0)
        assert line(world) == []


async def test_thousands_of_waiting_producers_of_one_connection_leave_without_delaying_others() -> None:
    """It took seconds, when each leaving producer was searched for and all others were notified again."""
    count = 4_000

    async with regions("us") as world, raw_client(world) as owner, raw_client(world) as many:
        await owner.open_producer(name="owner", producer_access_mode=EXCLUSIVE)
        for number in range(count):
            many.ask_for_producer(number, name=f"waiter {number}", producer_access_mode=WAITING)
            if number % 100 == 99:
                for _ in range(100):
                    await many.next()
        topic = world.running["us"].directory.serving[TOPIC]
        assert len(topic.access.machine.queue) == count
        began = time.thread_time()
        many.writer.transport.abort()
        await until(lambda: len(topic.access.machine.queue) == 0)
        assert time.thread_time() - began < 0.5


async def test_the_memory_of_producers_is_counted_and_too_many_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The metadata that clients send also counts: it is kept while they wait."""
    monkeypatch.setattr(flow_control, "PRODUCERS_BYTES_MAX", 1_000_000)

    async with regions("us") as world, raw_client(world) as client:
        held = world.running["us"].resources.clients
        await client.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        said = await asks_saying(client, 2, 900_000)
        assert not said.producer_success.producer_ready
        assert 900_000 < held.held_bytes < 1_000_000
        said = await asks_saying(client, 3, 100_000)
        assert said.error.error == pb.NotAllowedError
        await client.ask(close_producer(2, 10))
        said = await asks_saying(client, 3, 100_000)
        assert not said.producer_success.producer_ready
        await client.ask(close_producer(3, 11))
        await client.ask(close_producer(1, 12))
        assert held.held_bytes < 3_000, "its present request"


async def test_a_waiting_producer_closed_during_an_unload_is_not_created_again() -> None:
    """After an unload the region requests access again for waiting producers. It must skip a producer that its client
    closed meanwhile: no client could ever close that one."""
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        await asks(client, 2, "waiter", producer_access_mode=WAITING)
        region = world.running["us"]
        (connection,) = region.clients.connections
        connection.data_received(simple_frame(close_producer(2, 10)))
        region.directory.failed(TOPIC, StorageError("out of reach", definite=False), again=True)
        async with asyncio.timeout(5):
            while (await client.next()).success.request_id != 10:
                pass
        topic = await region.directory.acquire(TOPIC, OpenMode.EXISTING)
        await until(lambda: not connection.producers.opening)
        assert len(topic.access.machine.queue) == 0


async def test_a_waiting_producer_gets_no_error_while_its_topic_cannot_be_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pulsar's clients give up a producer that has waited for long, at the first error."""
    async with regions("us") as world, raw_client(world) as owner, raw_client(world) as client:
        await owner.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        await asks(client, 2, "waiter", producer_access_mode=WAITING)
        region = world.running["us"]
        open_log, opened_logs = region.store.open_log, []

        async def fails(name: str, *, create: bool = True) -> None:
            opened_logs.append(name)
            raise StorageError("out of reach", definite=False)

        monkeypatch.setattr(region.store, "open_log", fails)
        await region.directory.unload(TOPIC, "requested by the admin API")
        await until(lambda: len(opened_logs) > 2)
        monkeypatch.setattr(region.store, "open_log", open_log)
        await until(lambda: line(world) == ["waiter"])
        await owner.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE, topic_epoch=0, epoch=1)
        owner.writer.transport.abort()
        said = (await client.next()).producer_success
        assert (said.request_id, said.producer_ready, said.topic_epoch) == (2, True, 1)


async def test_an_invalid_producer_name_is_rejected() -> None:
    """A topic remembers the names of up to a thousand losers, and each grant keeps its owner's for ever."""
    async with regions("us") as world, raw_client(world) as client:
        said = await asks(client, 1, "w" * 4_097, producer_access_mode=EXCLUSIVE)
        assert (said.error.error, said.error.message) == (
            pb.NotAllowedError,
            "a producer name of 4,097 characters; 4,096 are allowed",
        )
        assert (await asks(client, 1, "w" * 4_096)).HasField("producer_success")


async def test_an_unknown_access_mode_fences_no_producer() -> None:
    """Protobuf parses an unknown number as the default: Shared."""
    async with regions("us") as world, raw_client(world) as owner, raw_client(world) as liar:
        await owner.open_producer(1, name="owner", producer_access_mode=EXCLUSIVE)
        command = pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER,
            producer=pb.CommandProducer(topic="orders", producer_id=1, request_id=1, producer_name="liar"),
        )
        command.producer.MergeFromString(b"\x50\x07")  # field 10 is 7
        liar.send(command)
        assert (await liar.next()).error.error == pb.ProducerBusy
        assert owner_of(world) == "owner"
