"""Our own client against a broker on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import EARLIEST, Batching, Client, ClientError, ConsumerType, InitialPosition, MessageId
from emulator.errors import ServerError
from tests.broker.regions import regions, until
from tests.client.socket_region import SocketRegion

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

FROM_THE_START = InitialPosition.EARLIEST


async def test_messages_are_received_in_the_order_of_their_sends(us: SocketRegion) -> None:
    """Unbatched messages arrive in the order of their sends, with key, properties and origin."""
    producer = await us.client.producer("orders")
    sent = [await producer.send(b"%d" % n, key="k", properties={"n": str(n)}) for n in range(20)]
    consumer = await us.client.subscribe("orders", "s", initial_position=FROM_THE_START)
    received = [await consumer.receive() for _ in range(20)]
    assert [m.payload for m in received] == [b"%d" % n for n in range(20)]
    assert [m.id for m in received] == sent
    assert received[3].properties == {"n": "3"}
    assert received[3].key == "k"
    assert received[3].producer_name == producer.name


async def test_a_batch_is_one_entry_of_many_messages(us: SocketRegion) -> None:
    """Members of a batch share ledger and entry and differ in their index."""
    producer = await us.client.producer("orders", batching=Batching(messages_max=10))
    ids = await asyncio.gather(*[producer.send(b"%d" % n) for n in range(30)])
    assert len({(one.ledger, one.entry) for one in ids}) == 3
    consumer = await us.client.subscribe("orders", "s", initial_position=FROM_THE_START)
    received = [await consumer.receive() for _ in range(30)]
    assert [m.payload for m in received] == [b"%d" % n for n in range(30)]


async def test_a_producer_resends_what_had_no_receipt(us: SocketRegion) -> None:
    """A crash of the region in the middle of a stream loses nothing and doubles nothing."""
    producer = await us.client.producer("orders", name="p", pending_messages_max=5000)
    sends = [producer.send_nowait(b"%d" % n) for n in range(500)]
    await asyncio.wait_for(sends[100], 5)
    await us.world.crash("us")
    sends += [producer.send_nowait(b"%d" % n) for n in range(500, 600)]
    await us.world.start("us")
    await asyncio.wait_for(asyncio.gather(*sends), 10)
    reader = await us.client.reader("orders", EARLIEST)
    assert [(await reader.receive()).payload for _ in range(600)] == [b"%d" % n for n in range(600)]
    assert not await reader.has_message()


async def test_negative_acknowledgement_brings_a_message_again(us: SocketRegion) -> None:
    """SHARED: only the negatively acknowledged one, with its redelivery count."""
    producer = await us.client.producer("orders")
    consumer = await us.client.subscribe("orders", "s", type_=ConsumerType.SHARED)
    for n in range(3):
        await producer.send(b"%d" % n)
    received = [await consumer.receive() for _ in range(3)]
    await consumer.acknowledge(received[0], received[2])
    again = received[1]
    for count in range(1, 5):
        consumer.negative_acknowledge(again)
        again = await asyncio.wait_for(consumer.receive(), 5)
        assert (again.payload, again.redelivery_count) == (b"1", count)


async def test_the_next_failover_consumer_goes_on_where_the_first_stopped(us: SocketRegion) -> None:
    """Only the active one is served; when it leaves, the other gets its unacknowledged messages."""
    async with us.world.client("us") as other:
        producer = await us.client.producer("orders")
        first = await us.client.subscribe("orders", "s", type_=ConsumerType.FAILOVER)
        second = await other.subscribe("orders", "s", type_=ConsumerType.FAILOVER)
        for n in range(4):
            await producer.send(b"%d" % n)
        received = [await first.receive() for _ in range(4)]
        await first.acknowledge_cumulative(received[1], confirmed=True)
        await first.close()
        assert (await asyncio.wait_for(second.receive(), 5)).payload == b"2"
        await until(lambda: second.is_active is True)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("persistent://nowhere/ns/t", ServerError.TopicNotFound),
        ("persistent://public/default/", ServerError.InvalidTopicName),
        ("non-persistent://nowhere/ns/t", ServerError.TopicNotFound),
    ],
)
async def test_an_impossible_topic_is_rejected_with_the_error_that_clients_understand(
    us: SocketRegion, topic: str, code: ServerError
) -> None:
    with pytest.raises(ClientError) as caught:
        await us.client.producer(topic)
    assert (caught.value.code, caught.value.definite) == (code, True)


async def test_a_second_exclusive_consumer_is_rejected_and_the_first_undisturbed(us: SocketRegion) -> None:
    """ConsumerBusy fails that one command, never the connection."""
    consumer = await us.client.subscribe("orders", "s")
    with pytest.raises(ClientError) as caught:
        await us.client.subscribe("orders", "s")
    assert caught.value.code is ServerError.ConsumerBusy
    producer = await us.client.producer("orders")
    await producer.send(b"x")
    assert (await consumer.receive()).payload == b"x"


async def test_the_client_moves_on_to_the_next_service_url() -> None:
    """Fail-over: the first region is down, the second serves."""
    async with regions("us", "eu") as world:
        await world.crash("us")
        async with world.client("us", "eu") as client:
            producer = await client.producer("orders")
            assert await producer.send(b"x") == MessageId(1, 0)


def test_a_url_that_cannot_be_read_is_an_error_at_once() -> None:
    """ValueError, before anything is tried."""
    with pytest.raises(ValueError, match="must begin with pulsar://"):
        Client("http://localhost:6650")


@pytest.mark.parametrize("type_", [ConsumerType.EXCLUSIVE, ConsumerType.SHARED])
async def test_a_seek_into_a_batch_goes_on_with_the_message_that_was_named(
    type_: ConsumerType, us: SocketRegion
) -> None:
    producer = await us.client.producer("orders", batching=Batching(messages_max=5))
    ids = await asyncio.gather(*[producer.send(b"%d" % n) for n in range(10)])
    consumer = await us.client.subscribe("orders", "s", type_=type_)
    for index in (7, 0, 4, 9):
        await consumer.seek(ids[index])
        received = [await consumer.receive() for _ in range(10 - index)]
        assert [m.payload for m in received] == [b"%d" % n for n in range(index, 10)]
        assert await consumer.last_message_id() is not None


async def test_a_delayed_message_is_an_entry_of_its_own(us: SocketRegion) -> None:
    """Messages waiting for a batch are sent before it."""
    batching = Batching(messages_max=100, delay_ms_max=60_000)
    producer = await us.client.producer("orders", batching=batching)
    before = producer.send_nowait(b"before")
    late = await producer.send(b"late", deliver_at_ms=us.client.wall_clock_ms() + 500)
    assert (await before).entry + 1 == late.entry
    assert late.batch_index == -1
    consumer = await us.client.subscribe(
        "orders", "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START
    )
    assert [(await consumer.receive()).payload for _ in range(2)] == [b"before", b"late"]


async def test_a_consumer_with_a_full_queue_that_requests_everything_again_receives_it(
    us: SocketRegion,
) -> None:
    producer = await us.client.producer("orders")
    payloads = [b"%d" % number for number in range(12)]
    for payload in payloads:
        await producer.send(payload)
    consumer = await us.client.subscribe(
        "orders", "s", type_=ConsumerType.FAILOVER, initial_position=FROM_THE_START, receiver_queue_size=4
    )
    for _ in range(3):
        await until(lambda: len(consumer.waiting) == 4)
        consumer.redeliver_unacknowledged()
    async with asyncio.timeout(20):
        assert [(await consumer.receive()).payload for _ in payloads] == payloads
