"""How topics and subscriptions end while clients are attached: terminated, deleted, unused."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import LoadState, LoadStateChange, OpenMode
from emulator.client import InitialPosition
from emulator.core.policies.lifetime import (
    INACTIVE_TOPICS,
    RETENTION,
    SUBSCRIPTION_EXPIRATION,
    DeleteMode,
    Inactivity,
    Retention,
)
from emulator.errors import ProtocolError, ServerError
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import Position, TopicName
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_ack, encode_flow
from emulator.wire.frames import frame_of
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import FAST, Regions, regions, until

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

TOPIC = "persistent://public/default/orders"
PARTITIONED = "persistent://public/default/many"
NAMESPACE = NamespacePath("public/default")
DEADLINE = 30


async def topic_of(region: Region) -> Topic:
    return await region.directory.acquire(TOPIC, OpenMode.CREATE)


async def publish(world: Regions, count: int, region: str = "us") -> None:
    async with world.client(region) as client:
        producer = await client.producer(TOPIC)
        for number in range(count):
            await producer.send(b"%d" % number)


async def received(client: RawClient) -> list[tuple[int, int]]:
    id_ = (await client.next()).message.message_id
    return [(id_.ledgerId, id_.entryId)]


# Terminated.


async def test_a_terminated_topic_rejects_publishes_and_returns_its_last_position() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await publish(world, 3)
        await client.open_producer(1)
        topic = await topic_of(world.running["us"])
        last = await topic.termination.terminate()
        assert last == Position(topic.ledger_id, 2)
        assert (await client.next()).close_producer.producer_id == 1
        client.ask_for_producer(2, name="q")
        assert (await client.next()).error.error == int(ServerError.TopicTerminatedError)
        assert await topic.termination.terminate() == last, "it is idempotent"


async def test_it_stays_terminated_over_a_crash() -> None:
    async with regions("us") as world:
        await publish(world, 1)
        await (await topic_of(world.running["us"])).termination.terminate()
        await world.crash("us")
        await world.start("us")
        async with raw_client(world) as client:
            client.ask_for_producer(1)
            assert (await client.next()).error.error == int(ServerError.TopicTerminatedError)


async def test_consumers_read_to_the_end_and_are_notified() -> None:
    """Each consumer is notified once, after everything is acknowledged; a later consumer is notified at once."""
    async with regions("us") as world, raw_client(world) as client:
        await publish(world, 2)
        assert (await client.subscribe(initialPosition=pb.CommandSubscribe.Earliest)).HasField("success")
        topic = await topic_of(world.running["us"])
        await topic.termination.terminate()
        client.writer.write(frame_of(encode_flow(1, 10)))
        ids = [*await received(client), *await received(client)]
        client.writer.write(frame_of(encode_ack(1, [(*id_, None) for id_ in ids])))
        assert (await client.next()).reachedEndOfTopic.consumer_id == 1
        assert (await client.subscribe(2, subscription="late")).HasField("success")
        assert (await client.next()).reachedEndOfTopic.consumer_id == 2


async def test_a_topic_terminated_in_one_region_rejects_replicated_entries_and_blocks_no_other_topic() -> (
    None
):
    """In the other region clients continue, and the replicator shows the reason why the rest is not sent."""
    other = "persistent://public/default/other"

    async with (
        regions("us", "eu", settings=FAST) as world,
        world.client("us") as us,
        world.client("eu") as eu,
    ):
        consumer = await eu.subscribe(TOPIC, "s")
        producer = await us.producer(TOPIC)
        await producer.send(b"before")
        assert (await consumer.receive()).payload == b"before"
        there = world.running["eu"].directory.serving[TOPIC]
        last = await there.termination.terminate()
        await producer.send(b"after")
        replicator = world.running["us"].directory.serving[TOPIC].replicators["eu"]
        await until(lambda: "was terminated" in replicator.lifecycle.why_not, DEADLINE)
        elsewhere = await eu.subscribe(other, "s")
        await (await us.producer(other)).send(b"other")
        assert (await elsewhere.receive()).payload == b"other"
        assert replicator.backlog == 1, "it is kept in case the topic is created again"
        assert there.reading.last_position == last


async def test_a_waiting_producer_of_a_terminated_topic_is_rejected_and_never_promoted() -> None:
    async with regions("us") as world, raw_client(world) as client:
        await client.open_producer(1, name="owner", producer_access_mode=pb.WaitForExclusive)
        client.ask_for_producer(2, name="next", producer_access_mode=pb.WaitForExclusive)
        assert (await client.next()).producer_success.producer_ready is False
        await (await topic_of(world.running["us"])).termination.terminate()
        answers = [await client.next(), await client.next()]
        assert [one.error.error for one in answers if one.HasField("error")] == [
            int(ServerError.TopicTerminatedError)
        ]
        assert [one.close_producer.producer_id for one in answers if one.HasField("close_producer")] == [1]


# Deleted.


async def test_a_deleted_topic_is_not_created_again_by_another_region() -> None:
    """The other region shows the reason; using the topic here again lets the messages through."""
    async with regions("us", "eu") as world:
        await publish(world, 2, "eu")
        us, eu = world.running["us"], world.running["eu"]
        await until(lambda: us.directory.exists(TOPIC), DEADLINE)
        await us.directory.delete(TOPIC, force=True)
        await publish(world, 2, "eu")
        replicator = (await topic_of(eu)).replicators["us"]
        await until(lambda: "was deleted in us" in replicator.lifecycle.why_not, DEADLINE)
        assert not us.directory.exists(TOPIC)
        async with world.client("us") as client:
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            payloads = [(await consumer.receive()).payload for _ in range(2)]
            assert payloads == [b"0", b"1"], "the messages published after the deletion"


async def test_the_deletion_is_remembered_over_a_crash() -> None:
    async with regions("us", "eu") as world:
        await publish(world, 1, "eu")
        await until(lambda: world.running["us"].directory.exists(TOPIC), DEADLINE)
        await world.running["us"].directory.delete(TOPIC, force=True)
        await world.crash("us")
        us = await world.start("us")
        replicator = (await topic_of(world.running["eu"])).replicators["us"]
        await until(lambda: "was deleted in us" in replicator.lifecycle.why_not, DEADLINE)
        assert not us.directory.exists(TOPIC)


async def test_partitions_of_a_deleted_topic_do_not_come_back() -> None:
    """Neither as its partitions nor as topics of their own."""
    async with regions("us", "eu") as world:
        us, eu = world.running["us"], world.running["eu"]
        name = TopicName.parse(PARTITIONED)
        await eu.partitioned.create(name, 2)
        partitions = [f"{PARTITIONED}-partition-{index}" for index in range(2)]
        await until(lambda: all(us.directory.exists(one) for one in partitions), DEADLINE)
        await us.partitioned.delete(name, force=True)
        topic = await eu.directory.acquire(partitions[0], OpenMode.EXISTING)
        await until(lambda: "was deleted in us" in topic.replicators["us"].lifecycle.why_not, DEADLINE)
        assert not any(us.directory.exists(one) for one in partitions)
        await us.partitioned.create(name, 2)
        await until(lambda: topic.replicators["us"].lifecycle.is_connected, DEADLINE)


async def test_clients_of_a_topic_deleted_by_force_continue_with_a_new_one() -> None:
    async with regions("us") as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s")
        await producer.send(b"before")
        await consumer.receive()
        before = (await topic_of(world.running["us"])).ledger_id
        with pytest.raises(ProtocolError):
            await world.running["us"].directory.delete(TOPIC, force=False)
        await world.running["us"].directory.delete(TOPIC, force=True)
        await until(lambda: bool(world.running["us"].directory.serving), DEADLINE)
        topic = await topic_of(world.running["us"])
        await until(lambda: bool(topic.subscriptions and topic.producers), DEADLINE)
        await producer.send(b"after")
        assert (await consumer.receive()).payload == b"after"
        assert topic.ledger_id > before


# Unused.


async def looked(region: Region, minutes: float) -> None:
    """Run housekeeping, at this time after the previous round."""
    now = region.environment.wall_clock_ms()
    housekeeper = region.housekeeper
    housekeeper._now_ms = lambda: now + int(minutes * 60_000)  # type: ignore[method-assign]
    await housekeeper._round()


async def test_an_unused_topic_is_deleted() -> None:
    async with regions("us", housekeeping_interval_ms=3_600_000) as world:
        us = world.running["us"]
        await us.policies.set(NAMESPACE, INACTIVE_TOPICS, Inactivity(True, 60, DeleteMode.NO_SUBSCRIPTIONS))
        async with world.client("us") as client:
            producer = await client.producer(TOPIC)
            await producer.send(b"0")
            await looked(us, 0)
            await looked(us, 5)
            assert us.directory.exists(TOPIC), "it has a producer"
        topic = await topic_of(us)
        await until(lambda: not topic.producers, DEADLINE)
        await looked(us, 10)
        await looked(us, 10.5)
        assert us.directory.exists(TOPIC), "not for long enough"
        await looked(us, 11.1)
        assert not us.directory.exists(TOPIC)


async def test_subscriptions_keep_an_inactive_topic_unless_the_policy_deletes_topics_without_backlog() -> (
    None
):
    async with regions("us", housekeeping_interval_ms=3_600_000) as world:
        us = world.running["us"]
        async with world.client("us") as client:
            consumer = await client.subscribe(TOPIC, "s")
            producer = await client.producer(TOPIC)
            await producer.send(b"0")
            await producer.close()
            await consumer.close()
        caught_up = Inactivity(True, 60, DeleteMode.CAUGHT_UP)
        await us.policies.set(NAMESPACE, INACTIVE_TOPICS, caught_up)
        await looked(us, 0)
        await looked(us, 5)
        assert us.directory.exists(TOPIC), "the subscription still has a backlog"
        async with world.client("us") as client:
            consumer = await client.subscribe(TOPIC, "s")
            await consumer.acknowledge(await consumer.receive())
            await consumer.close()
        await until(lambda: not us.clients.connections, DEADLINE)
        await looked(us, 10)
        await looked(us, 12)
        assert not us.directory.exists(TOPIC)


async def test_regions_delete_an_unused_topic_together_and_create_it_again_together() -> None:
    """Each region's replicator keeps the other's topic in use, so both become idle first."""
    async with regions("us", "eu", housekeeping_interval_ms=3_600_000) as world:
        both = [world.running["us"], world.running["eu"]]
        await publish(world, 1)
        await until(lambda: all(region.directory.exists(TOPIC) for region in both), DEADLINE)
        for region in both:
            topic = await topic_of(region)
            await until(
                lambda topic=topic: not any(one.backlog for one in topic.replicators.values()), DEADLINE
            )
            await until(lambda topic=topic: len(topic.producers) == 1, DEADLINE)
        unused = Inactivity(True, 60, DeleteMode.NO_SUBSCRIPTIONS)
        await both[0].policies.set(NAMESPACE, INACTIVE_TOPICS, unused)
        minutes = 0.0
        async with asyncio.timeout(DEADLINE):
            while any(region.directory.exists(TOPIC) for region in both):
                minutes += 2
                for region in both:
                    await looked(region, minutes)
                await asyncio.sleep(0)
        await publish(world, 1, "eu")
        await until(lambda: both[0].directory.exists(TOPIC), DEADLINE)


async def test_an_unused_subscription_expires_and_a_replicated_one_does_not() -> None:
    async with regions("us", "eu", housekeeping_interval_ms=3_600_000) as world:
        us = world.running["us"]
        async with world.client("us") as client:
            await (await client.subscribe(TOPIC, "s")).close()
            await (await client.subscribe(TOPIC, "everywhere", replicated=True)).close()
            kept = await client.subscribe(TOPIC, "kept")
            await us.policies.set(NAMESPACE, SUBSCRIPTION_EXPIRATION, 5)
            topic = await topic_of(us)
            await looked(us, 0)
            await looked(us, 4)
            assert "s" in topic.subscriptions
            await looked(us, 6)
            assert sorted(topic.subscriptions) == ["everywhere", "kept"]
            await kept.close()


async def test_truncating_skips_and_trims_everything() -> None:
    async with regions("us") as world:
        us = world.running["us"]
        async with world.client("us") as client:
            await (await client.subscribe(TOPIC, "s")).close()
        await publish(world, 5)
        topic = await topic_of(us)
        await us.housekeeper.trim(topic)
        assert topic.log.first_entry_id == 0, "no policy allows trimming"
        await us.housekeeper.truncate(topic)
        assert (topic.log.size_bytes, topic.subscriptions["s"].backlog()) == (0, 0)
        await us.policies.set(NAMESPACE, RETENTION, Retention(0, 0))
        await publish(world, 1)
        assert topic.subscriptions["s"].backlog() == 1


async def test_a_replicator_accepted_during_the_deletion_of_its_topic_does_not_create_it_again() -> None:
    """It had requested its producer before, and waits for the topic when it is completely deleted."""
    async with regions("us", "eu") as world:
        await publish(world, 2, "us")
        us = world.running["us"]
        asking: list[asyncio.Future[Topic]] = []

        def ask(moved: LoadStateChange) -> None:
            if moved.after is LoadState.DELETING:
                asking.append(asyncio.ensure_future(us.directory.acquire(TOPIC, OpenMode.REPLICATE)))

        us.directory.observe(ask)
        await us.directory.delete(TOPIC, force=True)
        with pytest.raises(ProtocolError, match="not found"):
            await asking[0]
        assert not us.directory.exists(TOPIC)
        assert (await us.directory.acquire(TOPIC, OpenMode.CREATE)).full_name == TOPIC
        assert (await us.directory.acquire(TOPIC, OpenMode.REPLICATE)).full_name == TOPIC
