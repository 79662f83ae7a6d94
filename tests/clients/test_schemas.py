"""Schemas with real clients: they encode and decode with them, and look up those that they do not know."""

from __future__ import annotations

import pytest

from tests.clients.driving import Failed
from tests.clients.harness import Scene, case, clients

pytestmark = [pytest.mark.real, pytest.mark.scene("us", "ap", clusters={"us": "america", "ap": "asia"})]
"""Two regions that share messages and no schemas."""
NEW = {"id": "new", "note": "new"}


def read_of_old(client: str, version: str) -> dict[str, str]:
    """A message that was written before the field `note` existed. The Go client decodes with the writer's schema
    alone."""
    return {"id": "old", "version": version} | ({} if client == "go" else {"note": "none"})


async def produce(scene: Scene, region: str, fields: str, *payloads: str) -> None:
    key = f"{region} {fields}"
    await scene.program.producer(key=key, client=region, fields=fields)
    await scene.program.send(*payloads, key=key)
    await scene.program.ask("close", key=key)


async def read(scene: Scene, region: str, fields: str, count: int) -> list[dict[str, str]]:
    key = f"c {region} {fields}"
    subscription = f"s{region}{len(fields)}"
    await scene.program.subscribe(key=key, client=region, subscription=subscription, fields=fields)
    return [await scene.program.message(key) for _ in range(count)]


@clients("rust")
async def test_schemas_evolve_and_incompatible_ones_are_rejected(scene: Scene) -> None:
    await produce(scene, "us", "id", "old")
    await produce(scene, "us", "id,note=none", "new")
    for incompatible in (produce(scene, "us", "number", "never"), read(scene, "us", "id,price", 1)):
        with pytest.raises(Failed) as rejection:
            await incompatible
        assert rejection.value.name == "IncompatibleSchema"
    expected = [read_of_old(scene.client, "0"), NEW | {"version": "1"}]
    assert await read(scene, "us", "id,note=none", 2) == expected


@clients("rust")
async def test_another_cluster_gives_the_same_schemas_by_its_own_numbers(scene: Scene) -> None:
    await produce(scene, "ap", "id,note=none", "first")
    first = {"id": "first", "note": "first", "version": "0"}
    assert await read(scene, "ap", "id,note=none", 1) == [first]
    await produce(scene, "us", "id", "old")
    await produce(scene, "us", "id,note=none", "new")
    messages = [await scene.program.message("c ap id,note=none") for _ in range(2)]
    assert messages == [read_of_old(scene.client, "1"), NEW | {"version": "0"}]


@pytest.mark.parametrize("client", [case("java")])
async def test_a_consumer_with_auto_consume_takes_the_schema_of_each_message(scene: Scene) -> None:
    await produce(scene, "us", "id", "old")
    await produce(scene, "us", "id,note=none", "new")
    assert await read(scene, "ap", "*", 2) == [{"id": "old", "version": "0"}, NEW | {"version": "1"}]


@pytest.mark.parametrize("client", [case("java")])
async def test_a_producer_with_auto_produce_takes_the_schema_of_the_topic(scene: Scene) -> None:
    await produce(scene, "us", "id", "old")
    await produce(scene, "us", "*", "\x06new")  # as Avro writes it
    expected = [{"id": "old", "version": "0"}, {"id": "new", "version": "0"}]
    assert await read(scene, "us", "id", 2) == expected
