"""Exclusive access to a topic with partitions is all or nothing (INV-73). With our own client under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import AccessMode, ClientError, Producer, Standing
from emulator.client.partitioned_producer import PartitionedProducer
from emulator.errors import ServerError
from emulator.simulation.world import World, world
from tests.client.test_partitioned_producer import (
    client_of,
    counts,
    create,
    grow,
    grown,
    partition,
    producers_at,
    region,
    terminate,
)

EXCLUSIVE = AccessMode.EXCLUSIVE
WAITING = AccessMode.WAIT_FOR_EXCLUSIVE
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING


def owners(w: World, partitions: int = 3) -> list[list[str]]:
    return [producers_at(w, index) for index in range(partitions)]


def in_line(w: World, index: int) -> list[str]:
    return [one.producer_name for one in region(w).directory.serving[partition(index)].access.line]


async def meets(producer: Producer, code: ServerError) -> None:
    """Its next publish, wherever it goes."""
    for key in ("key-0", "key-1", "key-2"):
        with pytest.raises(ClientError) as refusal:
            await producer.send(b"too late", key=key)
        assert refusal.value.code is code


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=lambda mode: mode.label)
def test_whoever_has_the_topic_has_all_partitions(mode: AccessMode) -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            owner = await client_of(w).producer("orders", name="owner", access_mode=mode)
            assert owners(w) == [["owner"]] * 3
            assert owner.topic_epoch == 0
            for number in range(3):
                await owner.send(b"%d" % number)
            with pytest.raises(ClientError) as refusal:
                await client_of(w).producer("orders", name="other", access_mode=EXCLUSIVE)
            assert refusal.value.code is ServerError.ProducerFenced
            assert owners(w) == [["owner"]] * 3

        w.play(story())


def test_who_cannot_have_one_partition_keeps_none() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            squatter = await client_of(w).producer(partition(2), name="squatter")
            with pytest.raises(ClientError) as refusal:
                await client_of(w).producer("orders", name="owner", access_mode=EXCLUSIVE)
            assert refusal.value.code is ServerError.ProducerFenced
            assert owners(w) == [[], [], ["squatter"]]
            await squatter.close()
            await client_of(w).producer("orders", name="owner", access_mode=EXCLUSIVE)
            assert owners(w) == [["owner"]] * 3

        w.play(story())


def test_whoever_waits_stands_in_line_at_the_first_partition_and_then_gets_all() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            stood: list[Standing] = []
            owner = await client_of(w).producer("orders", name="owner", access_mode=WAITING)
            waiting = asyncio.ensure_future(
                client_of(w).producer(
                    "orders",
                    name="waiter",
                    access_mode=WAITING,
                    on_standing=lambda _, standing: stood.append(standing),
                )
            )
            await w.simulation.until(lambda: in_line(w, 0) == ["waiter"])
            assert [in_line(w, index) for index in range(3)] == [["waiter"], [], []]
            await owner.close()
            waiter = await waiting
            assert owners(w) == [["waiter"]] * 3
            assert stood == [Standing.ASKS, Standing.WAITS, Standing.ASKS, Standing.ASKS, Standing.OPEN]
            await waiter.send(b"mine")

        w.play(story())


@pytest.mark.parametrize("seed", range(12))
def test_of_many_that_want_all_partitions_at_once_one_after_the_other_has_them(seed: int) -> None:
    """Nobody waits in a circle."""
    with world("us", seed=seed) as w:

        async def take_it(name: str) -> None:
            client = client_of(w)
            producer = await client.producer("orders", name=name, access_mode=WAITING)
            assert owners(w, 4) == [[name]] * 4
            await producer.send(name.encode())
            await producer.close()

        async def story() -> None:
            await create(w, 4)
            names = [f"p{number}" for number in range(6)]
            async with asyncio.timeout(120):
                await asyncio.gather(*map(take_it, names))
            assert sum(counts(w, 4)) == 6

        w.play(story())


def test_who_gives_up_waiting_for_a_later_partition_lets_go_of_the_earlier_ones() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            await client_of(w).producer(partition(1), name="squatter", access_mode=EXCLUSIVE)
            waiting = asyncio.ensure_future(
                client_of(w).producer("orders", name="waiter", access_mode=WAITING)
            )
            await w.simulation.until(lambda: in_line(w, 1) == ["waiter"])
            assert producers_at(w, 0) == ["waiter"]
            waiting.cancel()
            await asyncio.wait([waiting])
            await w.simulation.until(lambda: owners(w) == [[], ["squatter"], []] and not in_line(w, 1))

        w.play(story())


@pytest.mark.parametrize("lost", range(3))
def test_whoever_is_fenced_off_one_partition_has_lost_the_topic(lost: int) -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            loser = await client_of(w).producer("orders", name="loser", access_mode=EXCLUSIVE)
            for number in range(3):
                await loser.send(b"%d" % number)
            await client_of(w).producer(partition(lost), name="winner", access_mode=FENCING)
            expected: list[list[str]] = [[], [], []]
            expected[lost] = ["winner"]
            await w.simulation.until(lambda: owners(w) == expected)
            await meets(loser, ServerError.ProducerFenced)
            assert not loser.is_connected
            assert counts(w) == [1, 1, 1]
            await loser.close()

        w.play(story())


def test_whoever_fences_takes_all_partitions_from_the_owner() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            loser = await client_of(w).producer("orders", name="loser", access_mode=EXCLUSIVE)
            winner = await client_of(w).producer("orders", name="winner", access_mode=FENCING)
            await w.simulation.until(lambda: owners(w) == [["winner"]] * 3)
            await meets(loser, ServerError.ProducerFenced)
            await winner.send(b"mine")

        w.play(story())


def test_a_terminated_partition_takes_nobody_the_topic_away() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w, 2)
            owner = await client_of(w).producer("orders", name="owner", access_mode=EXCLUSIVE)
            await terminate(w, partition(1))
            outcomes = await asyncio.gather(*[owner.send(b"x") for _ in range(4)], return_exceptions=True)
            codes = [one.code for one in outcomes if isinstance(one, ClientError)]
            assert codes == [ServerError.TopicTerminatedError] * 2
            assert counts(w, 2) == [2, 0]

        w.play(story())


def test_the_owner_keeps_all_partitions_over_a_crash_of_the_region_and_waiters_their_place() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            owner = await client_of(w).producer("orders", name="owner", access_mode=WAITING)
            waiting = asyncio.ensure_future(
                client_of(w).producer("orders", name="waiter", access_mode=WAITING)
            )
            await w.simulation.until(lambda: in_line(w, 0) == ["waiter"])
            w.kill("us")
            await asyncio.sleep(1)
            w.start("us")
            for number in range(3):
                await owner.send(b"%d" % number)
            assert owners(w) == [["owner"]] * 3
            assert owner.topic_epoch == 0
            await owner.close()
            await waiting
            assert owners(w) == [["waiter"]] * 3

        w.play(story())


def test_the_owner_takes_partitions_that_come_and_waits_for_those_that_another_has() -> None:
    """Nothing is published to a partition before it is the owner's."""
    with world("us") as w:

        async def story() -> None:
            await create(w, 1)
            owner = await client_of(w).producer("orders", name="owner", access_mode=EXCLUSIVE)
            assert isinstance(owner, PartitionedProducer)
            await grow(w, 3)
            squatter = await client_of(w).producer(partition(1), name="squatter")
            await asyncio.sleep(3)
            for _ in range(3):
                await owner.send(b"mine")
            assert counts(w) == [3, 0, 0]
            assert producers_at(w, 2) == []
            await squatter.close()
            await grown(owner, 3)
            assert owners(w) == [["owner"]] * 3

        w.play(story())


