"""Negative acknowledgements, ack timeouts, retry letters and dead letters. Our own client under virtual time."""

from __future__ import annotations

import asyncio
import re

import pytest

from emulator.client import (
    EARLIEST,
    Batching,
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    DeadLetters,
    InitialPosition,
    Message,
)
from emulator.simulation.world import World

TOPIC = "persistent://public/default/orders"
DEAD, RETRY = f"{TOPIC}-s-DLQ", f"{TOPIC}-s-RETRY"
TWICE = DeadLetters(2)


async def subscribe(client: Client, **wanted: object) -> Consumer:
    given = {"type_": ConsumerType.SHARED, "initial_position": InitialPosition.EARLIEST, **wanted}
    return await client.subscribe(TOPIC, "s", **given)  # type: ignore[arg-type]


async def publish(client: Client, *payloads: bytes, batching: Batching | None = None) -> None:
    producer = await client.producer(TOPIC, batching=batching)
    await asyncio.gather(*[producer.send(one, key="k", properties={"n": "1"}) for one in payloads])
    await producer.close()


async def come(consumer: Consumer) -> Message:
    return await asyncio.wait_for(consumer.receive(), 60)


async def nothing_comes(consumer: Consumer, seconds: float = 20) -> bool:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.receive(), seconds)
    return True


async def letters(client: Client, topic: str = DEAD) -> list[Message]:
    reader = await client.reader(topic, EARLIEST)
    found = []
    while await reader.has_message():
        found.append(await reader.receive())
    return found


def backlog(w: World, topic: str = TOPIC) -> int | None:
    return w.regions["us"].backlog(topic, "s")


async def test_a_negatively_acknowledged_message_is_redelivered_after_the_delay(
    world: World, client: Client
) -> None:
    await publish(client, b"x", b"y")
    consumer = await subscribe(client, negative_ack_delay_seconds=5.0)
    messages = [await come(consumer), await come(consumer)]
    begin = world.simulation.now
    consumer.negative_acknowledge(messages[0])
    await asyncio.sleep(1)
    consumer.negative_acknowledge(messages[0], messages[1])
    for payload, after in ((b"x", 5.0), (b"y", 6.0)):
        assert (await come(consumer)).payload == payload
        assert after <= world.simulation.now - begin < after + 0.5


async def test_a_message_is_redelivered_unless_it_is_acknowledged_in_time(client: Client) -> None:
    await publish(client, b"kept", b"forgotten", b"cumulative")
    consumer = await subscribe(client, ack_timeout_seconds=3.0)
    kept, _, _ = [await come(consumer) for _ in range(3)]
    await consumer.acknowledge(kept)
    again = [await come(consumer), await come(consumer)]
    assert [(one.payload, one.redelivery_count) for one in again] == [(b"forgotten", 1), (b"cumulative", 1)]
    await consumer.acknowledge(*again)
    assert await nothing_comes(consumer)
    exclusive = await client.subscribe(
        TOPIC, "other", ack_timeout_seconds=3.0, initial_position=InitialPosition.EARLIEST
    )
    last = [await come(exclusive) for _ in range(3)][-1]
    await exclusive.acknowledge_cumulative(last)
    assert await nothing_comes(exclusive)


@pytest.mark.parametrize("cumulative", [False, True], ids=["single", "cumulative"])
async def test_a_message_that_its_transaction_could_not_register_is_redelivered_by_timeout(
    client: Client, monkeypatch: pytest.MonkeyPatch, cumulative: bool
) -> None:
    await publish(client, b"x")
    type_ = ConsumerType.EXCLUSIVE if cumulative else ConsumerType.SHARED
    consumer = await subscribe(client, type_=type_, ack_timeout_seconds=3.0)
    message, transaction = await come(consumer), await client.new_transaction()
    acknowledge = consumer.acknowledge_cumulative if cumulative else consumer.acknowledge

    async def fail(*_: object) -> None:
        raise ClientError("timeout", definite=False)

    with monkeypatch.context() as patch:
        patch.setattr(client.coordinators, "add", fail)
        with pytest.raises(ClientError, match="timeout"):
            await acknowledge(message, transaction=transaction)
    again = await come(consumer)
    assert again.payload == b"x"
    await acknowledge(again, transaction=transaction)
    await transaction.commit()
    assert await nothing_comes(consumer)


