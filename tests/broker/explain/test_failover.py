"""Fail-over plans of running regions, compared with the fail-over that follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import pytest

from emulator.broker.explain import delivery, failover
from emulator.broker.explain.conditions import WaitScope, state_of
from emulator.broker.subscription import individual_acks
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import Batching, Consumer, ConsumerType, InitialPosition, Message
from emulator.core.replication.delivery_state import DeliveryState
from emulator.errors import ProtocolError, StorageError
from emulator.model.failover_plans import FailoverPlan
from emulator.model.values import TopicName
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"
FROM_THE_START = InitialPosition.EARLIEST


async def topic_in(world: Regions, region: str) -> Topic:
    return await world.running[region].directory.acquire(TOPIC, OpenMode.EXISTING)


async def state_in(world: Regions, region: str, source: str) -> DeliveryState:
    state = await delivery.delivery_state(await topic_in(world, region), "s", source)
    return DeliveryState.parse(json.loads(json.dumps(state.as_json())))


async def plan(world: Regions, source: str, target: str) -> FailoverPlan:
    state = await state_in(world, target, source)
    topic = await topic_in(world, source)
    found = await failover.failover_plan(topic, topic.subscriptions["s"], state)
    return FailoverPlan.from_json(json.loads(json.dumps(found.to_json())))


async def is_quiet(world: Regions) -> bool:
    topic = TopicName.parse(TOPIC)
    states = [
        await state_of(region, "quiet", WaitScope(topic, "s", frozenset(), {}))
        for region in world.running.values()
    ]
    return not any(state.missing for state in states)


async def settled_plan(world: Regions, source: str, target: str, *, redelivered: int = 1_000) -> FailoverPlan:
    """Wait until nothing is under way and the plan is as low as expected, and return it."""
    deadline = asyncio.get_running_loop().time() + 10
    while True:
        was_quiet, found = await is_quiet(world), await plan(world, source, target)
        if was_quiet and found.redelivered_messages <= redelivered:
            return found
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.01)


async def create_subscription(world: Regions, region: str) -> None:
    async with world.client(region) as client:
        await client.subscribe(
            TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START, replicated=True
        )


async def receive(consumer: Consumer, count: int) -> list[Message]:
    return [await asyncio.wait_for(consumer.receive(), 5) for _ in range(count)]


async def deliveries(consumer: Consumer, until_payload: bytes) -> list[bytes]:
    """Return the payloads before a message that was published last."""
    found: list[bytes] = []
    while (payload := (await asyncio.wait_for(consumer.receive(), 5)).payload) != until_payload:
        found.append(payload)
    return found


async def redelivered_after(
    world: Regions, source: str, target: str, acknowledged: Iterable[bytes]
) -> list[bytes]:
    """Kill the source, continue in the target, and return which acknowledged messages are delivered there."""
    await world.crash(source)
    async with world.client(target) as client:
        consumer = await client.subscribe(TOPIC, "s", type_=ConsumerType.SHARED, replicated=True)
        await (await client.producer(TOPIC)).send(b"last")
        known = set(acknowledged)
        return [payload for payload in await deliveries(consumer, b"last") if payload in known]


async def test_a_plan_predicts_the_redeliveries_of_a_shared_subscription_with_holes() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(
            TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START, replicated=True
        )
        await create_subscription(world, "eu")
        producer = await us.producer(TOPIC)
        for number in range(40):
            await producer.send(b"%d" % number)
        received = await receive(consumer, 40)
        acknowledged = [one for number, one in enumerate(received) if number not in (7, 30)]
        await consumer.acknowledge(*acknowledged, confirmed=True)
        found = await settled_plan(world, "us", "eu")
        assert (found.exact, found.complete, found.skipped_messages, found.missing_messages) == (
            True,
            True,
            0,
            0,
        )
        assert 31 <= found.redelivered_messages <= 38
        assert found.oldest_redelivered_age_ms is not None
        assert found.causes
        again = await redelivered_after(world, "us", "eu", [one.payload for one in acknowledged])
        assert len(again) == found.redelivered_messages


async def test_a_plan_counts_messages_of_batches_that_are_acknowledged_in_part() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(
            TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START, replicated=True
        )
        await create_subscription(world, "eu")
        producer = await us.producer(TOPIC, batching=Batching(messages_max=10, delay_ms_max=60_000.0))
        sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(30)]
        await asyncio.gather(*sends)
        received = await receive(consumer, 30)
        acknowledged = [one for number, one in enumerate(received) if number not in (3, 14)]
        await consumer.acknowledge(*acknowledged, confirmed=True)
        found = await settled_plan(world, "us", "eu")
        assert (found.redelivered_messages, found.exact) == (28, True)
        again = await redelivered_after(world, "us", "eu", [one.payload for one in acknowledged])
        assert len(again) == 28


async def test_nothing_is_redelivered_when_the_last_update_was_applied() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        for number in range(10):
            await producer.send(b"%d" % number)
        await consumer.acknowledge_cumulative((await receive(consumer, 10))[-1], confirmed=True)
        found = await settled_plan(world, "us", "eu", redelivered=0)
        assert (found.redelivered_messages, found.resume, found.wait_for) == (0, None, ())
        assert found.oldest_redelivered_age_ms is None
        assert await redelivered_after(world, "us", "eu", [b"%d" % number for number in range(10)]) == []


async def test_a_plan_under_load_is_a_bound_with_later_acknowledgements() -> None:
    """The guarantee: redelivered <= plan + acknowledged since the plan, without waiting for anything."""
    async with regions("us", "eu", snapshot_interval_ms=20) as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        acknowledged: list[bytes] = []

        async def work() -> None:
            for number in range(150):
                await producer.send(b"%d" % number)
                message = (await receive(consumer, 1))[0]
                await consumer.acknowledge(message, confirmed=True)
                acknowledged.append(message.payload)

        working = asyncio.ensure_future(work())
        await until(lambda: len(acknowledged) > 60)
        before = len(acknowledged)
        found = await plan(world, "us", "eu")
        await working
        assert found.complete
        again = await redelivered_after(world, "us", "eu", acknowledged)
        assert len(again) <= found.redelivered_messages + len(acknowledged) - before


async def test_messages_of_three_regions_are_planned_by_their_origin() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us, world.client("ap") as ap:
        consumer = await us.subscribe(
            TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START, replicated=True
        )
        await create_subscription(world, "eu")
        producers = [await us.producer(TOPIC), await ap.producer(TOPIC)]
        for number in range(10):
            await asyncio.gather(*(one.send(b"%d-%d" % (number, at)) for at, one in enumerate(producers)))
        received = await receive(consumer, 20)
        acknowledged = received[1:]
        await consumer.acknowledge(*acknowledged, confirmed=True)
        found = await settled_plan(world, "us", "eu")
        assert found.exact
        again = await redelivered_after(world, "us", "eu", [one.payload for one in acknowledged])
        assert len(again) == found.redelivered_messages == 19


async def test_a_seek_in_the_target_makes_its_messages_redelivered() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        for number in range(10):
            await producer.send(b"%d" % number)
        await consumer.acknowledge_cumulative((await receive(consumer, 10))[-1], confirmed=True)
        await settled_plan(world, "us", "eu", redelivered=0)
        there = await topic_in(world, "eu")
        await there.subscriptions["s"].seek(0)
        found = await plan(world, "us", "eu")
        assert (found.redelivered_messages, found.exact) == (10, True)
        assert found.resume is not None


async def test_messages_that_the_target_acknowledged_are_skipped_with_the_reason() -> None:
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        far = await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        for number in range(5):
            await producer.send(b"%d" % number)
        await producer.send(b"local", replicate_to=["__local__"])
        await far.acknowledge_cumulative((await receive(far, 3))[-1], confirmed=True)
        topic = await topic_in(world, "us")
        await until(lambda: not topic.replicators["eu"].backlog)
        found = await plan(world, "us", "eu")
        assert (found.redelivered_messages, found.skipped_messages, found.missing_messages) == (0, 3, 0)
        assert found.skipped_because == (
            "3 messages are not acknowledged here, and are acknowledged, expired or removed in eu",
            "1 messages that are not acknowledged here never reach eu: their producers named other regions, or the "
            "topic is not replicated there",
        )


async def test_messages_that_are_not_replicated_yet_are_missing_and_make_the_plan_a_bound() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)
        producer = await us.producer(TOPIC)
        await producer.send(b"0")
        await consumer.acknowledge(*await receive(consumer, 1), confirmed=True)
        await settled_plan(world, "us", "eu", redelivered=0)
        world.cut("us", "eu")
        for number in range(1, 6):
            await producer.send(b"%d" % number)
        await consumer.acknowledge(*await receive(consumer, 5), confirmed=True)
        found = await plan(world, "us", "eu")
        assert (found.redelivered_messages, found.missing_messages, found.exact) == (5, 5, False)
        assert not await is_quiet(world)
        assert "messages-missing-there" in found.causes
        assert found.wait_for
        world.heal("us", "eu")
        found = await settled_plan(world, "us", "eu", redelivered=0)
        assert (found.redelivered_messages, found.missing_messages) == (0, 0)


async def test_a_subscription_that_the_target_does_not_have_is_a_bound() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        for number in range(4):
            await producer.send(b"%d" % number)
        await consumer.acknowledge(*(await receive(consumer, 3)), confirmed=True)
        topic = await topic_in(world, "us")
        await until(lambda: not topic.replicators["eu"].backlog)
        found = await plan(world, "us", "eu")
        assert (found.redelivered_messages, found.exact) == (3, False)
        assert "subscription-missing-there" in found.causes


async def test_a_topic_that_was_created_again_is_planned_by_its_new_log() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        producer = await us.producer(TOPIC)
        await producer.send(b"old")
        await producer.close()
        old = await topic_in(world, "us")
        await until(lambda: not old.replicators["eu"].backlog)
        await world.running["us"].directory.delete(TOPIC, force=True)
        consumer = await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        await producer.send(b"new")
        await consumer.acknowledge(*await receive(consumer, 1), confirmed=True)
        topic = await topic_in(world, "us")
        assert topic.ledger_id != old.ledger_id
        await until(lambda: not topic.replicators["eu"].backlog)
        async with world.client("eu") as eu:
            await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
            found = await plan(world, "us", "eu")
            assert found.redelivered_messages == 2, "the old message is counted, as a bound"
            assert not found.exact


async def test_a_state_is_durable_before_it_is_returned() -> None:
    """A restart of the target must not revoke an acknowledgement that the plan relied on."""
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        far = await eu.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        for number in range(4):
            await producer.send(b"%d" % number)
        await far.acknowledge(*(await receive(far, 4)))
        there = await topic_in(world, "eu")
        await until(lambda: there.subscriptions["s"].cursor.mark_delete >= 3)
        assert (await state_in(world, "eu", "us")).messages == 0
        await far.close()
        await world.crash("eu")
        await world.start("eu")
        assert (await state_in(world, "eu", "us")).messages == 0


async def test_a_log_beyond_the_limit_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SCAN_ENTRIES_MAX", 8)
    monkeypatch.setattr(delivery, "READ_ENTRIES", 4)
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START)
        producer = await us.producer(TOPIC)
        for number in range(30):
            await producer.send(b"%d" % number)
        await consumer.acknowledge(*(await receive(consumer, 30))[1:], confirmed=True)
        topic = await topic_in(world, "us")
        await until(lambda: not topic.replicators["eu"].backlog)
        state = await state_in(world, "eu", "us")
        assert (state.complete, state.messages) == (False, 8)
        assert len(state.unacknowledged) >= 30
        found = await plan(world, "us", "eu")
        assert (found.complete, found.exact) == (False, False)
        assert "plan-incomplete" in found.causes


async def test_claims_that_the_target_has_not_applied_yet_are_no_redeliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Individual acknowledgements of the source that the target applies only when it dispatches."""
    monkeypatch.setattr(individual_acks, "APPLIED_AT_ONCE_MAX", 0)
    settings = {"replicate_individual_acks": True, "individual_ack_interval_ms": 10}
    async with regions("us", "eu", **settings) as world, world.client("us") as us:
        consumer = await us.subscribe(
            TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START, replicated=True
        )
        await create_subscription(world, "eu")
        producer = await us.producer(TOPIC)
        for number in range(40):
            await producer.send(b"%d" % number)
        acknowledged = (await receive(consumer, 40))[1:]
        await consumer.acknowledge(*acknowledged, confirmed=True)
        found = await settled_plan(world, "us", "eu", redelivered=0)
        there = (await topic_in(world, "eu")).subscriptions["s"]
        assert there.cursor.claims, "the claim waits for the dispatcher"
        assert there.backlog() == 40
        assert (found.redelivered_messages, found.exact) == (0, True)
        assert await redelivered_after(world, "us", "eu", [one.payload for one in acknowledged]) == []


@pytest.mark.parametrize("ending", ["delete", "unload"])
async def test_a_topic_that_ends_during_a_scan_ends_the_request(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The scan returns a whole state or raises an error that the HTTP port knows; it never returns a part as a
    whole."""
    monkeypatch.setattr(delivery, "READ_ENTRIES", 1)
    async with regions("us", "eu") as world, world.client("us") as us:
        await us.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
        await create_subscription(world, "eu")
        producer = await us.producer(TOPIC)
        for number in range(200):
            await producer.send(b"%d" % number)
        topic = await topic_in(world, "eu")
        await until(lambda: topic.subscriptions["s"].backlog() == 200)
        scanning = asyncio.ensure_future(state_in(world, "eu", "us"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not scanning.done()
        directory = world.running["eu"].directory
        if ending == "delete":
            await directory.delete(TOPIC, force=True)
        else:
            await directory.unload(TOPIC, "the test unloads it")
        try:
            state = await scanning
        except (ProtocolError, StorageError):
            return
        assert state.messages == 200
