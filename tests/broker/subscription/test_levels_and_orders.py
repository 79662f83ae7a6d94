"""Consumer options reach the dispatcher: priority levels, and out-of-order delivery for Key_Shared. Under virtual time,
from the client to the stats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.client import Consumer, ConsumerType, InitialPosition, Producer
from emulator.config.broker_settings import BrokerSettings
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"
KEYS = [f"key-{number}" for number in range(40)]
PERMITS = 10


async def stats_of(w: World, subscription: str = "s") -> dict[str, Any]:
    answer = await w.ask_admin("us", "GET", "/admin/v2/persistent/public/default/orders/stats")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()["subscriptions"][subscription]
    return found


def count(consumer: Consumer) -> int:
    """Return the number of messages delivered to this consumer and not received by the application."""
    return len(consumer.waiting)


async def test_shared_consumers_of_lower_priority_get_messages_when_higher_ones_have_no_permits(
    world: World,
) -> None:
    client = world.client("us")
    best, good, worse = [
        await client.subscribe(
            TOPIC,
            "s",
            type_=ConsumerType.SHARED,
            name=name,
            priority_level=level,
            receiver_queue_size=PERMITS,
        )
        for name, level in (("best", 1), ("good", 1), ("worse", 2))
    ]
    producer = await client.producer(TOPIC)
    for number in range(2 * PERMITS):
        await producer.send(b"%d" % number)
    await world.simulation.until(lambda: count(best) + count(good) == 2 * PERMITS)
    assert count(worse) == 0, "consumers of the better level had permits"
    for _ in range(3):
        await producer.send(b"more")
    await world.simulation.until(lambda: count(worse) == 3)


@pytest.mark.world("us", settings=BrokerSettings(failover_delay_ms=200))
async def test_consumers_are_notified_of_the_last_active_consumer_after_their_subscribe(
    world: World,
) -> None:
    """Pulsar also waits; the Go client drops a notification that arrives before its SUBSCRIBE has returned."""
    client = world.client("us")
    first, better = [
        await client.subscribe(TOPIC, "s", type_=ConsumerType.FAILOVER, name=name, priority_level=level)
        for name, level in (("first", 1), ("better", 0))
    ]
    assert (first.is_active, better.is_active) == (None, None), "nothing is sent before SUBSCRIBE returned"
    await world.simulation.until(lambda: better.is_active is True)
    assert first.is_active is False
    await better.close()
    await world.simulation.until(lambda: first.is_active is True)


async def test_the_failover_consumer_of_highest_priority_is_active_in_any_order_of_arrival(
    world: World,
) -> None:
    client = world.client("us")
    worse, best = [
        await client.subscribe(TOPIC, "s", type_=ConsumerType.FAILOVER, name=name, priority_level=level)
        for name, level in (("worse", 5), ("best", 0))
    ]
    assert (await stats_of(world))["activeConsumerName"] == "best"
    producer = await client.producer(TOPIC)
    await producer.send(b"0")
    assert (await best.receive()).payload == b"0"
    await best.close()
    await producer.send(b"1")
    payloads = {(await worse.receive()).payload, (await worse.receive()).payload}
    assert payloads == {b"0", b"1"}, "including unacknowledged messages of the other one"


async def all_keys(producer: Producer) -> None:
    for key in KEYS:
        await producer.send(key.encode(), key=key)


@pytest.mark.parametrize("out_of_order", [False, True])
async def test_a_moved_key_waits_for_its_former_consumer_unless_out_of_order_is_allowed(
    world: World, out_of_order: bool
) -> None:
    """Stats show how many keys wait for each consumer."""
    client = world.client("us")

    async def joined(name: str) -> Consumer:
        return await client.subscribe(
            TOPIC,
            "s",
            type_=ConsumerType.KEY_SHARED,
            name=name,
            initial_position=InitialPosition.EARLIEST,
            out_of_order=out_of_order,
        )

    former = await joined("former")
    producer = await client.producer(TOPIC)
    await all_keys(producer)
    held = [await former.receive() for _ in KEYS]
    newcomer = await joined("newcomer")
    await all_keys(producer)
    draining = {
        one["consumerName"]: one["drainingHashesCount"] for one in (await stats_of(world))["consumers"]
    }
    if out_of_order:
        await world.simulation.until(lambda: count(former) + count(newcomer) == len(KEYS))
        assert count(newcomer) > 0
        assert draining == {"former": 0, "newcomer": 0}
        return
    await asyncio.sleep(5)  # of virtual time: nothing is to come
    assert count(newcomer) == 0
    moved = len(KEYS) - count(former)
    assert draining == {"former": moved, "newcomer": 0}
    assert moved > 0
    for message in held:
        await former.acknowledge(message)
    await world.simulation.until(lambda: count(newcomer) == moved)
    after = {one["consumerName"]: one["drainingHashesCount"] for one in (await stats_of(world))["consumers"]}
    assert after == {"former": 0, "newcomer": 0}


@pytest.mark.parametrize("names", [("same", "same", "same"), ("a", "a0", "a"), (None, None, None)])
async def test_consumers_with_equal_names_share_the_keys(world: World, names: tuple[str | None, ...]) -> None:
    """90 keys at three consumers of three clients; then one leaves, and the two others take over its keys."""
    clients = [world.client("us") for _ in names]
    consumers = [
        await client.subscribe(TOPIC, "s", type_=ConsumerType.KEY_SHARED, name=name)
        for client, name in zip(clients, names, strict=True)
    ]
    producer = await clients[0].producer(TOPIC)
    keys = [f"key-{number}" for number in range(90)]
    for key in keys:
        await producer.send(key.encode(), key=key)
    await world.simulation.until(lambda: sum(map(count, consumers)) == 90)
    assert all(count(one) > 10 for one in consumers)
    left_behind = count(consumers[0])
    await clients[0].close()
    await world.simulation.until(lambda: count(consumers[1]) + count(consumers[2]) == 90)
    assert left_behind > 0


async def test_stats_show_which_of_two_consumers_with_equal_names_holds_keys(world: World) -> None:
    clients = [world.client("us"), world.client("us")]
    first = await clients[0].subscribe(TOPIC, "s", type_=ConsumerType.KEY_SHARED, name="same")
    producer = await clients[0].producer(TOPIC)
    await all_keys(producer)
    await world.simulation.until(lambda: count(first) == len(KEYS))
    await clients[1].subscribe(TOPIC, "s", type_=ConsumerType.KEY_SHARED, name="same")
    draining = sorted(one["drainingHashesCount"] for one in (await stats_of(world))["consumers"])
    assert draining[0] == 0
    assert draining[1] > 0
