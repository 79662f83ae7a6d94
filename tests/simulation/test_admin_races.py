"""Admin calls that race with the deletion of their object: each succeeds or returns Pulsar's error for a missing one.
The store works, and no response says that it is unavailable."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from emulator.simulation.disk import DiskFaults
from emulator.simulation.world import World, world

NAMESPACE = "/admin/v2/namespaces/public/races"
TOPIC = "/admin/v2/persistent/public/races/one"
MANY = "/admin/v2/persistent/public/races/many"
BILLING = f"{TOPIC}/subscription/billing"
SCHEMA = "/admin/v2/schemas/public/races/one/schema"
TEXT = {"type": "STRING", "schema": "", "properties": None}
Request = tuple[str, str, Any]
THERE: list[Request] = [
    ("PUT", NAMESPACE, None),
    ("PUT", TOPIC, None),
    ("PUT", f"{MANY}/partitions", 2),
    ("PUT", BILLING, None),
    ("POST", SCHEMA, TEXT),
]
CALLS: list[Request] = [
    ("POST", f"{BILLING}/resetcursor", {"ledgerId": -1, "entryId": -1}),
    ("POST", f"{BILLING}/skip_all", None),
    ("POST", f"{BILLING}/skip/1", None),
    ("POST", f"{BILLING}/expireMessages/1", None),
    ("PUT", f"{BILLING}/properties", {"a": "b"}),
    ("PUT", f"{TOPIC}/subscription/other", None),
    ("PUT", f"{TOPIC}/unload", None),
    ("POST", f"{TOPIC}/terminate", None),
    ("DELETE", f"{TOPIC}/truncate", None),
    ("PUT", f"{TOPIC}/properties", {"a": "b"}),
    ("POST", f"{TOPIC}/maxConsumers", 3),
    ("POST", f"{MANY}/partitions", 5),
    ("DELETE", f"{MANY}/partitions", None),
    ("POST", SCHEMA, TEXT),
    ("POST", f"{NAMESPACE}/clearBacklog", None),
    ("PUT", f"{NAMESPACE}/unload", None),
    ("POST", f"{NAMESPACE}/messageTTL", 50),
]
DELETIONS: list[Request] = [
    ("DELETE", BILLING, None),
    ("DELETE", f"{TOPIC}?force=true", None),
    ("DELETE", f"{MANY}/partitions?force=true", None),
    ("DELETE", f"{NAMESPACE}?force=true", None),
]
AFTER_SECONDS = (0.0, 0.001, 0.002, 0.005, 0.01)


def answers(seed: int) -> list[tuple[str, str, int, bytes]]:
    """Return the responses to some of the calls and two deletions, all at about the same time."""
    chance, found = Random(seed), []

    async def call(w: World, method: str, path: str, body: Any, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        answer = await w.ask_admin("us", method, path, body)
        found.append((method, path, answer.status, answer.body))

    async def scenario() -> None:
        await w.ready()
        for one in THERE:
            await call(w, *one)
        producer = await w.client("us").producer("persistent://public/races/one")
        for _ in range(3):
            await producer.send(b"x")
        await producer.close()
        assert all(status // 100 == 2 for _, _, status, _ in found), found
        racing = [*chance.sample(CALLS, 9), *chance.sample(DELETIONS, 2)]
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(call(w, *one, chance.choice(AFTER_SECONDS) * chance.random()) for one in racing)
            )

    with world("us", seed=seed, disk=DiskFaults()) as w:
        w.play(scenario())
    return found


@pytest.mark.parametrize("first_seed", range(0, 40, 10))
def test_a_call_that_races_with_a_deletion_names_what_does_not_exist(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        for method, path, status, body in answers(seed):
            assert status in (200, 204, 404, 409, 412), (seed, method, path, status, body)
