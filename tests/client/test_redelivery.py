"""A consumer that requests redelivery of everything continues, however full its queue was."""

from __future__ import annotations

import asyncio

from emulator.client import ConsumerType, InitialPosition
from tests.broker.regions import regions, until

MESSAGES = 12
ROOM = 4


async def test_a_full_consumer_that_throws_its_messages_away_is_given_them_again() -> None:
    async with asyncio.timeout(20), regions("us") as world, world.client("us") as client:
        producer = await client.producer("orders")
        for number in range(MESSAGES):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe(
            "orders",
            "s",
            type_=ConsumerType.FAILOVER,
            initial_position=InitialPosition.EARLIEST,
            receiver_queue_size=ROOM,
        )
        for _ in range(3):
            await until(lambda: len(consumer.waiting) == ROOM)
            consumer.redeliver_unacknowledged()
        assert [(await consumer.receive()).payload for _ in range(MESSAGES)] == [
            b"%d" % number for number in range(MESSAGES)
        ]
