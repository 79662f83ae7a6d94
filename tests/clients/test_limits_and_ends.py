"""Errors of real clients at a limit, at a full backlog, and at the end of a topic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from emulator.broker.region import Region
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, Quota, QuotaAction, QuotaKind
from emulator.core.policies.limits import MAX_CONSUMERS, MAX_PRODUCERS, PUBLISH_RATE
from emulator.model.stored_keys import NamespacePath
from tests.broker.regions import FAST, until
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, case, driver, regions

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("client", [case(one) for one in CLIENTS]),
]

ORDERS = "persistent://public/default/orders"
NAMESPACE = NamespacePath("public/default")
OUTCOME_SECONDS = 40


@contextlib.asynccontextmanager
async def one_client(client: str) -> AsyncIterator[tuple[Region, Program]]:
    settings = replace(FAST, housekeeping_interval_ms=20)
    async with regions("us", settings=settings) as world, driver(client) as program:
        url = f"pulsar://127.0.0.1:{world.ports['us']}"
        await program.ask("client", key="client", url=url, timeout_ms=5_000)
        async with asyncio.timeout(OUTCOME_SECONDS):
            yield world.running["us"], program


async def refused(program: Program, verb: str, **arguments: object) -> str:
    """Return the client's error: Go has no names of its own for most errors, and uses the region's."""
    with pytest.raises(Failed) as failed:
        await program.ask(verb, **arguments)
    return str(failed.value)


async def test_a_full_backlog_fails_producers_and_lets_them_in_again(client: str) -> None:
    async with one_client(client) as (region, program):
        await program.ask("subscribe", client="client", key="c", topic="orders", subscription="s")
        await program.ask("producer", client="client", key="p", topic="orders")
        for _ in range(3):
            await program.ask("send", key="p", payload="x" * 10_000)
        quota = {QuotaKind.SIZE: Quota(15_000, -1, QuotaAction.EXCEPTION)}
        await region.policies.set(NAMESPACE, BACKLOG_QUOTAS, quota)
        name = await refused(program, "producer", client="client", key="q", topic="orders")
        assert "Quota" in name or "quota" in name, name
        topic = await region.directory.acquire(ORDERS, OpenMode.EXISTING)
        await region.housekeeper.truncate(topic)
        await until(lambda: topic.quota_refusal is None, 30)
        await program.ask("producer", client="client", key="r", topic="orders")
        await program.ask("send", key="r", payload="after")


async def test_the_end_of_a_terminated_topic(client: str) -> None:
    """Earlier messages are received; no later one is sent."""
    async with one_client(client) as (region, program):
        await program.ask("subscribe", client="client", key="c", topic="orders", subscription="s")
        await program.ask("producer", client="client", key="p", topic="orders")
        await program.ask("send", key="p", payload="last")
        topic = await region.directory.acquire(ORDERS, OpenMode.EXISTING)
        await topic.ending.terminate()
        assert (await program.ask("receive", key="c", timeout_ms=10_000))["payload"] == "last"
        name = await refused(program, "producer", client="client", key="q", topic="orders")
        assert "Terminated" in name, name
        await refused(program, "send", key="p", payload="too late")


async def test_a_topic_is_full(client: str) -> None:
    async with one_client(client) as (region, program):
        await region.policies.set(NAMESPACE, MAX_PRODUCERS, 1)
        await region.policies.set(NAMESPACE, MAX_CONSUMERS, 1)
        await program.ask("producer", client="client", key="p", topic="orders")
        await program.ask("subscribe", client="client", key="c", topic="orders", subscription="s")
        await refused(program, "producer", client="client", key="q", topic="orders")
        await refused(program, "subscribe", client="client", key="d", topic="orders", subscription="t")
        await program.ask("send", key="p", payload="x")
        assert (await program.ask("receive", key="c", timeout_ms=10_000))["payload"] == "x"


async def test_who_publishes_too_fast_goes_on_more_slowly(client: str) -> None:
    async with one_client(client) as (region, program):
        await region.policies.set(NAMESPACE, PUBLISH_RATE, RateLimit(10, 0, 1))
        await program.ask("producer", client="client", key="p", topic="orders")
        for number in range(15):
            await program.ask("send", key="p", payload=str(number))
        topic = await region.directory.acquire(ORDERS, OpenMode.EXISTING)
        assert topic.stored_end == 15