@pytest.mark.parametrize("batching", [None, Batching(messages_max=3)], ids=["single", "batch"])
@pytest.mark.parametrize("how", ["negatively acknowledged", "forgotten"])
async def test_a_message_beyond_its_redeliveries_is_a_dead_letter_with_its_origin(
    world: World, client: Client, how: str, batching: Batching | None
) -> None:
    await publish(client, b"0", b"1", b"2", batching=batching)
    timeout = 2.0 if how == "forgotten" else None
    consumer = await subscribe(client, dead_letters=TWICE, ack_timeout_seconds=timeout)
    seen: dict[bytes, list[int]] = {b"0": [], b"1": [], b"2": []}
    for _ in range(9):
        message = await come(consumer)
        seen[message.payload].append(message.redelivery_count)
        if how != "forgotten":
            consumer.negative_acknowledge(message)
    assert await nothing_comes(consumer)
    assert list(seen.values()) == [[0, 1, 2]] * 3
    dead = await letters(client)
    assert sorted(one.payload for one in dead) == [b"0", b"1", b"2"]
    for one in dead:
        assert (one.key, one.properties["n"]) == ("k", "1")
        assert (one.properties["REAL_TOPIC"], one.properties["REAL_SUBSCRIPTION"]) == (TOPIC, "s")
    assert len({one.properties["ORIGIN_MESSAGE_ID"] for one in dead}) == 3
    assert backlog(world) == 0


async def test_a_message_that_kills_every_consumer_becomes_a_dead_letter(world: World) -> None:
    """No client acknowledges it negatively: the region counts deliveries."""
    await publish(world.client("us"), b"poison")
    await subscribe(world.client("us"), start_paused=True)  # a consumer holds it all the time
    for _ in range(3):
        client = world.client("us")
        assert (await come(await subscribe(client, dead_letters=TWICE))).payload == b"poison"
        await client.close()
    client = world.client("us")
    assert await nothing_comes(await subscribe(client, dead_letters=TWICE))
    assert [one.payload for one in await letters(client)] == [b"poison"]
    assert backlog(world) == 0


async def test_dead_letters_wait_for_the_subscription_that_was_made_with_their_topic(
    world: World, client: Client
) -> None:
    await publish(client, b"x")
    dead = DeadLetters(0, topic="dead", initial_subscription="undertaker")
    consumer = await subscribe(client, dead_letters=dead)
    consumer.negative_acknowledge(await come(consumer))
    await world.simulation.until(lambda: backlog(world) == 0)
    undertaker = await client.subscribe("dead", "undertaker")
    assert (await come(undertaker)).payload == b"x"


async def test_a_reconsumed_message_is_delivered_later_by_the_retry_topic_and_dead_after_too_many_retries(
    world: World, client: Client
) -> None:
    await publish(client, b"x")
    consumer = await subscribe(client, dead_letters=DeadLetters(2, retries=True))
    for times in range(3):
        message = await come(consumer)
        assert message.properties.get("RECONSUMETIMES") == (str(times) if times else None)
        assert message.topic == (RETRY if times else TOPIC)
        await consumer.reconsume_later(message, 5.0)
    assert await nothing_comes(consumer)
    (dead,) = await letters(client)
    assert (dead.payload, dead.properties["REAL_TOPIC"]) == (b"x", TOPIC)
    assert (backlog(world), backlog(world, RETRY)) == (0, 0)


async def test_a_reconsumed_message_is_not_early(world: World, client: Client) -> None:
    await publish(client, b"x")
    consumer = await subscribe(client, dead_letters=DeadLetters(2, retries=True))
    message, begin = await come(consumer), world.simulation.now
    await consumer.reconsume_later(message, 5.0)
    assert (await come(consumer)).payload == b"x"
    assert 4.99 <= world.simulation.now - begin < 7.0


