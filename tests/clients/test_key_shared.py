"""Key_Shared with real clients: each key at one consumer, in order, also when a consumer is killed."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.regions import FAST
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, case, driver, regions

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("client", [case(one) for one in CLIENTS]),
]
KEYS, ROUNDS = 20, 10
OUTCOME_SECONDS = 30


async def everything(consumer: Program, messages: int) -> list[tuple[str, int]]:
    """Receive `messages` messages; return (key, number) of each in order of arrival."""
    came = [await consumer.ask("receive", key="c", timeout_ms=10_000) for _ in range(messages)]
    return [(one["key"], int(one["payload"])) for one in came]


async def until_nothing_comes(consumer: Program) -> list[tuple[str, int]]:
    came = []
    while True:
        try:
            one = await consumer.ask("receive", key="c", timeout_ms=1_500)
        except Failed:
            return came
        came.append((one["key"], int(one["payload"])))


async def publish(program: Program) -> None:
    for number in range(KEYS * ROUNDS):
        await program.ask("send", key="p", payload=str(number), message_key=f"key-{number % KEYS}")


def check_order(came: list[tuple[str, int]]) -> None:
    for key in {key for key, _ in came}:
        numbers = [number for one, number in came if one == key]
        assert numbers == sorted(numbers), key


async def test_each_key_goes_to_one_consumer_in_order(client: str) -> None:
    async with (
        regions("us", settings=FAST) as world,
        driver(client) as one,
        driver(client) as other,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        for program in (one, other):
            url = f"pulsar://127.0.0.1:{world.ports['us']}"
            await program.ask("client", key="client", url=url, timeout_ms=30_000)
            await program.ask(
                "subscribe", client="client", key="c", topic="orders", subscription="s", type="KeyShared"
            )
        await one.ask("producer", client="client", key="p", topic="orders")
        await publish(one)
        of_one, of_other = await asyncio.gather(until_nothing_comes(one), until_nothing_comes(other))
        assert sorted(number for _, number in of_one + of_other) == list(range(KEYS * ROUNDS))
        assert not {key for key, _ in of_one} & {key for key, _ in of_other}
        assert of_one
        assert of_other
        check_order(of_one)
        check_order(of_other)


async def test_the_keys_of_a_consumer_that_is_killed_go_on_at_the_other_one(client: str) -> None:
    async with (
        regions("us", settings=FAST) as world,
        driver(client) as one,
        driver(client) as doomed,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        for program in (one, doomed):
            url = f"pulsar://127.0.0.1:{world.ports['us']}"
            await program.ask("client", key="client", url=url, timeout_ms=30_000)
            await program.ask(
                "subscribe", client="client", key="c", topic="orders", subscription="s", type="KeyShared"
            )
        await one.ask("producer", client="client", key="p", topic="orders")
        await publish(one)
        had = await everything(doomed, 3)
        doomed.kill()
        came = await until_nothing_comes(one)
        check_order(came)
        missing = set(range(KEYS * ROUNDS)) - {number for _, number in came}
        assert missing <= {number for _, number in had}
