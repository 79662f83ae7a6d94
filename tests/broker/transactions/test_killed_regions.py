"""Consume, transform, produce in transactions while the region is killed again and again: exactly once, or not at
all."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from emulator.client import EARLIEST, Client, ClientError, ConsumerType, InitialPosition
from tests.broker.regions import Regions, regions

MESSAGES = 40
PATIENCE_SECONDS = 90


async def _process(world: Regions, chance: random.Random, done: asyncio.Event) -> None:
    """One worker's run: receive a message, write its result, acknowledge it in one transaction; some are aborted."""
    while not done.is_set():
        try:
            async with world.client("us") as client:
                await _work(client, chance, done)
        except (ClientError, TimeoutError):
            continue  # after any error the next run starts afresh


async def _work(client: Client, chance: random.Random, done: asyncio.Event) -> None:
    consumer = await client.subscribe(
        "inbox", "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
    )
    producer = await client.producer("outbox")
    while not done.is_set():
        async with asyncio.timeout(2):
            message = await consumer.receive()
        transaction = await client.new_transaction(timeout_seconds=5)
        await producer.send(b"result of " + message.payload, transaction=transaction)
        await consumer.acknowledge(message, transaction=transaction)
        if chance.random() < 0.2:
            await transaction.abort()
        else:
            await transaction.commit()


async def _results(world: Regions) -> Counter[bytes]:
    async with world.client("us") as client:
        reader = await client.reader("outbox", EARLIEST)
        found: Counter[bytes] = Counter()
        while await reader.has_message():
            found[(await reader.receive()).payload] += 1
        return found


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_every_message_is_processed_once_despite_kills(seed: int) -> None:
    expected = Counter({b"result of %d" % number: 1 for number in range(MESSAGES)})

    async def scenario() -> None:
        chance, done = random.Random(seed), asyncio.Event()
        async with asyncio.timeout(PATIENCE_SECONDS), regions("us", state_checkpoint_entries=7) as world:
            async with world.client("us") as client:
                inbox = await client.producer("inbox")
                for number in range(MESSAGES):
                    await inbox.send(b"%d" % number)
            workers = [
                asyncio.ensure_future(_process(world, random.Random(seed * 10 + one), done))
                for one in range(2)
            ]
            for _ in range(4):
                before = sum((await _results(world)).values())
                while sum((await _results(world)).values()) < min(before + 4, MESSAGES):
                    await asyncio.sleep(0)
                for _ in range(chance.randrange(50)):
                    await asyncio.sleep(0)
                await world.crash("us")
                await world.start("us")
            while (found := await _results(world)) != expected:
                assert all(count == 1 for count in found.values()), found
                await asyncio.sleep(0)
            done.set()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    asyncio.run(scenario())
