"""What a consumer acknowledged beyond a gap is not delivered again in another region."""

from __future__ import annotations

import asyncio

from emulator.client import Consumer, ConsumerType, InitialPosition, Message
from tests.broker.regions import regions, until
from tests.broker.replication.test_replication import TOPIC
from tests.broker.subscription.test_replicated_subscriptions import backlog

ON = {"replicate_individual_acks": True, "individual_ack_interval_ms": 20}
SHARED = ConsumerType.SHARED


async def received(consumer: Consumer, count: int) -> list[Message]:
    return [await asyncio.wait_for(consumer.receive(), 10) for _ in range(count)]


async def test_one_message_left_unacknowledged_is_redelivered_alone() -> None:
    """2,000 messages, one of them unacknowledged: one redelivery after the fail-over."""
    async with regions("us", "eu", **ON) as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await us.subscribe(
            TOPIC, "s", type_=SHARED, initial_position=InitialPosition.EARLIEST, replicated=True
        )
        producer = await us.producer(TOPIC)
        await asyncio.gather(*[producer.send(b"%d" % number) for number in range(2_000)])
        messages = await received(consumer, 2_000)
        await consumer.acknowledge(*messages[:7], *messages[8:], confirmed=True)
        await until(lambda: backlog(world, "eu") == 1)
        await world.crash("us")
        again = await eu.subscribe(TOPIC, "s", type_=SHARED, replicated=True)
        assert [one.payload for one in await received(again, 1)] == [messages[7].payload]