async def test_retry_properties_set_by_a_producer_are_ignored(client: Client) -> None:
    """Otherwise any producer could make a message a dead letter, or forge its origin."""
    lies = {"RECONSUMETIMES": "99", "REAL_TOPIC": "nowhere", "ORIGIN_MESSAGE_ID": "1:2:3"}
    producer = await client.producer(TOPIC)
    sent = await producer.send(b"x", properties=lies)
    consumer = await subscribe(client, dead_letters=DeadLetters(1, retries=True))
    await consumer.reconsume_later(await come(consumer), 0.1)
    again = await come(consumer)
    assert again.properties == {
        "RECONSUMETIMES": "1",
        "DELAY_TIME": "100",
        "REAL_TOPIC": TOPIC,
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": str(sent),
    }


async def test_a_dead_letter_that_cannot_be_sent_is_redelivered_until_it_can(
    world: World, client: Client
) -> None:
    await publish(client, b"x")
    grave = await client.producer(DEAD)
    path = f"/admin/v2/{DEAD.replace('://', '/')}"
    assert (await world.ask_admin("us", "POST", f"{path}/terminate")).status == 200
    consumer = await subscribe(client, dead_letters=DeadLetters(0))
    consumer.negative_acknowledge(await come(consumer))
    await asyncio.sleep(10)
    assert backlog(world) == 1
    await grave.close()
    assert (await world.ask_admin("us", "DELETE", f"{path}?force=true")).status == 204
    await world.simulation.until(lambda: backlog(world) == 0, within_seconds=120)
    assert [one.payload for one in await letters(client)] == [b"x"]


async def test_a_consumer_that_is_closed_while_it_sends_dead_letters_loses_nothing(client: Client) -> None:
    await publish(client, *[b"%d" % number for number in range(5)])
    consumer = await subscribe(client, dead_letters=DeadLetters(0))
    consumer.negative_acknowledge(*[await come(consumer) for _ in range(5)])
    await consumer.close()
    other = await subscribe(client, dead_letters=DeadLetters(0))
    await asyncio.sleep(20)
    left = {one.payload for one in other.waiting}
    dead = {one.payload for one in await letters(client)}
    assert left | dead == {b"%d" % number for number in range(5)}


async def test_invalid_settings_are_rejected(client: Client) -> None:
    for wanted, words in (
        ({"dead_letters": TWICE, "type_": ConsumerType.FAILOVER}, "SHARED or KEY_SHARED"),
        ({"ack_timeout_seconds": 0.0}, "more than 0"),
        ({"negative_ack_delay_seconds": -1.0}, "not be negative"),
    ):
        with pytest.raises(ValueError, match=words):
            await subscribe(client, **wanted)
    with pytest.raises(ValueError, match="must not be negative"):
        DeadLetters(-1)
    retries = DeadLetters(1, retries=True)
    pattern, shared = re.compile("public/default/.*"), ConsumerType.SHARED
    with pytest.raises(ValueError, match="no retry topic"):
        await client.subscribe(pattern, "s", type_=shared, dead_letters=retries)
    await publish(client, b"x")
    plain = await subscribe(client, dead_letters=TWICE)
    message = await come(plain)
    with pytest.raises(ValueError, match="retries=True"):
        await plain.reconsume_later(message, 1)


async def test_receive_batch_returns_when_it_is_full_or_the_time_is_over(
    world: World, client: Client
) -> None:
    await publish(client, *[b"%d" % number * 100 for number in range(10)])
    consumer = await subscribe(client)
    sizes = [
        len(await consumer.receive_batch(4, timeout_seconds=5)),
        len(await consumer.receive_batch(100, bytes_max=250, timeout_seconds=5)),
        len(await consumer.receive_batch(100, timeout_seconds=5)),
    ]
    assert sizes == [4, 3, 3]
    begin = world.simulation.now
    assert await consumer.receive_batch(1, timeout_seconds=5) == []
    assert 5 <= world.simulation.now - begin < 6
    with pytest.raises(ValueError, match="at least one"):
        await consumer.receive_batch(0)
    waiting = asyncio.ensure_future(consumer.receive_batch(2, timeout_seconds=60))
    await publish(client, b"one")
    await consumer.close()
    assert [one.payload for one in await waiting] == [b"one"]
    with pytest.raises(ClientError):
        await consumer.receive_batch(1)
