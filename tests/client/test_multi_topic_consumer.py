"""Consumers of several topics: partitions, lists and patterns; under virtual time."""

from __future__ import annotations

import asyncio
import re

import pytest

from emulator.client import EARLIEST, LATEST, Client, ClientError, ConsumerType, InitialPosition, MessageId
from emulator.client.connection import BrokerConnection
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.errors import ServerError
from emulator.simulation.world import World
from tests.client.topics import (
    NAMESPACE,
    ORDERS,
    PATH,
    WITH_PARTITIONS,
    client_of,
    create,
    delete,
    grow,
    new_consumer,
    publish,
    received,
    region,
    restart,
    several,
    take,
)

SETTINGS = WITH_PARTITIONS
EARLIEST_POSITION = InitialPosition.EARLIEST
NUMBERS = [f"{number:02}" for number in range(12)]


def pattern(text: str = "orders-.*") -> re.Pattern[str]:
    return re.compile(f"{NAMESPACE}/{text}")


async def test_a_consumer_of_a_partitioned_topic_has_everything_of_all_partitions_once(
    world: World, client: Client
) -> None:
    consumer = await new_consumer(world, client, initial_position=EARLIEST_POSITION)
    await publish(client, ORDERS, *NUMBERS)
    messages = await take(consumer, 12)
    assert sorted(message.payload.decode() for message in messages) == NUMBERS
    assert len({message.topic for message in messages}) == 3
    assert all(message.topic == f"{ORDERS}-partition-{message.id.partition}" for message in messages)
    await consumer.acknowledge(*messages, confirmed=True)
    await consumer.close()
    again = await client.subscribe(ORDERS, "s")
    await publish(client, ORDERS, "new")
    assert await received(again, 1) == ["new"]


async def test_ids_of_partitions_are_acknowledged_where_they_belong(world: World, client: Client) -> None:
    """Also several of different partitions in one call, and cumulatively in one of them."""
    consumer = await new_consumer(world, client, initial_position=EARLIEST_POSITION)
    await publish(client, ORDERS, *NUMBERS)
    messages = await take(consumer, 12)
    last = {message.topic: message.id for message in messages}
    first, *others = last.values()
    await consumer.acknowledge_cumulative(first, confirmed=True)
    await consumer.acknowledge(
        *[one.id for one in messages if one.id.partition != first.partition], confirmed=True
    )
    assert others
    await consumer.close()
    again = await client.subscribe(ORDERS, "s")
    await publish(client, ORDERS, "new")
    assert await received(again, 1) == ["new"]


async def test_an_id_of_no_topic_of_the_consumer_is_rejected(world: World, client: Client) -> None:
    consumer = await new_consumer(world, client)
    for stranger in (MessageId(1, 1), MessageId(1, 1, partition=3), MessageId(1, 1, partition=10**9)):
        with pytest.raises(ClientError, match="not a topic of this consumer") as problem:
            await consumer.acknowledge(stranger)
        assert problem.value.definite
        with pytest.raises(ClientError, match="not a topic of this consumer"):
            await consumer.seek(stranger)


async def test_partitions_that_are_added_are_read_from_their_first_message_on(
    world: World, client: Client
) -> None:
    consumer = await new_consumer(world, client, partitions=1)
    await grow(world, 4)
    for index in range(4):
        await publish(client, f"{ORDERS}-partition-{index}", f"of {index}")
    assert await received(consumer, 4) == [f"of {index}" for index in range(4)]


