"""Consumers of several topics: partitions, lists and patterns; with our own client under virtual time."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from emulator.client import (
    EARLIEST,
    LATEST,
    Batching,
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    InitialPosition,
    MessageId,
)
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.reader import MultiTopicReader
from emulator.errors import ServerError
from emulator.simulation.world import CLIENT_SETTINGS, World, world

NAMESPACE = "persistent://public/default"
ORDERS = f"{NAMESPACE}/orders"
PATH = "/admin/v2/persistent/public/default"
ASKS = replace(
    CLIENT_SETTINGS, asks_for_partitions=True, partitions_interval_seconds=1.0, topics_interval_seconds=600.0
)
FROM_THE_BEGINNING = InitialPosition.EARLIEST


def client_of(w: World, **changes: object) -> Client:
    return w.client("us", settings=replace(ASKS, **changes))  # type: ignore[arg-type]


async def admin(w: World, method: str, target: str, body: object = None) -> None:
    answer = await w.ask_admin("us", method, target, body)
    assert answer.status < 300, answer


async def create(w: World, topic: str = "orders", count: int = 3) -> None:
    await admin(w, "PUT", f"{PATH}/{topic}/partitions", count)


async def received(consumer: Consumer, count: int) -> list[str]:
    """Return the payloads received, and acknowledge them."""
    payloads = []
    async with asyncio.timeout(30):
        for _ in range(count):
            message = await consumer.receive()
            await consumer.acknowledge(message)
            payloads.append(message.payload.decode())
    return sorted(payloads)


async def publish(client: Client, topic: str, *payloads: str) -> None:
    producer = await client.producer(topic)
    for payload in payloads:
        await producer.send(payload.encode(), key=payload)
    await producer.close()


def several(consumer: Consumer) -> MultiTopicConsumer:
    assert isinstance(consumer, MultiTopicConsumer)
    return consumer


NUMBERS = [f"{number:02}" for number in range(12)]


async def test_a_consumer_of_a_partitioned_topic_has_everything_of_all_partitions_once(world: World) -> None:
    client = client_of(world)
    await create(world)
    consumer = await client.subscribe(ORDERS, "s", initial_position=FROM_THE_BEGINNING)
    await publish(client, ORDERS, *NUMBERS)
    async with asyncio.timeout(10):
        messages = [await consumer.receive() for _ in NUMBERS]
    assert sorted(message.payload.decode() for message in messages) == NUMBERS
    assert len({message.topic for message in messages}) == 3
    assert all(message.topic == f"{ORDERS}-partition-{message.id.partition}" for message in messages)
    await consumer.acknowledge(*messages, confirmed=True)
    await consumer.close()
    again = await client.subscribe(ORDERS, "s")
    await publish(client, ORDERS, "new")
    assert await received(again, 1) == ["new"]


async def test_ids_of_partitions_are_acknowledged_where_they_belong(world: World) -> None:
    """Also several of different partitions in one call, and cumulatively in one of them."""
    client = client_of(world)
    await create(world)
    consumer = await client.subscribe(ORDERS, "s", initial_position=FROM_THE_BEGINNING)
    await publish(client, ORDERS, *NUMBERS)
    async with asyncio.timeout(10):
        messages = [await consumer.receive() for _ in NUMBERS]
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


async def test_an_id_that_names_no_topic_of_the_consumer_is_refused(world: World) -> None:
    client = client_of(world)
    await create(world)
    consumer = await client.subscribe(ORDERS, "s")
    for stranger in (MessageId(1, 1), MessageId(1, 1, partition=3), MessageId(1, 1, partition=10**9)):
        with pytest.raises(ClientError, match="not a topic of this consumer") as problem:
            await consumer.acknowledge(stranger)
        assert problem.value.definite
        with pytest.raises(ClientError, match="not a topic of this consumer"):
            await consumer.seek(stranger)


async def test_partitions_that_are_added_are_read_from_their_first_message_on(world: World) -> None:
    client = client_of(world)
    await create(world, count=1)
    consumer = await client.subscribe(ORDERS, "s")
    await admin(world, "POST", f"{PATH}/orders/partitions", 4)
    for index in range(4):
        await publish(client, f"{ORDERS}-partition-{index}", f"of {index}")
    assert await received(consumer, 4) == [f"of {index}" for index in range(4)]


def test_a_topic_that_grows_while_it_is_subscribed_to_is_subscribed_to_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The region gives a new partition the subscriptions of partition 0 (N4): there was none yet."""
    with world("us") as w:

        async def scenario() -> None:
            await create(w, count=1)
            client = client_of(w, partitions_interval_seconds=600.0)
            asked = client.partitions_of

            answers = []

            async def grows_behind_the_answer(topic: str, *, may_create: bool = False) -> int:
                count = await asked(topic, may_create=may_create)
                answers.append(count)
                if len(answers) == 2:  # the second is for its partitions
                    await admin(w, "POST", f"{PATH}/orders/partitions", 2)
                return count

            monkeypatch.setattr(client, "partitions_of", grows_behind_the_answer)
            await (await client.subscribe(ORDERS, "all")).close()
            await publish(client_of(w), f"{ORDERS}-partition-1", "early")
            late = await client.subscribe(ORDERS, "all")
            assert await received(late, 1) == ["early"]

        w.play(scenario())


