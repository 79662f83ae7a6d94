"""Schemas with real clients: they encode and decode with them, and look up those that they do not know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.broker.regions import FAST, Regions
from tests.clients.driving import Failed, Program
from tests.clients.telling import CLIENTS, case, driver, regions

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize(
        "client",
        [case(one) for one in CLIENTS if one != "rust"],
    ),
]

OUTCOME_SECONDS = 60


def read_of_old(client: str, version: str) -> dict[str, str]:
    """A message that was written before the field `note` existed. The Go client decodes with the writer's schema
    alone."""
    return {"id": "old", "version": version} | ({} if client == "go" else {"note": "none"})


@contextlib.asynccontextmanager
async def clusters(client: str) -> AsyncIterator[tuple[Regions, Program]]:
    """Two regions that share messages and no schemas, and a client of each."""
    async with (
        regions("us", "ap", settings=FAST, clusters={"us": "america", "ap": "asia"}) as world,
        driver(client) as program,
    ):
        async with asyncio.timeout(OUTCOME_SECONDS):
            for name, port in world.ports.items():
                url = f"pulsar://127.0.0.1:{port}"
                await program.ask("client", key=name, url=url, timeout_ms=30_000)
        yield world, program


async def produce(program: Program, region: str, fields: str, *payloads: str) -> None:
    async with asyncio.timeout(OUTCOME_SECONDS):
        key = f"{region} {fields}"
        await program.ask("producer", client=region, key=key, topic="orders", fields=fields)
        for payload in payloads:
            await program.ask("send", key=key, payload=payload)
        await program.ask("close", key=key)


async def read(program: Program, region: str, fields: str, count: int) -> list[dict[str, str]]:
    async with asyncio.timeout(OUTCOME_SECONDS):
        key = f"c {region} {fields}"
        await program.ask(
            "subscribe",
            client=region,
            key=key,
            topic="orders",
            subscription=f"s{region}{len(fields)}",
            fields=fields,
        )
        return [await program.ask("receive", key=key, timeout_ms=20_000) for _ in range(count)]


async def test_schemas_evolve_and_what_does_not_fit_is_refused(client: str) -> None:
    async with clusters(client) as (_, program):
        await produce(program, "us", "id", "old")
        await produce(program, "us", "id,note=none", "new")
        with pytest.raises(Failed) as refused:
            await produce(program, "us", "number", "never")
        assert refused.value.name == "IncompatibleSchema"
        with pytest.raises(Failed) as refused:
            await read(program, "us", "id,price", 1)
        assert refused.value.name == "IncompatibleSchema"
        assert await read(program, "us", "id,note=none", 2) == [
            read_of_old(client, "0"),
            {"id": "new", "note": "new", "version": "1"},
        ]


async def test_another_cluster_gives_the_same_schemas_by_its_own_numbers(client: str) -> None:
    async with clusters(client) as (_, program):
        await produce(program, "ap", "id,note=none", "first")
        assert await read(program, "ap", "id,note=none", 1) == [
            {"id": "first", "note": "first", "version": "0"}
        ]
        await produce(program, "us", "id", "old")
        await produce(program, "us", "id,note=none", "new")
        async with asyncio.timeout(OUTCOME_SECONDS):
            came = [
                await program.ask("receive", key="c ap id,note=none", timeout_ms=20_000) for _ in range(2)
            ]
        assert came == [
            read_of_old(client, "1"),
            {"id": "new", "note": "new", "version": "0"},
        ]


async def test_a_consumer_takes_whatever_schema_a_message_has(client: str) -> None:
    if client != "java":
        pytest.skip("only the Java client offers AUTO_CONSUME")

    async with clusters(client) as (_, program):
        await produce(program, "us", "id", "old")
        await produce(program, "us", "id,note=none", "new")
        assert await read(program, "ap", "*", 2) == [
            {"id": "old", "version": "0"},
            {"id": "new", "note": "new", "version": "1"},
        ]


async def test_a_producer_takes_the_schema_that_the_topic_has(client: str) -> None:
    if client != "java":
        pytest.skip("only the Java client offers AUTO_PRODUCE")

    async with clusters(client) as (_, program):
        await produce(program, "us", "id", "old")
        await produce(program, "us", "*", "\x06new")  # as Avro writes it
        assert await read(program, "us", "id", 2) == [
            {"id": "old", "version": "0"},
            {"id": "new", "version": "0"},
        ]
