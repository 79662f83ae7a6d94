"""Producers of partitioned topics, under virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from emulator.client import EARLIEST, Batching, Client, ClientError, KeyHash, Routing
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.client.send_queue import OutgoingMessage
from emulator.errors import ServerError
from emulator.model.values import TopicName
from emulator.simulation.world import World
from tests.client.topics import (
    ORDERS,
    WITH_PARTITIONS,
    admin,
    client_of,
    counts,
    create,
    grow,
    grown,
    new_producer,
    numbers,
    owners,
    partition,
    producers_at,
    region,
    restart,
    terminate,
)

SETTINGS = WITH_PARTITIONS


async def test_messages_go_round_all_partitions_and_all_know_the_producer_by_one_name(
    world: World, client: Client
) -> None:
    producer = await new_producer(world, client)
    for number in range(9):
        await producer.send(b"%d" % number)
    assert counts(world) == [3, 3, 3]
    assert owners(world) == [[producer.name]] * 3
    await producer.close()
    assert owners(world) == [[]] * 3


async def test_the_broker_creates_a_topic_with_the_number_of_partitions_in_the_namespace_policy(
    world: World, client: Client
) -> None:
    partitioned = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    await admin(world, "POST", "/admin/v2/namespaces/public/default/autoTopicCreation", partitioned)
    producer = await client.producer("orders")
    assert isinstance(producer, PartitionedProducer)
    assert producer.partitions == region(world).partitioned.count(TopicName.parse(ORDERS)) == 2


@pytest.mark.parametrize("key_hash", list(KeyHash), ids=lambda one: one.name)
@pytest.mark.parametrize("batching", [None, Batching(messages_max=4)], ids=["single", "batches"])
async def test_messages_of_one_key_are_in_one_partition_in_their_order(
    world: World, client: Client, key_hash: KeyHash, batching: Batching | None
) -> None:
    producer = await new_producer(world, client, key_hash=key_hash, batching=batching)
    keys = [f"key-{number}" for number in range(8)]
    sends = [producer.send_nowait(b"%d" % n, key=keys[n % 8]) for n in range(80)]
    await asyncio.gather(*sends)
    for index in range(3):
        wanted = [n for n in range(80) if key_hash(keys[n % 8]) % 3 == index]
        consumer = await client.reader(partition(index), start=EARLIEST)
        received = [int((await consumer.receive()).payload) for _ in wanted]
        assert received == wanted
        assert not await consumer.has_message()


async def test_a_router_of_the_application_decides_alone(world: World, client: Client) -> None:
    def by_length(message: OutgoingMessage, partitions: int) -> int:
        return len(message.payload) % partitions

    producer = await new_producer(world, client, routing=by_length)
    for payload in (b"", b"x", b"y", b"xx", b"xyz"):
        await producer.send(payload, key="one key")
    assert counts(world) == [2, 2, 1]


async def test_all_messages_without_a_key_go_to_one_partition_when_that_is_wanted(
    world: World, client: Client
) -> None:
    producer = await new_producer(world, client, routing=Routing.SINGLE)
    for _ in range(9):
        await producer.send(b"x")
    assert sorted(counts(world)) == [0, 0, 9]


async def test_a_lazy_producer_opens_a_partition_with_its_first_message(world: World, client: Client) -> None:
    producer = await new_producer(world, client, lazy=True)
    opened = [index for index in range(3) if producers_at(world, index)]
    assert len(opened) == 1
    sends = [producer.send_nowait(b"%d" % number) for number in range(9)]
    await producer.flush()
    assert all(one.done() for one in sends)
    assert counts(world) == [3, 3, 3]
    for index in range(3):
        assert numbers(world, index) == [0, 1, 2]
    assert {tuple(producers_at(world, index)) for index in range(3)} == {(producer.name,)}


async def test_messages_sent_before_their_partition_is_open_continue_the_region_s_sequence_ids(
    world: World, client: Client
) -> None:
    """Numbered from 0 it would count as a duplicate of the former producer's messages, and be dropped."""
    before = await new_producer(world, client, name="p")
    for number in range(6):
        await before.send(b"%d" % number)
    await before.close()
    producer = await client_of(world).producer("orders", name="p", lazy=True)
    sends = [producer.send_nowait(b"%d" % number) for number in range(6)]
    await producer.close()
    await asyncio.gather(*sends)
    assert [numbers(world, index) for index in range(3)] == [[0, 1, 2, 3]] * 3