async def test_a_topic_that_grows_while_it_is_subscribed_to_is_subscribed_to_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The region gives a new partition the subscriptions of partition 0 (N4): there was none yet."""
    await create(world, 1)
    client = client_of(world, partitions_interval_seconds=600.0)
    partitions_of, responses = client.partitions_of, []

    async def grows_after_the_response(topic: str, *, may_create: bool = False) -> int:
        responses.append(await partitions_of(topic, may_create=may_create))
        if len(responses) == 2:  # the second is for its partitions
            await grow(world, 2)
        return responses[-1]

    monkeypatch.setattr(client, "partitions_of", grows_after_the_response)
    await (await client.subscribe(ORDERS, "all")).close()
    await publish(client_of(world), f"{ORDERS}-partition-1", "early")
    late = await client.subscribe(ORDERS, "all")
    assert await received(late, 1) == ["early"]


async def test_a_consumer_outlives_its_region_s_restart_and_finds_partitions_added_meanwhile(
    world: World, client: Client
) -> None:
    consumer = await new_consumer(world, client, partitions=2)
    await grow(world, 3)
    await restart(world, 3)
    for index in range(3):
        await publish(client, f"{ORDERS}-partition-{index}", f"of {index}")
    assert await received(consumer, 3) == ["of 0", "of 1", "of 2"]


async def test_failover_consumers_share_the_partitions_and_take_over_all(
    world: World, client: Client
) -> None:
    await create(world, 4)
    first, second = [
        several(await client.subscribe(ORDERS, "s", type_=ConsumerType.FAILOVER, name=name)) for name in "ab"
    ]

    def active(consumer: MultiTopicConsumer) -> int:
        return sum(child.is_active is True for child in consumer.consumers.values())

    await world.simulation.until(lambda: (active(first), active(second)) == (2, 2))
    assert first.is_active
    await first.close()
    await world.simulation.until(lambda: active(second) == 4)


async def test_a_list_of_topics_is_one_consumer_with_or_without_partitions(
    world: World, client: Client
) -> None:
    await create(world, 2)
    consumer = several(await client.subscribe([ORDERS, f"{NAMESPACE}/bills"], "s"))
    assert len(consumer.consumers) == 3
    await publish(client, ORDERS, "a", "b", "c")
    await publish(client, f"{NAMESPACE}/bills", "d")
    assert await received(consumer, 4) == ["a", "b", "c", "d"]
    with pytest.raises(ClientError, match="3 topics"):
        await consumer.last_message_id()
    ids = await consumer.last_message_ids()
    assert set(ids) == set(consumer.consumers)
    with pytest.raises(ClientError, match="does not name its topic"):
        await consumer.acknowledge(MessageId(1, 1))


@pytest.mark.parametrize("topics", [[], ["a", "b"]])
async def test_a_consumer_of_no_topic_or_without_a_queue_is_rejected_at_once(
    world: World, topics: list[str]
) -> None:
    with pytest.raises(ValueError, match="at least one topic" if not topics else "receiver_queue_size"):
        await client_of(world).subscribe(topics, "s", receiver_queue_size=0)


async def test_several_topics_are_sought_to_a_time_or_to_either_end_and_a_partition_to_a_message(
    world: World, client: Client
) -> None:
    consumer = await new_consumer(world, client)
    await publish(client, ORDERS, *NUMBERS[:6])
    await asyncio.sleep(1)
    middle = client.wall_clock_ms()
    await asyncio.sleep(1)
    await publish(client, ORDERS, *NUMBERS[6:])
    assert await received(consumer, 12) == NUMBERS
    await consumer.seek(EARLIEST)
    assert await received(consumer, 12) == NUMBERS
    await consumer.seek(middle)
    later = await take(consumer, 6)
    assert sorted(one.payload.decode() for one in later) == NUMBERS[6:]
    await consumer.acknowledge(*later)
    await consumer.seek(later[0].id)
    of_one = [one.payload.decode() for one in later if one.topic == later[0].topic]
    assert await received(consumer, len(of_one)) == sorted(of_one)
    await consumer.seek(LATEST)
    await publish(client, ORDERS, "end")
    assert await received(consumer, 1) == ["end"]


async def test_unacknowledged_messages_are_redelivered_by_their_partition(
    world: World, client: Client
) -> None:
    consumer = await new_consumer(world, client, type_=ConsumerType.SHARED)
    await publish(client, ORDERS, *NUMBERS)
    messages = await take(consumer, 12)
    consumer.negative_acknowledge(*messages[:5])
    wanted = sorted(message.payload.decode() for message in messages[:5])
    assert await received(consumer, 5) == wanted
    consumer.redeliver_unacknowledged()
    assert await received(consumer, 7) == sorted(set(NUMBERS) - set(wanted))


async def test_unsubscribing_deletes_the_subscription_of_every_partition(
    world: World, client: Client
) -> None:
    consumer = await new_consumer(world, client)
    await consumer.unsubscribe()
    assert consumer.closed
    assert not any(topic.subscriptions for topic in region(world).directory.serving.values())
    with pytest.raises(ClientError, match="closed"):
        await consumer.receive()


async def test_a_busy_partition_fails_subscribing_and_leaves_no_consumer(
    world: World, client: Client
) -> None:
    await create(world)
    holder = await client.subscribe(f"{ORDERS}-partition-1", "s")
    with pytest.raises(ClientError) as problem:
        await client.subscribe(ORDERS, "s")
    assert problem.value.code is ServerError.ConsumerBusy
    await holder.close()
    await (await client.subscribe(ORDERS, "s")).close()


async def test_a_pattern_follows_topics_as_they_come_and_go(world: World, client: Client) -> None:
    await publish(client, f"{ORDERS}-a", "before")
    consumer = several(await client.subscribe(pattern(), "s", initial_position=EARLIEST_POSITION))
    await publish(client, f"{NAMESPACE}/bills", "not this")
    await publish(client, f"{ORDERS}-b", "of b")
    assert await received(consumer, 2) == ["before", "of b"]
    assert set(consumer.consumers) == {f"{ORDERS}-a", f"{ORDERS}-b"}
    await delete(world, "orders-a")
    await world.simulation.until(lambda: set(consumer.consumers) == {f"{ORDERS}-b"})
    await asyncio.sleep(5)
    answer = await world.ask_admin("us", "GET", PATH)
    assert f"{ORDERS}-a" not in str(answer), "the consumer must not create it again"
    await publish(client, f"{ORDERS}-a", "again")
    assert await received(consumer, 1) == ["again"]


async def test_an_unavailable_topic_does_not_delay_changes_of_other_topics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(world, operation_timeout_seconds=20.0)
    await publish(client_of(world), f"{ORDERS}-old", "of old")
    consumer = several(await client.subscribe(pattern(), "s", initial_position=EARLIEST_POSITION))
    assert await received(consumer, 1) == ["of old"]
    connection_for, unavailable = client.connection_for, f"{ORDERS}-bad"

    async def refuse(topic: str) -> BrokerConnection:
        if topic == unavailable:
            raise ClientError("not ready", definite=True, code=ServerError.ServiceNotReady)
        return await connection_for(topic)

    monkeypatch.setattr(client, "connection_for", refuse)
    await publish(client_of(world), f"{ORDERS}-bad", "of bad")
    await asyncio.sleep(1)
    await publish(client_of(world), f"{ORDERS}-good", "of good")
    await delete(world, "orders-old")
    await world.simulation.until(lambda: set(consumer.consumers) == {f"{ORDERS}-good"}, within_seconds=5)
    await asyncio.sleep(30)  # opening it has failed, and is repeated: the list has changed meanwhile
    unavailable = ""
    assert await received(consumer, 2) == ["of bad", "of good"]
    await client.close()


async def test_a_consumer_that_is_closed_while_it_opens_a_topic_leaves_no_consumer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(world)
    consumer = several(await client.subscribe(pattern(), "s", initial_position=EARLIEST_POSITION))
    connection_for, asked = client.connection_for, asyncio.Event()

    async def delay(topic: str) -> BrokerConnection:
        asked.set()
        await asyncio.sleep(1)
        return await connection_for(topic)

    monkeypatch.setattr(client, "connection_for", delay)
    await publish(client_of(world), f"{ORDERS}-a", "x")
    await asyncio.wait_for(asked.wait(), 5)
    await consumer.close()
    await asyncio.sleep(5)
    assert not region(world).directory.serving[f"{ORDERS}-a"].subscriptions


async def test_a_pattern_without_topics_waits_for_the_first_one(world: World, client: Client) -> None:
    consumer = await client.subscribe(pattern(), "s", initial_position=EARLIEST_POSITION)
    receiving = asyncio.ensure_future(received(consumer, 3))
    await create(world, 3, "orders-parted")
    await publish(client, f"{ORDERS}-parted", "x", "y", "z")
    assert await receiving == ["x", "y", "z"]


async def test_a_pattern_consumer_follows_new_topics_again_after_the_region_was_down(
    world: World, client: Client
) -> None:
    consumer = several(await client.subscribe(pattern(), "s", initial_position=EARLIEST_POSITION))
    await restart(world, 2)
    await publish(client, f"{ORDERS}-a", "a")
    assert await received(consumer, 1) == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "orders-.*",
        "public/orders-.*",
        "non-persistent://public/default/o.*",
        f"{NAMESPACE}/",
        f"{NAMESPACE}/(",
    ],
)
async def test_a_pattern_names_its_namespace(world: World, text: str) -> None:
    with pytest.raises((ValueError, re.error), match=r"pattern|parenthesis|missing"):
        await client_of(world).subscribe(re.compile(text), "s")


async def test_a_pattern_that_the_region_does_not_watch_is_polled(world: World) -> None:
    """The region refuses to watch a pattern with a lookahead; the client finds matching topics by polling."""
    client = client_of(world, topics_interval_seconds=1.0)
    await publish(client, f"{ORDERS}-bad", "not this")
    ahead = pattern("orders-(?!bad).*")
    consumer = several(await client.subscribe(ahead, "s", initial_position=EARLIEST_POSITION))
    await publish(client, f"{ORDERS}-good", "this")
    assert await received(consumer, 1) == ["this"]
    assert set(consumer.consumers) == {f"{ORDERS}-good"}


async def test_a_consumer_that_could_not_unsubscribe_reads_later_partitions(world: World) -> None:
    ours, theirs = client_of(world), client_of(world)
    await create(world, 2)
    consumer = several(await ours.subscribe(ORDERS, "s", type_=ConsumerType.SHARED))
    other = await theirs.subscribe(ORDERS, "s", type_=ConsumerType.SHARED)
    with pytest.raises(ClientError):
        await consumer.unsubscribe()
    await other.close()
    await grow(world, 4)
    await world.simulation.until(lambda: len(consumer.consumers) == 4)
    await publish(theirs, ORDERS, *"abcdefgh")
    assert await received(consumer, 8) == list("abcdefgh")


async def test_a_pattern_loses_nothing_of_a_topic_that_is_deleted_and_created_again(
    world: World, client: Client
) -> None:
    """INV-61: messages of the new topic are newer than the consumer."""
    await publish(client, f"{ORDERS}-a", "old")
    consumer = await client.subscribe(re.compile(f"{NAMESPACE}/orders-.*"), "s")
    for incarnation in "123":
        await delete(world, "orders-a")
        await publish(client_of(world), f"{ORDERS}-a", incarnation)
        assert await received(consumer, 1) == [incarnation]


async def test_a_cancelled_pattern_subscription_ends_its_watch(client: Client) -> None:
    await publish(client, f"{ORDERS}-a", "x")
    connection = await client.service_connection()
    pattern = re.compile(f"{NAMESPACE}/orders-.*")
    opening = asyncio.ensure_future(client.subscribe(pattern, "s"))
    while not connection.watchers and not opening.done():
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not connection.watchers
    again = await client.subscribe(pattern, "s", initial_position=EARLIEST_POSITION)
    assert await received(again, 1) == ["x"]


def test_ids_of_one_partition_are_ordered_whatever_their_batches() -> None:
    assert MessageId(5, 0, 1, 2, 0) > MessageId(5, 0, 0, 3, 0)
    assert MessageId(5, 0, 0, 9, 0) < MessageId(5, 1, 0, 2, 0)
