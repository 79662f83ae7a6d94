"""What a consumer acknowledged beyond a gap is not delivered again in another region."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from emulator.broker.subscription import individual_acks
from emulator.broker.subscription.individual_acks import TopicIndividualAcks
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import Batching, Client, Consumer, ConsumerType, InitialPosition, Message
from emulator.core.cursor.cursor import Cursor
from emulator.core.policies.replicated_subscriptions import REPLICATE_INDIVIDUAL_ACKS
from emulator.core.replication.snapshot_types import WriteMarker
from emulator.errors import StorageDamaged
from emulator.model.markers import AckedEntries, SubscriptionUpdate
from emulator.model.stored_keys import CursorPartKey, NamespacePath
from tests.broker.regions import Regions, regions, until
from tests.broker.replication.test_replication import TOPIC, drained
from tests.broker.subscription.test_replicated_subscriptions import backlog
from tests.broker.test_damaged_state import restarted

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

ON = {"replicate_individual_acks": True, "individual_ack_interval_ms": 20}
SHARED, EARLIEST = ConsumerType.SHARED, InitialPosition.EARLIEST
TYPES = (ConsumerType.SHARED, ConsumerType.KEY_SHARED, ConsumerType.FAILOVER, ConsumerType.EXCLUSIVE)


async def consumer_of(client: Client, type_: ConsumerType = SHARED) -> Consumer:
    return await client.subscribe(TOPIC, "s", type_=type_, initial_position=EARLIEST, replicated=True)


async def publish(client: Client, count: int, prefix: bytes = b"") -> None:
    producer = await client.producer(TOPIC)
    await asyncio.gather(
        *[producer.send(prefix + b"%d" % number, key=f"{number}") for number in range(count)]
    )


async def received(consumer: Consumer, count: int) -> list[Message]:
    return [await asyncio.wait_for(consumer.receive(), 10) for _ in range(count)]


async def payloads(consumer: Consumer, count: int) -> list[bytes]:
    return [message.payload for message in await received(consumer, count)]


async def receives_nothing_more(consumer: Consumer, client: Client) -> None:
    """The next message is one that is published now."""
    await publish(client, 1, b"last ")
    assert await payloads(consumer, 1) == [b"last 0"]


def cursor(world: Regions, region: str) -> Cursor:
    return world.running[region].directory.serving[TOPIC].subscriptions["s"].cursor


def acks(world: Regions, region: str) -> TopicIndividualAcks:
    replicated = world.running[region].directory.serving[TOPIC].subscriptions.replicated
    assert replicated is not None
    assert replicated.individual is not None
    return replicated.individual


def claim(world: Regions, region: str, *acked: AckedEntries) -> None:
    """Let a region send a claim, true or not."""
    replicated = world.running[region].directory.serving[TOPIC].subscriptions.replicated
    assert replicated is not None
    replicated._markers.write(WriteMarker(SubscriptionUpdate("s", (), acked), ()))


def ledger(world: Regions, region: str) -> int:
    return world.running[region].directory.serving[TOPIC].ledger_id


async def test_one_message_left_unacknowledged_is_redelivered_alone() -> None:
    """2,000 messages, one of them unacknowledged: one redelivery after the fail-over."""
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await consumer_of(us)
        await publish(us, 2_000)
        messages = await received(consumer, 2_000)
        await consumer.acknowledge(*messages[:7], *messages[8:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 1)
        await world.crash("us")
        again = await consumer_of(eu)
        assert await payloads(again, 1) == [messages[7].payload]
        await receives_nothing_more(again, eu)


@pytest.mark.parametrize("type_", TYPES)
async def test_consumers_of_every_type_receive_what_is_unacknowledged(type_: ConsumerType) -> None:
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await consumer_of(us, type_)
        await publish(us, 30)
        await publish(eu, 30, b"eu ")
        messages = await received(consumer, 60)
        await consumer.acknowledge(*[one for at, one in enumerate(messages) if at % 10], confirmed=True)
        await until(lambda: backlog(world, "eu") == 6)
        await world.crash("us")
        again = await consumer_of(eu, type_)
        left = {message.payload for message in messages[::10]}
        assert set(await payloads(again, 6)) == left
        await receives_nothing_more(again, eu)


async def test_entries_that_are_not_in_memory_are_acknowledged_when_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after a restart of the region, while the sender of the claim is dead."""
    monkeypatch.setattr(individual_acks, "APPLIED_AT_ONCE_MAX", 0)
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await consumer_of(us)
        await publish(us, 300)
        messages = await received(consumer, 300)
        await consumer.acknowledge(*messages[1:], confirmed=True)
        await until(
            lambda: (
                backlog(world, "eu") == 300
                and sum(len(one.claim.entries) for one in cursor(world, "eu").claims.values()) >= 299
            )
        )
        await world.crash("us")
        await world.stop("eu")
        await world.start("eu")
        again = await consumer_of(eu)
        left = await received(again, 1)
        assert left[0].payload == messages[0].payload
        await again.acknowledge(*left, confirmed=True)
        await receives_nothing_more(again, eu)
        await until(lambda: not cursor(world, "eu").claims)