def test_exclusive_access_is_not_lazy() -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w)
            with pytest.raises(ValueError, match="lazy is not supported"):
                await client_of(w).producer("orders", access_mode=EXCLUSIVE, lazy=True)

        w.play(story())


@pytest.mark.parametrize("seed", range(10))
def test_of_two_that_fence_at_the_same_time_at_most_one_goes_on_and_the_next_one_gets_all(seed: int) -> None:
    """Both may have lost a partition to the other: then both are out, and nothing is held."""
    with world("us", seed=seed) as w:

        async def story() -> None:
            await create(w)
            both = await asyncio.gather(
                *[
                    client_of(w).producer("orders", name=name, access_mode=FENCING)
                    for name in ("one", "other")
                ],
                return_exceptions=True,
            )
            await asyncio.sleep(5)
            alive = [one for one in both if isinstance(one, Producer) and one.is_connected]
            assert len(alive) <= 1
            assert owners(w) == [[one.name for one in alive]] * 3
            await client_of(w).producer("orders", name="next", access_mode=FENCING)
            await w.simulation.until(lambda: owners(w) == [["next"]] * 3)

        w.play(story())


@pytest.mark.parametrize("milliseconds", range(0, 1_400, 100))
def test_an_owner_that_closes_while_its_topic_grows_leaves_nothing(milliseconds: int) -> None:
    with world("us") as w:

        async def story() -> None:
            await create(w, 1)
            owner = await client_of(w).producer("orders", name="owner", access_mode=WAITING)
            await grow(w, 4)
            await client_of(w).producer(partition(2), name="squatter", access_mode=EXCLUSIVE)
            await asyncio.sleep(milliseconds / 1000)
            await owner.close()
            await asyncio.sleep(3)
            assert owners(w, 4) == [[], [], ["squatter"], []]
            assert in_line(w, 2) == []

        w.play(story())