async def test_a_consumer_outlives_its_region_s_restart_and_finds_partitions_added_meanwhile(
    world: World,
) -> None:
    client = client_of(world)
    await create(world, count=2)
    consumer = await client.subscribe(ORDERS, "s")
    await admin(world, "POST", f"{PATH}/orders/partitions", 3)
    world.kill("us")
    await asyncio.sleep(3)
    world.start("us")
    await world.ready()
    for index in range(3):
        await publish(client, f"{ORDERS}-partition-{index}", f"of {index}")
    assert await received(consumer, 3) == ["of 0", "of 1", "of 2"]


def test_failover_consumers_share_the_partitions_and_take_over_all() -> None:
    with world("us") as w:

        async def scenario() -> None:
            client = client_of(w)
            await create(w, count=4)
            failover = ConsumerType.FAILOVER
            first = several(await client.subscribe(ORDERS, "s", type_=failover, name="a"))
            second = several(await client.subscribe(ORDERS, "s", type_=failover, name="b"))

            def active(consumer: MultiTopicConsumer) -> int:
                return sum(child.is_active is True for child in consumer.consumers.values())

            await w.simulation.until(lambda: (active(first), active(second)) == (2, 2))
            assert first.is_active
            await first.close()
            await w.simulation.until(lambda: active(second) == 4)

        w.play(scenario())


