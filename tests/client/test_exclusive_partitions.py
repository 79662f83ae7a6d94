"""Exclusive access to a partitioned topic is all or nothing (INV-73). Under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, Client, ClientError, Producer, ProducerState
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.errors import ServerError
from emulator.simulation.world import World
from tests.client.topics import (
    WITH_PARTITIONS,
    client_of,
    counts,
    create,
    grow,
    grown,
    new_producer,
    owners,
    partition,
    producers_at,
    region,
    terminate,
)

SETTINGS = WITH_PARTITIONS
EXCLUSIVE = AccessMode.EXCLUSIVE
WAITING = AccessMode.WAIT_FOR_EXCLUSIVE
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING


def in_line(w: World, index: int) -> list[str]:
    return [one.producer_name for one in region(w).directory.serving[partition(index)].access.waiting]


async def meets(producer: Producer, code: ServerError) -> None:
    """Check the error of its next publish, whatever the partition."""
    for key in ("key-0", "key-1", "key-2"):
        with pytest.raises(ClientError) as refusal:
            await producer.send(b"too late", key=key)
        assert refusal.value.code is code


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=lambda mode: mode.label)
async def test_the_owner_of_a_topic_owns_all_partitions(
    world: World, client: Client, mode: AccessMode
) -> None:
    owner = await new_producer(world, client, name="owner", access_mode=mode)
    assert owners(world) == [["owner"]] * 3
    assert owner.topic_epoch == 0
    for number in range(3):
        await owner.send(b"%d" % number)
    with pytest.raises(ClientError) as refusal:
        await client_of(world).producer("orders", name="other", access_mode=EXCLUSIVE)
    assert refusal.value.code is ServerError.ProducerFenced
    assert owners(world) == [["owner"]] * 3


async def test_a_producer_that_cannot_own_one_partition_keeps_none(world: World, client: Client) -> None:
    await create(world)
    squatter = await client.producer(partition(2), name="squatter")
    with pytest.raises(ClientError) as refusal:
        await client_of(world).producer("orders", name="owner", access_mode=EXCLUSIVE)
    assert refusal.value.code is ServerError.ProducerFenced
    assert owners(world) == [[], [], ["squatter"]]
    await squatter.close()
    await client_of(world).producer("orders", name="owner", access_mode=EXCLUSIVE)
    assert owners(world) == [["owner"]] * 3


async def test_a_waiting_producer_queues_at_the_first_partition_and_then_owns_all(
    world: World, client: Client
) -> None:
    await create(world)
    stood: list[ProducerState] = []
    owner = await client.producer("orders", name="owner", access_mode=WAITING)
    waiting = asyncio.ensure_future(
        client_of(world).producer(
            "orders", name="waiter", access_mode=WAITING, on_state_change=lambda _, state: stood.append(state)
        )
    )
    await world.simulation.until(lambda: in_line(world, 0) == ["waiter"])
    assert [in_line(world, index) for index in range(3)] == [["waiter"], [], []]
    await owner.close()
    waiter = await waiting
    assert owners(world) == [["waiter"]] * 3
    assert stood == [
        ProducerState.REQUESTING,
        ProducerState.WAITING,
        ProducerState.REQUESTING,
        ProducerState.REQUESTING,
        ProducerState.OPEN,
    ]
    await waiter.send(b"mine")


@pytest.mark.parametrize("seed", range(12))
async def test_of_many_waiting_producers_one_after_the_other_owns_all_partitions(
    world: World, seed: int
) -> None:
    """No deadlock between waiting producers."""

    async def take_it(name: str) -> None:
        client = client_of(world)
        producer = await client.producer("orders", name=name, access_mode=WAITING)
        assert owners(world, 4) == [[name]] * 4
        await producer.send(name.encode())
        await producer.close()

    await create(world, 4)
    names = [f"p{number}" for number in range(6)]
    async with asyncio.timeout(120):
        await asyncio.gather(*map(take_it, names))
    assert sum(counts(world, 4)) == 6


async def test_a_producer_cancelled_at_a_later_partition_releases_the_earlier_ones(
    world: World, client: Client
) -> None:
    await create(world)
    await client.producer(partition(1), name="squatter", access_mode=EXCLUSIVE)
    waiting = asyncio.ensure_future(client_of(world).producer("orders", name="waiter", access_mode=WAITING))
    await world.simulation.until(lambda: in_line(world, 1) == ["waiter"])
    assert producers_at(world, 0) == ["waiter"]
    waiting.cancel()
    await asyncio.wait([waiting])
    await world.simulation.until(lambda: owners(world) == [[], ["squatter"], []] and not in_line(world, 1))


@pytest.mark.parametrize("lost", range(3))
async def test_a_producer_fenced_from_one_partition_has_lost_the_topic(
    world: World, client: Client, lost: int
) -> None:
    loser = await new_producer(world, client, name="loser", access_mode=EXCLUSIVE)
    for number in range(3):
        await loser.send(b"%d" % number)
    await client_of(world).producer(partition(lost), name="winner", access_mode=FENCING)
    expected: list[list[str]] = [[], [], []]
    expected[lost] = ["winner"]
    await world.simulation.until(lambda: owners(world) == expected)
    await meets(loser, ServerError.ProducerFenced)
    assert not loser.is_connected
    assert counts(world) == [1, 1, 1]
    await loser.close()


async def test_a_fencing_producer_takes_all_partitions_from_the_owner(world: World, client: Client) -> None:
    loser = await new_producer(world, client, name="loser", access_mode=EXCLUSIVE)
    winner = await client_of(world).producer("orders", name="winner", access_mode=FENCING)
    await world.simulation.until(lambda: owners(world) == [["winner"]] * 3)
    await meets(loser, ServerError.ProducerFenced)
    await winner.send(b"mine")


async def test_a_terminated_partition_does_not_cost_the_topic(world: World, client: Client) -> None:
    owner = await new_producer(world, client, partitions=2, name="owner", access_mode=EXCLUSIVE)
    await terminate(world, partition(1))
    outcomes = await asyncio.gather(*[owner.send(b"x") for _ in range(4)], return_exceptions=True)
    codes = [one.code for one in outcomes if isinstance(one, ClientError)]
    assert codes == [ServerError.TopicTerminatedError] * 2
    assert counts(world, 2) == [2, 0]


async def test_the_owner_keeps_all_partitions_over_a_crash_of_the_region_and_waiters_their_place(
    world: World, client: Client
) -> None:
    owner = await new_producer(world, client, name="owner", access_mode=WAITING)
    waiting = asyncio.ensure_future(client_of(world).producer("orders", name="waiter", access_mode=WAITING))
    await world.simulation.until(lambda: in_line(world, 0) == ["waiter"])
    world.kill("us")
    await asyncio.sleep(1)
    world.start("us")
    for number in range(3):
        await owner.send(b"%d" % number)
    assert owners(world) == [["owner"]] * 3
    assert owner.topic_epoch == 0
    await owner.close()
    await waiting
    assert owners(world) == [["waiter"]] * 3


async def test_the_owner_takes_partitions_that_come_and_waits_for_those_that_another_has(
    world: World, client: Client
) -> None:
    """Nothing is published to a partition before the producer owns it."""
    owner = await new_producer(world, client, partitions=1, name="owner", access_mode=EXCLUSIVE)
    assert isinstance(owner, PartitionedProducer)
    await grow(world, 3)
    squatter = await client_of(world).producer(partition(1), name="squatter")
    await asyncio.sleep(3)
    for _ in range(3):
        await owner.send(b"mine")
    assert counts(world) == [3, 0, 0]
    assert producers_at(world, 2) == []
    await squatter.close()
    await grown(owner, 3)
    assert owners(world) == [["owner"]] * 3


async def test_exclusive_access_is_not_lazy(world: World, client: Client) -> None:
    await create(world)
    with pytest.raises(ValueError, match="lazy is not supported"):
        await client.producer("orders", access_mode=EXCLUSIVE, lazy=True)


@pytest.mark.parametrize("seed", range(10))
async def test_of_two_that_fence_at_the_same_time_at_most_one_goes_on_and_the_next_one_gets_all(
    world: World, client: Client, seed: int
) -> None:
    """Both may have lost a partition to the other: then both are fenced, and no partition has an owner."""
    await create(world)
    both = await asyncio.gather(
        *[client.producer("orders", name=name, access_mode=FENCING) for name in ("one", "other")],
        return_exceptions=True,
    )
    await asyncio.sleep(5)
    alive = [one for one in both if isinstance(one, Producer) and one.is_connected]
    assert len(alive) <= 1
    assert owners(world) == [[one.name for one in alive]] * 3
    await client_of(world).producer("orders", name="next", access_mode=FENCING)
    await world.simulation.until(lambda: owners(world) == [["next"]] * 3)


@pytest.mark.parametrize("milliseconds", range(0, 1_400, 100))
async def test_an_owner_that_closes_while_its_topic_grows_leaves_nothing(
    world: World, client: Client, milliseconds: int
) -> None:
    owner = await new_producer(world, client, partitions=1, name="owner", access_mode=WAITING)
    await grow(world, 4)
    await client_of(world).producer(partition(2), name="squatter", access_mode=EXCLUSIVE)
    await asyncio.sleep(milliseconds / 1000)
    await owner.close()
    await asyncio.sleep(3)
    assert owners(world, 4) == [[], [], ["squatter"], []]
    assert in_line(world, 2) == []
