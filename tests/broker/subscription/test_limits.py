"""Limits on unacknowledged messages, and the options of a new subscription; in virtual time."""

from __future__ import annotations

import pytest

from emulator.client import Consumer, ConsumerType, InitialPosition, Message
from emulator.core.policies.consuming import UNACKED_PER_CONSUMER, UNACKED_PER_SUBSCRIPTION
from emulator.model.stored_keys import NamespacePath, TopicPoliciesPath
from emulator.simulation.world import World
from tests.broker.regions import broker_of
from tests.broker.subscription.test_subscription import TOPIC, subscription_of

NAMESPACE = NamespacePath("public/default")
STATS = "/admin/v2/persistent/public/default/orders/stats"


async def subscribed(w: World, name: str) -> Consumer:
    return await w.client("us").subscribe(
        TOPIC, "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST, name=name
    )


async def publish(w: World, count: int) -> None:
    producer = await w.client("us").producer(TOPIC)
    for number in range(count):
        await producer.send(b"%d" % number)


def held(w: World) -> list[int]:
    """Return the unacknowledged messages of each consumer, in order of arrival."""
    return [consumer.unacked_messages for consumer in subscription_of(w, "s").dispatcher.strategy.consumers]


async def taken(consumer: Consumer, count: int) -> list[Message]:
    return [await consumer.receive() for _ in range(count)]


@pytest.mark.within(60)
async def test_a_consumer_at_its_unacknowledged_limit_waits_for_its_acknowledgements(world: World) -> None:
    await broker_of(world).policies.set(NAMESPACE, UNACKED_PER_CONSUMER, 4)
    consumer = await subscribed(world, "a")
    await publish(world, 10)
    messages = await taken(consumer, 4)
    assert held(world) == [4]
    stats = (await world.ask_admin("us", "GET", STATS)).json()["subscriptions"]["s"]
    assert stats["consumers"][0]["blockedConsumerOnUnackedMsgs"]
    await consumer.acknowledge(messages[0])
    messages += await taken(consumer, 1)
    await broker_of(world).policies.set(NAMESPACE, UNACKED_PER_CONSUMER, 0)
    await taken(consumer, 5)
    assert held(world) == [9], "any number"


@pytest.mark.within(300)
async def test_all_consumers_together_obey_the_limit_of_the_subscription(world: World) -> None:
    await publish(world, 100)
    await broker_of(world).policies.set(TopicPoliciesPath(TOPIC), UNACKED_PER_SUBSCRIPTION, 6)
    await broker_of(world).policies.set(NAMESPACE, UNACKED_PER_CONSUMER, 5)
    one, other = await subscribed(world, "a"), await subscribed(world, "b")
    await world.simulation.until(lambda: sum(held(world)) >= 6)
    stats = (await world.ask_admin("us", "GET", STATS)).json()["subscriptions"]["s"]
    assert stats["blockedSubscriptionOnUnackedMsgs"]
    received = 0
    while received < 100:
        assert sum(held(world)) <= 10, "one read may overshoot"
        for consumer, count in ((one, held(world)[0]), (other, held(world)[1])):
            messages = await taken(consumer, count)
            for message in messages:
                await consumer.acknowledge(message, confirmed=True)
            received += count
        await world.simulation.until(lambda: received == 100 or sum(held(world)) > 0)  # noqa: B023