async def test_a_list_of_topics_is_one_consumer_with_or_without_partitions(world: World) -> None:
    client = client_of(world)
    await create(world, count=2)
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
async def test_what_cannot_be_several_topics_is_refused_at_once(world: World, topics: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one topic" if not topics else "receiver_queue_size"):
        await client_of(world).subscribe(topics, "s", receiver_queue_size=0)


async def test_several_topics_are_sought_to_a_time_or_to_either_end_and_a_partition_to_a_message(
    world: World,
) -> None:
    client = client_of(world)
    await create(world)
    consumer = await client.subscribe(ORDERS, "s")
    await publish(client, ORDERS, *NUMBERS[:6])
    await asyncio.sleep(1)
    middle = client.wall_clock_ms()
    await asyncio.sleep(1)
    await publish(client, ORDERS, *NUMBERS[6:])
    assert await received(consumer, 12) == NUMBERS
    await consumer.seek(EARLIEST)
    assert await received(consumer, 12) == NUMBERS
    await consumer.seek(middle)
    async with asyncio.timeout(10):
        later = [await consumer.receive() for _ in NUMBERS[6:]]
    assert sorted(one.payload.decode() for one in later) == NUMBERS[6:]
    await consumer.acknowledge(*later)
    await consumer.seek(later[0].id)
    of_one = [one.payload.decode() for one in later if one.topic == later[0].topic]
    assert await received(consumer, len(of_one)) == sorted(of_one)
    await consumer.seek(LATEST)
    await publish(client, ORDERS, "end")
    assert await received(consumer, 1) == ["end"]


async def test_what_is_not_acknowledged_comes_again_from_its_partition(world: World) -> None:
    client = client_of(world)
    await create(world)
    consumer = await client.subscribe(ORDERS, "s", type_=ConsumerType.SHARED)
    await publish(client, ORDERS, *NUMBERS)
    async with asyncio.timeout(10):
        messages = [await consumer.receive() for _ in NUMBERS]
    consumer.negative_acknowledge(*messages[:5])
    wanted = sorted(message.payload.decode() for message in messages[:5])
    assert await received(consumer, 5) == wanted
    consumer.redeliver_unacknowledged()
    assert await received(consumer, 7) == sorted(set(NUMBERS) - set(wanted))


async def test_unsubscribing_deletes_the_subscription_of_every_partition(world: World) -> None:
    client = client_of(world)
    await create(world)
    consumer = await client.subscribe(ORDERS, "s")
    await consumer.unsubscribe()
    assert consumer.closed
    broker = world.regions["us"].broker
    assert broker is not None
    assert not any(topic.subscriptions for topic in broker.directory.serving.values())
    with pytest.raises(ClientError, match="closed"):
        await consumer.receive()


async def test_one_partition_that_is_taken_makes_subscribing_fail_and_leaves_nobody_behind(
    world: World,
) -> None:
    client = client_of(world)
    await create(world)
    holder = await client.subscribe(f"{ORDERS}-partition-1", "s")
    with pytest.raises(ClientError) as problem:
        await client.subscribe(ORDERS, "s")
    assert problem.value.code is ServerError.ConsumerBusy
    await holder.close()
    await (await client.subscribe(ORDERS, "s")).close()


# Patterns.


def pattern(text: str = "orders-.*") -> re.Pattern[str]:
    return re.compile(f"{NAMESPACE}/{text}")


async def test_a_pattern_follows_topics_as_they_come_and_go(world: World) -> None:
    client = client_of(world)
    await publish(client, f"{ORDERS}-a", "before")
    consumer = several(await client.subscribe(pattern(), "s", initial_position=FROM_THE_BEGINNING))
    await publish(client, f"{NAMESPACE}/bills", "not this")
    await publish(client, f"{ORDERS}-b", "of b")
    assert await received(consumer, 2) == ["before", "of b"]
    assert set(consumer.consumers) == {f"{ORDERS}-a", f"{ORDERS}-b"}
    await admin(world, "DELETE", f"{PATH}/orders-a?force=true")
    await world.simulation.until(lambda: set(consumer.consumers) == {f"{ORDERS}-b"})
    await asyncio.sleep(5)
    answer = await world.ask_admin("us", "GET", PATH)
    assert f"{ORDERS}-a" not in str(answer), "the consumer must not create it again"
    await publish(client, f"{ORDERS}-a", "again")
    assert await received(consumer, 1) == ["again"]


async def test_a_pattern_that_fits_nothing_waits_for_the_first_topic(world: World) -> None:
    client = client_of(world)
    consumer = await client.subscribe(pattern(), "s", initial_position=FROM_THE_BEGINNING)
    receiving = asyncio.ensure_future(received(consumer, 3))
    await create(world, "orders-parted", 3)
    await publish(client, f"{ORDERS}-parted", "x", "y", "z")
    assert await receiving == ["x", "y", "z"]


async def test_a_pattern_is_followed_again_after_the_region_was_away(world: World) -> None:
    client = client_of(world)
    consumer = several(await client.subscribe(pattern(), "s", initial_position=FROM_THE_BEGINNING))
    world.kill("us")
    await asyncio.sleep(2)
    world.start("us")
    await world.ready()
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


async def test_a_pattern_of_a_kind_that_the_region_does_not_watch_is_asked_for_now_and_then(
    world: World,
) -> None:
    """The region refuses to watch a pattern with a lookahead; the client finds matching topics by polling."""
    client = client_of(world, topics_interval_seconds=1.0)
    await publish(client, f"{ORDERS}-bad", "not this")
    ahead = pattern("orders-(?!bad).*")
    consumer = several(await client.subscribe(ahead, "s", initial_position=FROM_THE_BEGINNING))
    await publish(client, f"{ORDERS}-good", "this")
    assert await received(consumer, 1) == ["this"]
    assert set(consumer.consumers) == {f"{ORDERS}-good"}


# Permits.


async def test_a_consumer_that_starts_paused_is_given_nothing_until_it_goes_on(world: World) -> None:
    client = client_of(world)
    await create(world, count=2)
    for topic in (ORDERS, f"{NAMESPACE}/bills"):
        consumer = await client.subscribe(topic, "s", start_paused=True)
        await publish(client, topic, *NUMBERS)
        await asyncio.sleep(5)
        assert not consumer.waiting
        consumer.resume()
        assert await received(consumer, 12) == NUMBERS
        consumer.pause()
        consumer.pause()
        consumer.resume()
        await publish(client, topic, "more")
        assert await received(consumer, 1) == ["more"]
        await consumer.close()


async def test_a_paused_consumer_stays_paused_when_its_region_comes_back(world: World) -> None:
    client = client_of(world)
    consumer = await client.subscribe(ORDERS, "s", receiver_queue_size=2)
    await publish(client, ORDERS, "1", "2", "3")
    await world.simulation.until(lambda: len(consumer.waiting) == 2)
    consumer.pause()
    world.kill("us")
    world.start("us")
    await world.ready()
    await publish(client, ORDERS, "4")
    await asyncio.sleep(5)
    assert not consumer.waiting
    consumer.resume()
    assert await received(consumer, 4) == ["1", "2", "3", "4"]


async def test_without_a_queue_nothing_is_asked_for_ahead(world: World) -> None:
    """Two consumers without a queue: while one is busy, the other still receives messages."""
    client = client_of(world)
    slow, quick = [
        await client.subscribe(ORDERS, "s", type_=ConsumerType.SHARED, receiver_queue_size=0)
        for _ in range(2)
    ]
    await publish(client, ORDERS, *NUMBERS)
    async with asyncio.timeout(10):
        busy_with = await slow.receive()
        others = [(await quick.receive()).payload.decode() for _ in NUMBERS[1:]]
    assert sorted([busy_with.payload.decode(), *others]) == NUMBERS
    assert not slow.waiting
    assert not quick.waiting


async def test_without_a_queue_a_batch_is_taken_message_by_message_and_nothing_after_it_is_asked_for_early(
    world: World,
) -> None:
    client = client_of(world)
    consumer = await client.subscribe(ORDERS, "s", receiver_queue_size=0)
    producer = await client.producer(ORDERS, batching=Batching(messages_max=4, delay_ms_max=1_000))
    receipts = [producer.send_nowait(number.encode()) for number in NUMBERS]
    await asyncio.gather(*receipts)
    async with asyncio.timeout(10):
        for index, number in enumerate(NUMBERS):
            assert (await consumer.receive()).payload.decode() == number
            assert len(consumer.waiting) == 3 - index % 4


async def test_without_a_queue_whoever_waits_is_served_after_the_region_came_back(world: World) -> None:
    client = client_of(world)
    consumer = await client.subscribe(ORDERS, "s", receiver_queue_size=0)
    receiving = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(1)
    world.kill("us")
    world.start("us")
    await world.ready()
    await publish(client, ORDERS, "x")
    async with asyncio.timeout(10):
        assert (await receiving).payload == b"x"


# Readers.


async def test_a_reader_of_a_partitioned_topic_reads_all_of_it(world: World) -> None:
    client = client_of(world)
    await create(world)
    await publish(client, ORDERS, *NUMBERS)
    reader = await client.reader(ORDERS, EARLIEST)
    assert isinstance(reader, MultiTopicReader)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload.decode())
    assert sorted(found) == NUMBERS
    with pytest.raises(ClientError, match="EARLIEST or LATEST"):
        await client.reader(ORDERS, MessageId(1, 1))


async def test_a_table_view_has_the_newest_value_of_each_key_and_follows(world: World) -> None:
    client = client_of(world)
    await create(world)
    producer = await client.producer(ORDERS)
    for key, value in (("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("c", b"")):
        await producer.send(value, key=key)
    await producer.send(b"without a key")
    view = await client.table_view(ORDERS)
    assert dict(view) == {"a": b"2", "b": b"1"}
    told: list[tuple[str, bytes | None]] = []
    view.listen(lambda key, value: told.append((key, value)), existing=True)
    await producer.send(b"3", key="a")
    await producer.send(b"", key="b")
    await view.refresh()
    assert dict(view) == {"a": b"3"}
    assert sorted(told[:2]) == [("a", b"2"), ("b", b"1")]
    assert sorted(told[2:], key=str) == [("a", b"3"), ("b", None)]
    world.kill("us")
    world.start("us")
    await world.ready()
    await producer.send(b"4", key="d")
    await world.simulation.until(lambda: view.get("d") == b"4")
    await view.close()
    assert view["a"] == b"3"
    with pytest.raises(ClientError, match="closed"):
        await view.refresh()
