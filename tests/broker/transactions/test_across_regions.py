"""Transactions of one region as other regions see them: only committed messages, in order, without transaction
metadata."""

from __future__ import annotations

import pytest

from emulator.client import EARLIEST, InitialPosition
from emulator.wire.message_metadata import read_entry
from tests.broker.connection.raw import raw_client
from tests.broker.regions import Regions, regions, until
from tests.broker.replication.test_replication import drained
from tests.broker.topic.test_transaction_buffer import readable
from tests.broker.transactions.controlled_coordinator import (
    T1,
    T2,
    T3,
    TOPIC,
    Transacting,
    authority_of,
    end,
    topic_of,
)

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions


async def test_only_committed_messages_are_replicated_in_the_order_of_the_log() -> None:
    """The replicated messages name no transaction."""
    async with regions("us", "eu") as world, raw_client(world) as raw:
        authority_of(world).open(T1, T2)
        producer = await Transacting.opened(raw)
        for payload, txn in ((b"a", None), (b"b", T1), (b"c", None), (b"d", T2), (b"e", T1), (b"f", None)):
            await producer.send(payload, txn)
        await until(lambda: TOPIC in world.running["eu"].directory.serving and drained(world), 30)
        assert await readable(world, "eu") == [b"a"]
        await end(world, T1, committed=True)
        await until(lambda: drained(world), 30)
        assert await readable(world, "eu") == [b"a", b"b", b"c"]
        await end(world, T2, committed=False)
        await until(lambda: drained(world), 30)
        assert await readable(world, "eu") == [b"a", b"b", b"c", b"e", b"f"]
        stored = await topic_of(world, "eu").log.read(0, 100, 1_000_000)
        assert [read_entry(one.data).txn for one in stored] == [None] * 5


async def test_a_replicator_passes_runs_of_aborted_messages() -> None:
    """Also when it starts late, after a restart, and reads from the store."""
    async with regions("us", "eu", state_checkpoint_entries=20) as world:
        authority = authority_of(world)
        authority.open(T1, T2)
        world.cut("us", "eu")
        async with raw_client(world) as raw:
            producer = await Transacting.opened(raw)
            for number in range(50):
                await producer.send(b"aborted %d" % number, T1)
            await producer.send(b"a")
            for number in range(50):
                await producer.send(b"%d" % number, T2)
            await end(world, T1, committed=False)
            await end(world, T2, committed=False)
        await world.crash("us")
        await world.start("us")
        authority_of(world, former=authority)
        world.heal("us", "eu")
        await until(lambda: TOPIC in world.running["eu"].directory.serving, 30)
        await until(lambda: TOPIC in world.running["us"].directory.serving and drained(world), 30)
        assert await readable(world, "eu") == [b"a"]


def _mark_delete(world: Regions, name: str) -> int:
    topic = world.running[name].directory.serving.get(TOPIC)
    subscription = None if topic is None else topic.subscriptions.get("s")
    return -2 if subscription is None else subscription.cursor.mark_delete


async def test_an_update_never_takes_a_cursor_past_an_open_transaction() -> None:
    """A consumer in the other region reads everything available, while a transaction is open here."""
    async with regions("us", "eu") as world, raw_client(world) as raw:
        authority_of(world).open(T1, T3)
        producer = await Transacting.opened(raw)
        async with world.client("us") as at_us, world.client("eu") as at_eu:
            here = await at_us.subscribe(
                TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True
            )
            await here.close()
            there = await at_eu.subscribe(
                TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True
            )
            await producer.send(b"a")
            await there.acknowledge(await there.receive(), confirmed=True)
            first = topic_of(world).state.stored_end
            await producer.send(b"open", T1)
            elsewhere = await at_eu.producer(TOPIC, name="eu")
            for number in range(5):
                await elsewhere.send(b"%d" % number)
                await there.acknowledge(await there.receive(), confirmed=True)
            await until(lambda: topic_of(world).state.stored_end > first + 5, 30)
            topic = topic_of(world)
            opened = next(iter(topic.state.buffer.open.values())).first_entry_id
            await until(lambda: topic.state.stored_end > opened + 8, 30)
            assert _mark_delete(world, "us") < opened
            await end(world, T1, committed=True)
            assert (await there.receive()).payload == b"open"


async def test_a_reader_in_the_other_region_is_never_shown_an_aborted_message() -> None:
    async with regions("us", "eu") as world, raw_client(world) as raw:
        authority_of(world).open(T1)
        producer = await Transacting.opened(raw)
        await producer.send(b"no", T1)
        await producer.send(b"yes")
        async with world.client("eu") as client:
            reader = await client.reader(TOPIC, EARLIEST)
            await end(world, T1, committed=False)
            assert (await reader.receive()).payload == b"yes"