async def test_what_is_applied_survives_the_kill_of_both_regions() -> None:
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await consumer_of(us)
        await publish(us, 50)
        messages = await received(consumer, 50)
        await consumer.acknowledge(*messages[1:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 1)
        stored = world.running["eu"].directory.serving[TOPIC].subscriptions["s"]
        await stored.persisted()
        await world.crash("us")
        await world.crash("eu")
        await world.start("eu")
        again = await consumer_of(eu)
        assert await payloads(again, 1) == [messages[0].payload]
        await receives_nothing_more(again, eu)


async def test_a_sender_continues_after_a_restart() -> None:
    """It does not know which positions it sent before."""
    async with regions("us", "eu", **ON) as world, world.client("us") as us:
        consumer = await consumer_of(us)
        await publish(us, 20)
        messages = await received(consumer, 20)
        await consumer.acknowledge(*messages[1:10], confirmed=True)
        await until(lambda: backlog(world, "eu") == 11)
        await world.crash("us")
        await world.start("us")
        again = await received(consumer, 11)
        await consumer.acknowledge(*again[1:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 1)


async def test_messages_of_a_batch_that_were_acknowledged_are_not_received_again() -> None:
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await consumer_of(us)
        producer = await us.producer(TOPIC, batching=Batching(messages_max=8, delay_ms_max=10_000))
        await asyncio.gather(*[producer.send(b"%d" % number) for number in range(16)])
        messages = await received(consumer, 16)
        await consumer.acknowledge(*messages[:3], *messages[4:13], confirmed=True)
        await until(lambda: backlog(world, "eu") == 2 and len(cursor(world, "eu").open_bits) == 2)
        await world.crash("us")
        again = await consumer_of(eu)
        assert await payloads(again, 4) == [b"3", b"13", b"14", b"15"]
        await receives_nothing_more(again, eu)


async def test_three_regions_know_what_one_consumer_acknowledged_of_all() -> None:
    async with regions("us", "eu", "ap", **ON) as world:
        clients = [world.client(name) for name in world.names]
        consumer = await consumer_of(clients[0])
        await asyncio.gather(*[publish(client, 40) for client in clients])
        messages = await received(consumer, 120)
        await consumer.acknowledge(*messages[1:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 1 and backlog(world, "ap") == 1)
        for client in clients:
            await client.close()


async def test_claims_continue_while_a_third_region_is_dead() -> None:
    """No snapshot completes, so no position is sent."""
    async with regions("us", "eu", "ap", **ON) as world, world.client("us") as us:
        await world.crash("ap")
        consumer = await consumer_of(us)
        await publish(us, 40)
        messages = await received(consumer, 40)
        await consumer.acknowledge(*messages[1:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 1)
        await world.start("ap")
        await until(lambda: backlog(world, "ap") == 1)


async def test_acknowledgements_of_an_open_transaction_are_not_claimed() -> None:
    async with regions("us", "eu", **ON) as world, world.client("us") as us:
        consumer = await consumer_of(us)
        await publish(us, 10)
        messages = await received(consumer, 10)
        transaction = await us.new_transaction()
        await consumer.acknowledge(*messages[2:5], transaction=transaction)
        await consumer.acknowledge(*messages[5:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 5)
        await transaction.commit()
        await until(lambda: backlog(world, "eu") == 2)


async def test_a_message_that_a_transaction_here_holds_stays_with_it() -> None:
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer, other = await consumer_of(us), await consumer_of(eu)
        await publish(us, 4)
        here, there = await received(consumer, 4), await received(other, 4)
        transaction = await eu.new_transaction()
        await other.acknowledge(there[2], transaction=transaction)
        await consumer.acknowledge(*here[1:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 2)
        await transaction.abort()
        await until(lambda: backlog(world, "eu") == 1)


async def test_after_a_seek_everything_is_received_again() -> None:
    """The other region repeats its claim with each acknowledgement."""
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer, other = await consumer_of(us), await consumer_of(eu)
        await publish(us, 20)
        messages = await received(consumer, 20)
        there = await received(other, 20)
        await consumer.acknowledge(*messages[1:10], confirmed=True)
        await until(lambda: backlog(world, "eu") == 11)
        await other.seek(there[0].id)
        assert await payloads(other, 20) == [one.payload for one in there]
        claims = acks(world, "eu").claims_received
        await consumer.acknowledge(*messages[10:], confirmed=True)
        await until(lambda: acks(world, "eu").claims_received > claims)
        assert backlog(world, "eu") == 20
        await publish(us, 1)
        new = await received(consumer, 1)
        await consumer.acknowledge(*new, confirmed=True)
        claims = acks(world, "eu").claims_received
        await until(lambda: acks(world, "eu").claims_received > claims or backlog(world, "eu") == 20)
        assert backlog(world, "eu") == 20


async def test_without_new_acknowledgements_nothing_is_written() -> None:
    async with regions("us", "eu", "ap", **ON, snapshot_interval_ms=20) as world:
        clients = [world.client(name) for name in world.names]
        consumers = [await consumer_of(client) for client in clients]
        await asyncio.gather(*[publish(client, 20) for client in clients])
        for consumer in consumers:
            messages = await received(consumer, 60)
            await consumer.acknowledge(*messages[1::2], confirmed=True)
        loop, quiet_since = asyncio.get_running_loop(), [0.0]
        ends: list[int] = []

        def is_quiet() -> bool:
            nonlocal ends
            now = [region.directory.serving[TOPIC].state.stored_end for region in world.running.values()]
            if now != ends:
                ends, quiet_since[0] = now, loop.time()
            return drained(world) and loop.time() > quiet_since[0] + 0.5

        await until(is_quiet)
        assert {backlog(world, name) for name in world.names} == {30}
        for client in clients:
            await client.close()


async def test_the_switch_applies_at_run_time() -> None:
    async with regions("us", "eu", individual_ack_interval_ms=20) as world, world.client("us") as us:
        consumer = await consumer_of(us)
        await publish(us, 20)
        messages = await received(consumer, 20)
        await consumer.acknowledge(*messages[1:], confirmed=True)
        await until(lambda: drained(world))
        for region in world.running.values():
            await region.policies.set(NamespacePath("public/default"), REPLICATE_INDIVIDUAL_ACKS, True)
        await until(lambda: backlog(world, "eu") == 1)
        for region in world.running.values():
            await region.policies.set(NamespacePath("public/default"), REPLICATE_INDIVIDUAL_ACKS, False)
        subscription = world.running["us"].directory.serving[TOPIC].subscriptions["s"]
        await until(lambda: subscription.stored_cursor.on_change is None)


async def test_without_the_switch_nothing_is_added() -> None:
    """No timer, no call per acknowledgement, no marker; and a claim of another region has no effect."""
    async with regions("us", "eu", of_region={"us": ON}) as world, world.client("us") as us:
        consumer = await consumer_of(us)
        await publish(us, 20)
        messages = await received(consumer, 20)
        await consumer.acknowledge(*messages[1:], confirmed=True)
        await until(lambda: acks(world, "us")._senders["s"].machine.updates > 0 and drained(world))
        topic = world.running["eu"].directory.serving[TOPIC]
        assert topic.subscriptions.replicated is not None
        assert topic.subscriptions.replicated.individual is None
        assert all(one.stored_cursor.on_change is None for one in topic.subscriptions.values())
        assert backlog(world, "eu") in (None, 20)


# Wrong claims.


def everything(world: Regions, names: Sequence[str], last: int = 2**63 - 1) -> list[AckedEntries]:
    return [AckedEntries(name, ledger(world, name), ((0, last),)) for name in names]


async def test_a_claim_of_future_messages_acknowledges_none_of_them() -> None:
    async with regions("us", "eu", "ap", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        other = await consumer_of(eu)
        await publish(us, 5)
        await until(
            lambda: drained(world) and all(TOPIC in one.directory.serving for one in world.running.values())
        )
        claim(world, "us", *everything(world, world.names))
        await until(lambda: backlog(world, "eu") == 0)
        for name in world.names:
            async with world.client(name) as client:
                await publish(client, 5, f"{name} ".encode())
        found = await received(other, 20)
        expected = {f"{name} {number}".encode() for name in world.names for number in range(5)}
        assert expected <= {message.payload for message in found}


async def test_claims_of_another_incarnation_of_the_topic_are_ignored() -> None:
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        await consumer_of(eu)
        await publish(us, 5)
        await until(lambda: drained(world) and backlog(world, "eu") == 5)
        older = [AckedEntries(name, ledger(world, name) + 1, ((0, 99),), ((3, 1),)) for name in world.names]
        received_before = acks(world, "eu").claims_received
        claim(world, "us", *older, AckedEntries("nowhere", 1, ((0, 99),)))
        await until(lambda: acks(world, "eu").claims_received > received_before)
        assert backlog(world, "eu") == 5


async def test_a_damaged_stored_claim_is_named() -> None:
    async with regions("us", "eu", **ON) as world:
        async with world.client("us") as us:
            await consumer_of(us)
        key = CursorPartKey(TOPIC, "s", "0-claims").text
        for damage in (
            b"\xff",
            b"7",
            b'{"eu": {"entries": {"x": [[2, 1]]}, "batches": [], "end": 3}}',
            b'{"eu": 1}',
        ):
            await restarted(world, {key: damage})
            with pytest.raises(StorageDamaged, match=r"cursor/.* is damaged"):
                await world.running["us"].directory.acquire(TOPIC, OpenMode.EXISTING)
