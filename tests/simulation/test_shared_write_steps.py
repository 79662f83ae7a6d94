"""A region dies after every single write that many transactions share: each counts as a whole or not at all, and the
responses to its client hold."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from emulator.client import Client, ClientError, Producer
from emulator.simulation.world import World, world
from tests.simulation.test_transaction_steps import Killed

TRANSACTIONS = 12
MESSAGES = 2
TIMEOUT_SECONDS = 120.0
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


def client_in(w: World) -> Client:
    host = w.client_host("program", "us")
    host.network.loop = w.simulation.driver.loop
    return w.client_on(host, ("us",))


async def transact(client: Client, outboxes: list[Producer], number: int) -> str:
    """Return what the client knows about each in the end. It aborts every third one itself."""
    try:
        transaction = await client.new_transaction(TIMEOUT_SECONDS)
        sends = [
            outboxes[(number + index) % 2].send(b"%d/%d" % (number, index), transaction=transaction)
            for index in range(MESSAGES)
        ]
        await asyncio.gather(*sends)
        if number % 3 == 0:
            await transaction.abort()
            return ABORTED
    except ClientError:
        return ABORTED  # no client commits it: at the latest it times out
    try:
        await transaction.commit()
    except ClientError as failure:
        return ABORTED if failure.definite else UNKNOWN
    return COMMITTED


async def readable(client: Client, topic: str) -> set[bytes]:
    consumer = await client.reader(topic, inclusive=True)
    await consumer.seek(0)
    found = set()
    while await consumer.has_message():
        found.add((await consumer.receive()).payload)
    await consumer.close()
    return found


def whole(number: int) -> set[bytes]:
    return {b"%d/%d" % (number, index) for index in range(MESSAGES)}


def deaths() -> tuple[int, set[str]]:
    """Return the number of steps, and every response that clients received."""
    seen: set[str] = set()
    for after in count(1):
        with world("us", seed=after) as w:
            killed = Killed(w, after)

            async def scenario(w: World = w, killed: Killed = killed) -> None:
                client = client_in(w)
                outboxes = [await client.producer(topic) for topic in ("one", "other")]
                await w.quiet()
                killed.arm()
                outcomes = await asyncio.gather(
                    *(transact(client, outboxes, number) for number in range(TRANSACTIONS))
                )
                await w.quiet()
                killed.disarm()
                await w.ready()
                await asyncio.sleep(TIMEOUT_SECONDS)
                await w.quiet()
                found = await readable(client, "one") | await readable(client, "other")
                for number, outcome in enumerate(outcomes):
                    shown = found & whole(number)
                    assert shown in (set(), whole(number)), f"{number} counts in part: {shown}"
                    if outcome != UNKNOWN:
                        assert bool(shown) is (outcome == COMMITTED), (
                            f"response to {number}: {outcome}: {shown}"
                        )
                seen.update(outcomes)

            w.play(scenario())
            if killed.stored is None:
                return after - 1, seen
    raise AssertionError("not reached")


@pytest.mark.long
def test_many_transactions_that_share_writes_count_each_as_a_whole_behind_whatever_write_their_region_dies() -> (
    None
):
    steps, seen = deaths()
    assert 6 <= steps < 2 * TRANSACTIONS, f"{steps} writes: {TRANSACTIONS} transactions share them"
    assert seen == {COMMITTED, ABORTED}, "every lost response is requested again"
