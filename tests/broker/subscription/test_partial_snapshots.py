"""Positions are replicated without a region that is absent, and no message of it is skipped (INV-5, INV-12)."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.client import Client, Consumer
from emulator.core.policies.replicated_subscriptions import PARTIAL_SNAPSHOTS_AFTER
from emulator.model.stored_keys import NamespacePath, TopicPoliciesPath
from tests.broker.regions import Regions, regions, until
from tests.broker.replication.test_replication import TOPIC, drained
from tests.broker.subscription.test_replicated_subscriptions import FROM_THE_START, backlog, consume

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

AFTER = {"partial_snapshots_after": "100ms"}


def replicated(world: Regions, region: str) -> ReplicatedSubscriptions:
    found = world.running[region].directory.serving[TOPIC].subscriptions.replicated
    assert found is not None
    return found


async def consumer_in(client: Client) -> Consumer:
    return await client.subscribe(TOPIC, "s", initial_position=FROM_THE_START, replicated=True)


async def subscribed_everywhere(world: Regions) -> None:
    """Subscription `s` exists at the first message in all regions."""
    for name in world.names:
        async with world.client(name) as client:
            await (await consumer_in(client)).close()


async def test_a_message_that_the_dead_region_sent_to_one_region_only_is_delivered_there() -> None:
    """ap dies after it sent one message to eu and none to us. Updates of us acknowledge all others in eu."""
    async with regions("us", "eu", "ap", **AFTER) as world, world.client("us") as us:
        await subscribed_everywhere(world)
        world.cut("us", "ap")
        async with world.client("ap") as ap, world.client("eu") as eu:
            await (await ap.producer(TOPIC)).send(b"only in eu")
            await until(lambda: backlog(world, "eu") == 1)
            here = await eu.producer(TOPIC)
            for number in range(20):
                await here.send(b"%d" % number)
        await world.crash("ap")
        consumer = await consumer_in(us)
        await consume(consumer, 20)
        await until(lambda: backlog(world, "eu") == 1)
        async with world.client("eu") as eu:
            assert await consume(await consumer_in(eu), 1) == [b"only in eu"]


async def test_only_messages_of_the_absent_region_stay_unacknowledged_between_others() -> None:
    async with regions("us", "eu", "ap", **AFTER) as world, world.client("us") as us:
        await subscribed_everywhere(world)
        world.cut("us", "ap")
        async with world.client("ap") as ap, world.client("eu") as eu:
            far, here = await ap.producer(TOPIC), await eu.producer(TOPIC)
            for number in range(10):
                await here.send(b"eu %d" % number)
                await far.send(b"ap %d" % number)
                await until(lambda n=number: backlog(world, "eu") == 2 * n + 2)
        await world.crash("ap")
        await consume(await consumer_in(us), 10)
        await until(lambda: backlog(world, "eu") == 10)
        async with world.client("eu") as eu:
            left = await consume(await consumer_in(eu), 10)
        assert left == [b"ap %d" % number for number in range(10)]


async def test_a_seek_while_origins_are_read_is_not_undone() -> None:
    """An update is applied again after the read, unless the consumer has moved the subscription meanwhile."""
    async with regions("us", "eu", "ap", **AFTER) as world, world.client("us") as us:
        await subscribed_everywhere(world)
        world.cut("us", "ap")
        async with world.client("ap") as ap, world.client("eu") as eu:
            await (await eu.producer(TOPIC)).send(b"eu 0")
            await (await ap.producer(TOPIC)).send(b"ap")
            await until(lambda: backlog(world, "eu") == 2)
            await (await eu.producer(TOPIC)).send(b"eu 1")
        await world.crash("ap")
        topic = world.running["eu"].directory.serving[TOPIC]
        reads, gate = topic.reading.read, asyncio.Event()

        async def read_later(*arguments: int) -> object:
            entries = await reads(*arguments)
            await gate.wait()
            return entries

        topic.reading.read = read_later  # type: ignore[method-assign, assignment]
        await consume(await consumer_in(us), 2)
        subscription = topic.subscriptions["s"]
        origins = topic.subscriptions.replicated.received.origin_reads  # type: ignore[union-attr]
        await until(lambda: origins._reading and subscription.backlog() < 3)
        await subscription.seek(0)
        gate.set()
        await until(lambda: not origins._reading)
        assert subscription.backlog() == 3


async def test_the_return_of_the_region_resumes_complete_snapshots_in_a_quiet_topic() -> None:
    async with regions("us", "eu", "ap", **AFTER) as world, world.client("us") as us:
        await subscribed_everywhere(world)
        consumer, producer = await consumer_in(us), await us.producer(TOPIC)
        await world.crash("ap")
        await producer.send(b"x")
        await consume(consumer, 1)
        await until(lambda: backlog(world, "eu") == 0)
        reason = str(replicated(world, "us").snapshots.why_not())
        assert reason.startswith("snapshots are partial: without ap, absent for ")
        await world.start("ap")
        await until(lambda: backlog(world, "ap") == 0)
        await until(lambda: drained(world) and replicated(world, "us").snapshots._timer is None)
        newest = replicated(world, "us").snapshots.controller.last_completed
        assert newest is not None
        assert [region for region, _ in newest.snapshot.positions] == ["ap", "eu"]


async def test_a_policy_applies_to_a_region_that_is_absent_already() -> None:
    """The topic is quiet, so no timer is set. Without the policy snapshots wait for the region again."""
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        await subscribed_everywhere(world)
        consumer, producer = await consumer_in(us), await us.producer(TOPIC)
        await world.crash("ap")
        await producer.send(b"x")
        await consume(consumer, 1)
        snapshots, policies = replicated(world, "us").snapshots, world.running["us"].policies
        await until(lambda: snapshots.controller.absence.since_ms.keys() == {"ap"} and not snapshots._timer)
        assert backlog(world, "eu") == 1
        await policies.set(NamespacePath("public/default"), PARTIAL_SNAPSHOTS_AFTER, "100ms")
        await until(lambda: backlog(world, "eu") == 0)
        await policies.set(TopicPoliciesPath(TOPIC), PARTIAL_SNAPSHOTS_AFTER, "")
        await producer.send(b"y")
        await consume(consumer, 1)
        await until(lambda: str(snapshots.why_not()).startswith("no snapshot: link "))
        assert backlog(world, "eu") == 1


async def test_without_the_setting_nothing_is_replicated_while_a_region_is_absent() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        await subscribed_everywhere(world)
        consumer, producer = await consumer_in(us), await us.producer(TOPIC)
        await world.crash("ap")
        await producer.send(b"x")
        await consume(consumer, 1)
        sync = replicated(world, "us")
        await until(lambda: sync.snapshots.controller.absence.since_ms.keys() == {"ap"})
        assert sync.snapshots.controller.absence.next_left_out_ms(0) is None
        assert str(sync.why_not(sync._topic.subscriptions.get("s"))).startswith(  # type: ignore[arg-type]
            "no snapshot: link "
        )


async def test_a_restart_of_a_remaining_region_loses_no_unacknowledged_message() -> None:
    """eu is killed after it applied partial updates. What it knew of origins is read again."""
    async with regions("us", "eu", "ap", **AFTER) as world, world.client("us") as us:
        await subscribed_everywhere(world)
        world.cut("us", "ap")
        async with world.client("ap") as ap:
            await (await ap.producer(TOPIC)).send(b"only in eu")
        await until(lambda: backlog(world, "eu") == 1)
        await world.crash("ap")
        consumer, producer = await consumer_in(us), await us.producer(TOPIC)
        for number in range(3):
            await producer.send(b"x")
            await consume(consumer, 1)
            await until(lambda: backlog(world, "eu") == 1)
            await world.crash("eu")
            await world.start("eu")
            await until(lambda: TOPIC in world.running["eu"].directory.serving, 5)
            assert number < 3
        async with world.client("eu") as eu:
            assert await consume(await consumer_in(eu), 1) == [b"only in eu"]