async def test_a_partition_that_cannot_be_opened_fails_the_messages_for_it_and_is_tried_again(
    world: World, client: Client
) -> None:
    producer = await new_producer(
        world, client, partitions=2, lazy=True, name="p", routing=lambda m, n: len(m.payload)
    )
    other = 0 if producers_at(world, 1) else 1
    squatter = await client_of(world).producer(partition(other), name="p")
    sends = [producer.send_nowait(b"x" * other) for _ in range(2)]
    for one in sends:
        with pytest.raises(ClientError) as refusal:
            await one
        assert refusal.value.definite
        assert refusal.value.code is ServerError.ProducerBusy
    with pytest.raises(ClientError):
        await producer.send(b"x" * other)
    await squatter.close()
    await producer.send(b"x" * other)
    assert counts(world, 2)[other] == 1


async def test_each_partition_has_numbers_of_its_own_and_knows_its_duplicates(
    world: World, client: Client
) -> None:
    first = await new_producer(world, client, name="p", initial_sequence_id=9)
    for number in range(6):
        await first.send(b"%d" % number, key=f"key-{number}")
    total = sum(counts(world))
    assert all(
        found == sorted(found) and found[0] == 10 for index in range(3) if (found := numbers(world, index))
    )
    assert first.last_sequence_id == max(found[-1] for index in range(3) if (found := numbers(world, index)))
    await first.close()
    again = await client.producer("orders", name="p", initial_sequence_id=9)
    for number in range(6):
        await again.send(b"%d" % number, key=f"key-{number}")
    assert sum(counts(world)) == total == 6
    await again.close()
    third = await client.producer("orders", name="p")
    await third.send(b"new", key="key-0")
    assert sum(counts(world)) == 7


async def test_partitions_that_come_are_used(world: World, client: Client) -> None:
    producer = await new_producer(world, client, partitions=1)
    await producer.send(b"before")
    await grow(world, 4)
    await grown(producer, 4)
    for number in range(8):
        await producer.send(b"%d" % number)
    assert counts(world, 4) == [3, 2, 2, 2]


async def test_a_topic_that_grows_while_the_connection_is_down_is_seen_to_have_grown(
    world: World, client: Client
) -> None:
    producer = await new_producer(world, client, partitions=2)
    world.kill("us")
    sends = [producer.send_nowait(b"%d" % number) for number in range(4)]
    await asyncio.sleep(5)
    world.start("us")
    await world.ready()
    await grow(world, 3)
    await grown(producer, 3)
    await asyncio.gather(*sends, *[producer.send_nowait(b"x") for _ in range(3)])
    assert counts(world) == [3, 3, 1]


async def test_a_lazy_producer_uses_partitions_that_come_when_it_has_a_message_for_them(
    world: World, client: Client
) -> None:
    producer = await new_producer(world, client, partitions=1, lazy=True)
    await grow(world, 2)
    await grown(producer, 2)
    assert producers_at(world, 1) == []
    await asyncio.gather(*[producer.send(b"x") for _ in range(4)])
    assert counts(world, 2) == [2, 2]


async def test_a_terminated_partition_takes_nothing_more_and_the_others_go_on(
    world: World, client: Client
) -> None:
    producer = await new_producer(world, client)
    for number in range(3):
        await producer.send(b"%d" % number)
    await terminate(world, partition(1))
    outcomes = await asyncio.gather(*[producer.send(b"x") for _ in range(6)], return_exceptions=True)
    failed = [one for one in outcomes if isinstance(one, ClientError)]
    assert [one.code for one in failed] == [ServerError.TopicTerminatedError] * 2
    assert counts(world) == [3, 1, 3]


async def test_a_batch_that_is_open_for_a_partition_is_published_when_the_producer_closes(
    world: World, client: Client
) -> None:
    await create(world)
    batching = Batching(delay_ms_max=600_000)
    producer = await client.producer("orders", batching=batching)
    sends = [producer.send_nowait(b"%d" % n, key=f"key-{n}") for n in range(9)]
    assert counts(world) == [0, 0, 0]
    await producer.close()
    ids = await asyncio.gather(*sends)
    assert Counter(counts(world)) == Counter({1: 3})
    assert all(one.batch_size > 1 for one in ids)


