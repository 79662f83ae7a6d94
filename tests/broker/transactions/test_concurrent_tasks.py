"""Many concurrent tasks, several per key (the proposal's stress testing)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from emulator.client import ClientError, ExpiredTransaction
from tests.broker.regions import Regions, regions
from tests.broker.transactions.test_client_transactions import keyed, stored

KEYS, RIVALS, TRANSACTIONS = 25, 4, 6


class Told:
    """Responses to the transactions of tasks, by the message in each."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.finished: Counter[int] = Counter()


async def task(world: Regions, key: int, rival: int, told: Told) -> None:
    """Run one task; a fenced one ends (decision 0026)."""
    async with keyed(world, f"key-{key}") as client:
        producer = await client.producer("orders")
        for number in range(TRANSACTIONS):
            payload = b"%d %d %d" % (key, rival, number)
            try:
                transaction = await client.new_transaction()
                await producer.send(payload, transaction=transaction)
                await transaction.commit()
            except (ClientError, ExpiredTransaction) as problem:
                if problem.definite:
                    told.refused.add(payload)
                return
            told.committed.add(payload)
        told.finished[key] += 1


@pytest.mark.filterwarnings(
    "error:coroutine .* was never awaited:RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning"
)
async def test_of_many_tasks_that_race_for_keys_one_of_each_key_finishes_and_no_transaction_counts_in_part() -> (
    None
):
    told = Told()
    async with regions("us") as world, world.client("us") as reader:
        tasks = [task(world, key, rival, told) for rival in range(RIVALS) for key in range(KEYS)]
        await asyncio.gather(*tasks)
        found = Counter(await stored(reader, "orders"))
        loaded = world.running["us"].coordinators.loaded
        assert not any(coordinator.core.live for coordinator in loaded), "a transaction is open, or not over"
        assert sum(len(coordinator.keys.book.keys) for coordinator in loaded) == KEYS
    assert set(found.values()) == {1}
    assert told.committed <= found.keys()
    assert not told.refused & found.keys()
    assert all(told.finished[key] for key in range(KEYS)), told.finished
