"""Exclusive producers of a compacted topic: every reader sees the newest value that an owner was allowed to publish.
With our own client under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import EARLIEST, AccessMode, Client, ClientError, Producer
from emulator.errors import ServerError
from emulator.model.values import TopicName
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import World
from tests.client.topics import ORDERS, PATH, admin, client_of, create, partition, region, restart

EXCLUSIVE = AccessMode.EXCLUSIVE
WAITING = AccessMode.WAIT_FOR_EXCLUSIVE
FENCING = AccessMode.EXCLUSIVE_WITH_FENCING
SLOW = DiskFaults(commit_seconds=(0.05, 0.05))


async def compact(w: World, *topics: str) -> None:
    """Compact all of them, to the end."""
    await admin(w, "PUT", f"{PATH}/orders/compaction")
    await w.simulation.until(lambda: all(is_compacted(w, topic) for topic in topics))


def is_compacted(w: World, topic: str) -> bool:
    return region(w).directory.serving[topic].compaction.status.name == "SUCCESS"


async def newest(client: Client, *topics: str) -> dict[str | None, bytes]:
    """Return what a reader of compacted topics receives; each key once."""
    found: dict[str | None, bytes] = {}
    for topic in topics:
        reader = await client.reader(topic, EARLIEST, read_compacted=True)
        while await reader.has_message():
            message = await reader.receive()
            assert message.key not in found
            found[message.key] = message.payload
        await reader.close()
    return found


async def put(producer: Producer, value: bytes, *keys: str) -> None:
    for key in keys:
        await producer.send(value, key=key)


async def fenced(producer: Producer, key: str) -> None:
    with pytest.raises(ClientError) as refusal:
        await producer.send(b"too late", key=key)
    assert refusal.value.code is ServerError.ProducerFenced


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=lambda mode: mode.label)
@pytest.mark.world("us", disk=SLOW)
async def test_an_owner_goes_on_while_its_topic_is_compacted(world: World, mode: AccessMode) -> None:
    owner = await client_of(world).producer("orders", access_mode=mode)
    await put(owner, b"1", "a", "b", "c")
    compacting = asyncio.ensure_future(compact(world, ORDERS))
    for value in (b"2", b"3"):
        await put(owner, value, "a")
    await compacting
    await put(owner, b"", "b")
    await compact(world, ORDERS)
    assert owner.topic_epoch == 0
    assert await newest(client_of(world), ORDERS) == {"a": b"3", "c": b"1"}


@pytest.mark.parametrize("seed", range(0, 400, 40))
@pytest.mark.world("us", disk=SLOW)
async def test_an_owner_that_is_fenced_during_compaction_leaves_nothing_after_the_new_owner(
    world: World, seed: int
) -> None:
    """At whatever step compaction is when the new owner arrives, `seed` milliseconds after its begin."""
    loser = await client_of(world).producer("orders", name="loser", access_mode=EXCLUSIVE)
    await put(loser, b"old", "a", "b", "c")
    compacting = asyncio.ensure_future(compact(world, ORDERS))
    under_way = [loser.send_nowait(b"last of old", key=key) for key in "abc"]
    await asyncio.sleep(seed / 1000)
    winner = await client_of(world).producer("orders", name="winner", access_mode=FENCING)
    await put(winner, b"new", "a", "b")
    await asyncio.wait(under_way)
    await fenced(loser, "a")
    await compacting
    await compact(world, ORDERS)
    found = await newest(client_of(world), ORDERS)
    assert (found["a"], found["b"]) == (b"new", b"new")
    assert found["c"] in (b"old", b"last of old")


@pytest.mark.world("us", disk=SLOW)
async def test_epochs_and_what_was_compacted_survive_a_crash_together(world: World) -> None:
    first = await client_of(world).producer("orders", name="first", access_mode=EXCLUSIVE)
    await put(first, b"1", "a", "b")
    second = await client_of(world).producer("orders", name="second", access_mode=FENCING)
    await put(second, b"2", "a")
    await compact(world, ORDERS)
    await restart(world)
    await put(second, b"3", "b")
    await fenced(first, "a")
    assert second.topic_epoch == 1
    await compact(world, ORDERS)
    assert await newest(client_of(world), ORDERS) == {"a": b"2", "b": b"3"}


async def test_a_leader_keeps_its_state_in_a_compacted_topic_with_partitions(world: World) -> None:
    """The next leader reads the former one's state, partition by partition, and continues from there."""
    topics = [partition(index) for index in range(3)]
    keys = [f"key-{number}" for number in range(12)]

    await create(world)
    assert region(world).partitioned.count(TopicName.parse(ORDERS)) == 3
    state: dict[str | None, bytes] = {}
    for term in range(3):
        client = client_of(world)
        leader = await client.producer("orders", name=f"leader-{term}", access_mode=WAITING)
        assert await newest(client, *topics) == state
        await put(leader, b"%d" % term, *keys[: 4 * (3 - term)])
        state |= dict.fromkeys(keys[: 4 * (3 - term)], b"%d" % term)
        await compact(world, *topics)
        await client.close()
    assert sorted(set(state.values())) == [b"0", b"1", b"2"]