async def test_a_batch_that_is_open_when_its_topic_ends_has_an_outcome(world: World, client: Client) -> None:
    producer = await client.producer("orders", batching=Batching(delay_ms_max=600_000))
    sent = producer.send_nowait(b"x")
    await terminate(world, ORDERS)
    async with asyncio.timeout(60):
        with pytest.raises(ClientError) as refusal:
            await sent
    assert refusal.value.code is ServerError.TopicTerminatedError


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_a_producer_that_is_cancelled_while_it_is_opened_leaves_nothing(
    world: World, client: Client, turns: int
) -> None:
    """Cancel the opening after `turns` milliseconds."""
    await create(world)
    opening = asyncio.ensure_future(client.producer("orders"))
    await asyncio.sleep(turns / 1000)
    opening.cancel()
    await asyncio.wait([opening])
    await asyncio.sleep(2)
    if opening.cancelled():
        assert owners(world) == [[]] * 3
    await client.close()


@pytest.mark.parametrize("turns", range(0, 60, 6))
async def test_a_client_that_is_closed_while_it_opens_a_producer_leaves_nothing(
    world: World, client: Client, turns: int
) -> None:
    await create(world)
    opening = asyncio.ensure_future(client.producer("orders"))
    await asyncio.sleep(turns / 1000)
    await client.close()
    await asyncio.wait([opening])
    assert opening.cancelled() or isinstance(opening.exception(), ClientError | None)
    await asyncio.sleep(2)
    assert owners(world) == [[]] * 3


async def test_transactions_reach_over_partitions(world: World, client: Client) -> None:
    producer = await new_producer(world, client)
    transaction = await client.new_transaction()
    for number in range(6):
        await producer.send(b"%d" % number, transaction=transaction)
    readers = [await client.reader(partition(index), start=EARLIEST) for index in range(3)]
    assert not any([await one.has_message() for one in readers])
    await transaction.commit()
    received = [(await one.receive()).payload for one in readers for _ in range(2)]
    assert sorted(received) == [b"%d" % number for number in range(6)]


async def test_a_partition_is_a_topic_by_itself(world: World, client: Client) -> None:
    await create(world)
    producer = await client.producer(partition(2))
    assert not isinstance(producer, PartitionedProducer)
    await producer.send(b"x")
    assert counts(world) == [0, 0, 1]


@pytest.mark.parametrize("lazy", [False, True], ids=["all at once", "lazy"])
@pytest.mark.parametrize("seed", range(6))
async def test_kills_and_growth_during_a_stream_lose_and_duplicate_nothing(
    world: World, client: Client, seed: int, *, lazy: bool
) -> None:
    """Per partition in order, and each message once, for a consumer that was connected all the time."""
    await create(world, 2)
    consumer = await client_of(world, topics_interval_seconds=1.0).subscribe("orders", "s")
    producer = await client.producer("orders", name="p", lazy=lazy, batching=Batching())
    sends = []
    for burst in range(12):
        key = f"key-{burst % 5}"
        sends += [producer.send_nowait(b"%d" % (20 * burst + n), key=key) for n in range(20)]
        await asyncio.sleep(0.3)
        if burst % 4 == 1:
            await restart(world, 0.5)
        if burst % 4 == 2:
            await grow(world, 3 + burst // 4)
    await asyncio.wait_for(asyncio.gather(*sends), 120)
    await producer.close()
    received: dict[int, list[int]] = {}
    for partition_of_it in range(5):
        reader = await client_of(world).reader(partition(partition_of_it), start=EARLIEST)
        while await reader.has_message():
            message = await reader.receive()
            received.setdefault(message.id.partition, []).append(int(message.payload))
    assert sorted(n for one in received.values() for n in one) == list(range(240))
    assert all(one == sorted(one) for one in received.values())
    seen: set[int] = set()
    async with asyncio.timeout(120):
        while len(seen) < 240:
            message = await consumer.receive()
            seen.add(int(message.payload))
            await consumer.acknowledge(message)
