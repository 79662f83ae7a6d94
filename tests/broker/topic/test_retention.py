"""Logs are trimmed, messages expire and quotas apply: with our own clients on running regions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.broker.region import Region
from emulator.broker.topic_directory import housekeeper
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import InitialPosition
from emulator.core.policies.declaration import Policy
from emulator.core.policies.lifetime import (
    BACKLOG_QUOTAS,
    MESSAGE_TTL,
    RETENTION,
    Quota,
    QuotaAction,
    QuotaKind,
    Retention,
)
from emulator.core.policies.topic_policies import TopicPolicies
from emulator.errors import ServerError
from emulator.model.stored_keys import NamespacePath
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import raw_client
from tests.broker.regions import regions, until

TOPIC = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
DEADLINE = 30


async def set_policy(region: Region, policy: Policy[Any], value: Any) -> None:
    await region.policies.set(NAMESPACE, policy, value)


async def seen(condition: Any) -> None:
    await until(condition, DEADLINE)


async def test_without_a_policy_everything_is_kept() -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s")
        for number in range(10):
            await producer.send(b"%d" % number)
            await consumer.acknowledge(await consumer.receive())
        topic = world.running["us"].directory.serving[TOPIC]
        assert world.running["us"].housekeeper._timer is None, "no topic needs housekeeping"
        assert topic.log.first_entry_id == 0


async def test_acknowledged_messages_are_trimmed() -> None:
    """Messages published afterwards are still received, also over a restart."""
    async with regions("us", housekeeping_interval_ms=5) as world:
        await set_policy(world.running["us"], RETENTION, Retention(0, 0))
        async with world.client("us") as client:
            producer = await client.producer(TOPIC)
            consumer = await client.subscribe(TOPIC, "s")
            slow = await client.subscribe(TOPIC, "slow")
            for number in range(20):
                await producer.send(b"%d" % number)
                await consumer.acknowledge(await consumer.receive())
            topic = world.running["us"].directory.serving[TOPIC]
            assert topic.log.first_entry_id == 0, "another subscription needs it"
            for _ in range(20):
                await slow.acknowledge(await slow.receive())
            await seen(lambda: topic.log.size_bytes == 0)
            await producer.send(b"after")
            assert (await consumer.receive()).payload == b"after"
        await world.crash("us")
        await world.start("us")
        async with world.client("us") as client:
            consumer = await client.subscribe(TOPIC, "s")
            assert (await consumer.receive()).payload == b"after"


async def test_deduplication_survives_trimming() -> None:
    """Deduplication state is rebuilt from the log: no entry is trimmed that a restart would need for it."""
    async with regions("us", housekeeping_interval_ms=5) as world:
        await set_policy(world.running["us"], RETENTION, Retention(0, 0))
        async with world.client("us") as client:
            producer = await client.producer(TOPIC, name="p")
            for number in range(5):
                await producer.send(b"%d" % number)
            topic = world.running["us"].directory.serving[TOPIC]
            await seen(lambda: topic.log.first_entry_id == 5)
        await world.crash("us")
        await world.start("us")
        async with world.client("us") as client:
            producer = await client.producer(TOPIC, name="p")
            topic = world.running["us"].directory.serving[TOPIC]
            assert topic.state.last_sequence_id("p") == 4
            assert topic.log.first_entry_id == 5


@pytest.mark.usefixtures("simulation")
async def test_entries_that_another_region_lacks_are_not_trimmed() -> None:
    async with regions("us", "eu", housekeeping_interval_ms=5) as world:
        await set_policy(world.running["us"], RETENTION, Retention(0, 0))
        async with world.client("us") as client, world.client("eu") as other:
            reader = await other.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            producer = await client.producer(TOPIC)
            await producer.send(b"0")
            assert (await reader.receive()).payload == b"0"
            topic = world.running["us"].directory.serving[TOPIC]
            await seen(lambda: topic.log.size_bytes == 0)
            world.cut("us", "eu")
            await seen(lambda: not topic.replicators["eu"].lifecycle.is_connected)
            first = topic.log.first_entry_id
            for number in range(1, 4):
                await producer.send(b"%d" % number)
            await asyncio.gather(*[world.running["us"].housekeeper._round() for _ in range(3)])
            assert topic.log.first_entry_id == first
            assert "eu" in topic.retention.trimmer.first_hold.asker
            world.heal("us", "eu")
            assert [(await reader.receive()).payload for _ in range(3)] == [b"1", b"2", b"3"]
            await seen(lambda: topic.log.size_bytes == 0)


async def test_a_replicated_subscription_continues_in_another_region_over_trimmed_logs() -> None:
    """INV-36: positions are replicated although both logs lose acknowledged entries."""
    async with regions("us", "eu", housekeeping_interval_ms=5) as world:
        await set_policy(world.running["us"], RETENTION, Retention(0, 0))
        async with world.client("us") as client, world.client("eu") as other:
            producer = await client.producer(TOPIC)
            consumer = await client.subscribe(
                TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True
            )
            for number in range(30):
                await producer.send(b"%d" % number)
                await consumer.acknowledge(await consumer.receive())
            there = world.running["eu"].directory.serving[TOPIC]
            await seen(lambda: "s" in there.subscriptions and not there.subscriptions["s"].backlog())
            await seen(lambda: there.log.size_bytes < 2_000)
            await consumer.close()
            await producer.send(b"next")
            moved = await other.subscribe(TOPIC, "s", replicated=True)
            assert (await moved.receive()).payload == b"next"


async def test_markers_behind_the_last_message_are_trimmed() -> None:
    """Markers are not delivered to consumers, so no consumer can acknowledge them."""
    async with (
        regions("us", "eu", housekeeping_interval_ms=5, snapshot_interval_ms=20) as world,
        world.client("us") as client,
    ):
        await set_policy(world.running["us"], RETENTION, Retention(0, 0))
        consumer = await client.subscribe(TOPIC, "s", replicated=True)
        idle = await client.subscribe(TOPIC, "idle")
        producer = await client.producer(TOPIC)
        await producer.send(b"last")
        await idle.acknowledge(await idle.receive(), confirmed=True)
        await idle.close()
        topic = world.running["us"].directory.serving[TOPIC]
        assert topic.subscriptions.replicated is not None
        controller = topic.subscriptions.replicated.snapshots.controller
        await seen(lambda: controller.counters.completed > 0)
        await consumer.acknowledge(await consumer.receive())
        await seen(lambda: topic.log.first_entry_id > 0 and topic.log.size_bytes == 0)


@pytest.mark.usefixtures("simulation")
async def test_unacknowledged_messages_expire() -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s")
        held = await client.subscribe(TOPIC, "held")
        for number in range(5):
            await producer.send(b"%d" % number)
        await held.receive()
        await consumer.close()
        topic = world.running["us"].directory.serving[TOPIC]
        assert topic.subscriptions["s"].backlog() == 5
        await set_policy(world.running["us"], MESSAGE_TTL, 1)
        await seen(lambda: not any(one.backlog() for one in topic.subscriptions.values()))
        assert topic.subscriptions["s"].skipped == 5
        assert topic.log.first_entry_id == 0, "retention keeps expired messages, too"


@pytest.mark.usefixtures("simulation")
async def test_expiry_sends_no_update_to_other_regions() -> None:
    """INV-37: no consumer consumed an expired message, so no other region moves its position for it."""
    async with regions("us", "eu", housekeeping_interval_ms=5) as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        consumer = await client.subscribe(
            TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True
        )
        for number in range(3):
            await producer.send(b"%d" % number)
        await consumer.receive()
        topic = world.running["us"].directory.serving[TOPIC]
        cursor = topic.subscriptions["s"].cursor
        await set_policy(world.running["us"], MESSAGE_TTL, 1)
        await seen(lambda: not topic.subscriptions["s"].backlog())
        assert not cursor.ahead_of_peers
        assert topic.subscriptions.replicated is not None
        assert topic.subscriptions.replicated.summary()["updates"] == {"s": 0}


QUOTA = {QuotaKind.SIZE: Quota(50_000, -1, QuotaAction.HOLD)}


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (QuotaAction.HOLD, ServerError.ProducerBlockedQuotaExceededError),
        (QuotaAction.EXCEPTION, ServerError.ProducerBlockedQuotaExceededException),
    ],
)
async def test_a_full_backlog_rejects_producers_until_it_is_consumed(
    action: QuotaAction, code: ServerError
) -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.producer(TOPIC)
        for _ in range(6):
            await producer.send(bytes(10_000))
        await producer.close()
        await set_policy(world.running["us"], BACKLOG_QUOTAS, {QuotaKind.SIZE: Quota(50_000, -1, action)})
        async with raw_client(world) as raw:
            command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
            command.producer.topic, command.producer.producer_id, command.producer.request_id = (
                TOPIC,
                1,
                1,
            )
            refused = (await raw.ask(command)).error
            assert (refused.error, "subscription s" in refused.message) == (int(code), True)
            for _ in range(6):
                await consumer.acknowledge(await consumer.receive())
            command.producer.request_id = 2
            assert (await raw.ask(command)).producer_success.request_id == 2


async def test_a_producer_that_fills_a_backlog_is_disconnected_and_reconnects() -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        await set_policy(world.running["us"], BACKLOG_QUOTAS, QUOTA)
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.producer(TOPIC)
        topic = world.running["us"].directory.serving[TOPIC]
        for _ in range(4):
            await producer.send(bytes(10_000))
        fifth = producer.send_nowait(bytes(10_000))  # exceeds the quota, and may be stored without a receipt
        await seen(lambda: topic.retention.quota_refusal is not None and not topic.producers)
        for _ in range(5):
            await consumer.acknowledge(await consumer.receive())
        await seen(lambda: topic.retention.quota_refusal is None)
        await fifth
        again = await client.producer(TOPIC)
        await again.send(b"after")


async def test_a_quota_does_not_wait_for_the_receipts_of_the_producers_that_it_closes() -> None:
    """As upstream: a message that was being stored has no receipt, so its client sends it again once there is room."""
    async with (
        regions("us", housekeeping_interval_ms=DEADLINE * 10_000) as world,
        world.client("us") as client,
    ):
        region = world.running["us"]
        store = region.store
        assert isinstance(store, MemoryStore)
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.producer(TOPIC)
        topic = region.directory.serving[TOPIC]
        for _ in range(5):
            await producer.send(bytes(10_000))
        await set_policy(region, BACKLOG_QUOTAS, QUOTA)
        store.hold()
        sixth = producer.send_nowait(b"sixth")
        await seen(lambda: topic.publishing.issued)
        await region.housekeeper.check_quotas()
        assert not topic.producers
        store.release()
        for _ in range(6):
            message = await consumer.receive()
            await consumer.acknowledge(message)
        assert not sixth.done()
        assert message.payload == b"sixth"
        await sixth
        assert topic.state.stored_end == 6, "the topic deduplicates"


async def test_a_full_backlog_is_evicted() -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        await (await client.subscribe(TOPIC, "s")).close()
        for number in range(10):
            await producer.send(bytes([number]) * 10_000)
        quota = Quota(50_000, -1, QuotaAction.EVICT)
        await set_policy(world.running["us"], BACKLOG_QUOTAS, {QuotaKind.SIZE: quota})
        topic = world.running["us"].directory.serving[TOPIC]
        await seen(lambda: topic.subscriptions["s"].backlog() == 4)
        consumer = await client.subscribe(TOPIC, "s")
        assert (await consumer.receive()).payload[0] == 6
        assert producer.name in topic.producers


@pytest.mark.usefixtures("simulation")
async def test_old_messages_are_evicted_by_age() -> None:
    async with regions("us", housekeeping_interval_ms=5) as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        await (await client.subscribe(TOPIC, "s")).close()
        await producer.send(b"old")
        quota = Quota(-1, 1, QuotaAction.EVICT)
        await set_policy(world.running["us"], BACKLOG_QUOTAS, {QuotaKind.AGE: quota})
        topic = world.running["us"].directory.serving[TOPIC]
        await seen(lambda: topic.subscriptions["s"].backlog() == 0)


@pytest.mark.usefixtures("simulation")
async def test_a_topic_stays_loaded_until_its_quota_has_evicted_old_messages() -> None:
    """No request mentions the topic meanwhile."""
    async with regions("us", housekeeping_interval_ms=5, topic_idle_ms=20) as world:
        quota = Quota(-1, 1, QuotaAction.EVICT)
        await set_policy(world.running["us"], BACKLOG_QUOTAS, {QuotaKind.AGE: quota})
        async with world.client("us") as client:
            await (await client.subscribe(TOPIC, "s")).close()
            producer = await client.producer(TOPIC)
            await producer.send(b"old")
            await producer.close()
        directory = world.running["us"].directory
        await seen(lambda: TOPIC not in directory.serving)
        topic = await directory.acquire(TOPIC, OpenMode.EXISTING)
        assert not topic.subscriptions["s"].backlog()


async def test_a_quota_rejects_clients_and_never_another_region() -> None:
    """Its messages were acknowledged there, and with them arrive the positions that may empty the backlog."""
    async with (
        regions("us", "eu", housekeeping_interval_ms=5) as world,
        world.client("us") as client,
        world.client("eu") as other,
    ):
        await (await other.subscribe(TOPIC, "s")).close()
        there = world.running["eu"].directory.serving[TOPIC]
        await set_policy(world.running["us"], BACKLOG_QUOTAS, QUOTA)
        producer = await client.producer(TOPIC)
        backlog = there.subscriptions["s"].backlog
        for number in range(1, 7):
            await producer.send(bytes(10_000))
            await seen(lambda number=number: backlog() == number)
        await seen(lambda: there.retention.quota_refusal is not None)
        await producer.send(b"one more")
        await seen(lambda: backlog() == 7)


async def test_the_cost_of_housekeeping_per_topic_is_constant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each new topic caused a check of all of them: a topic of 2,000 partitions took half a minute to create."""
    checks = 0

    def counting(policies: TopicPolicies) -> bool:
        nonlocal checks
        checks += 1
        return deletes_data(policies)

    deletes_data = housekeeper._deletes_data
    monkeypatch.setattr(housekeeper, "_deletes_data", counting)

    async with regions("us") as world, world.client("us") as client:
        for number in range(40):
            await client.producer(f"persistent://public/default/{number}")
        assert checks <= 4 * 40
        await set_policy(world.running["us"], MESSAGE_TTL, 1)
        await set_policy(world.running["us"], MESSAGE_TTL, None)
        assert checks <= 20 * 40
