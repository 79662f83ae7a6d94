"""Key_Shared with real clients: each key at one consumer, in order, also when a consumer is killed."""

from __future__ import annotations

import asyncio

import pytest

from tests.clients.driving import Failed
from tests.clients.harness import ClientProgram, Scene, clients

pytestmark = [pytest.mark.real, pytest.mark.scene(programs=2, seconds=30), clients()]
KEYS, ROUNDS = 20, 10


async def numbered(consumer: ClientProgram, timeout_ms: int) -> tuple[str, int]:
    """Receive a message; return its key and number."""
    message = await consumer.message(timeout_ms=timeout_ms)
    return message["key"], int(message["payload"])


async def until_nothing_comes(consumer: ClientProgram) -> list[tuple[str, int]]:
    received = []
    while True:
        try:
            received.append(await numbered(consumer, 1_500))
        except Failed:
            return received


async def publish(scene: Scene) -> None:
    """To two consumers."""
    for program in scene.programs:
        await program.subscribe(type="KeyShared")
    await scene.program.producer()
    for number in range(KEYS * ROUNDS):
        await scene.program.send(str(number), message_key=f"key-{number % KEYS}")


def check_order(received: list[tuple[str, int]]) -> None:
    for key in {key for key, _ in received}:
        numbers = [number for one, number in received if one == key]
        assert numbers == sorted(numbers), key


async def test_each_key_goes_to_one_consumer_in_order(scene: Scene) -> None:
    await publish(scene)
    one, other = await asyncio.gather(*map(until_nothing_comes, scene.programs))
    assert sorted(number for _, number in one + other) == list(range(KEYS * ROUNDS))
    assert not {key for key, _ in one} & {key for key, _ in other}
    for received in (one, other):
        assert received
        check_order(received)


async def test_the_keys_of_a_killed_consumer_continue_at_the_other_one(scene: Scene) -> None:
    await publish(scene)
    one, doomed = scene.programs
    had = [await numbered(doomed, 10_000) for _ in range(3)]
    doomed.kill()
    received = await until_nothing_comes(one)
    check_order(received)
    missing = set(range(KEYS * ROUNDS)) - {number for _, number in received}
    assert missing <= {number for _, number in had}
