"""Schemas over the admin API, with the requests of Pulsar's tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.client import InitialPosition, Schema, SchemaType
from emulator.core.policies.schemas import SCHEMA_COMPATIBILITY, SCHEMA_UPDATES
from emulator.core.schemas.compatibility import CompatibilityStrategy
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import TopicName
from emulator.simulation.world import World
from tests.schemas_made import FIRST, RENAMED, WITH_DEFAULT, key_value, native

TOPIC = "persistent://public/default/orders"
PATH = "/admin/v2/schemas/public/default/orders"
TEXT = {"type": "STRING", "schema": "", "properties": None}


def payload(schema: Schema) -> dict[str, Any]:
    return {"type": schema.type.name, "schema": schema.data.decode(), "properties": dict(schema.properties)}


async def admin_request(w: World, method: str, target: str, body: object = None) -> tuple[int, Any]:
    answer = await w.ask_admin("us", method, PATH + target, body)
    return answer.status, json.loads(answer.body or b"null")


async def test_a_schema_is_registered_read_and_deleted(world: World) -> None:
    assert await admin_request(world, "GET", "/schema") == (404, {"reason": "Schema not found"})
    assert await admin_request(world, "POST", "/schema", TEXT) == (200, {"version": {"version": 0}})
    status, found = await admin_request(world, "GET", "/schema")
    assert (status, found.pop("timestamp") > 0) == (200, True)
    assert found == {"version": 0, "type": "STRING", "data": "", "properties": {}}
    assert (await admin_request(world, "GET", "/schema/0"))[0] == 200
    assert (await admin_request(world, "GET", "/schema/1"))[0] == 404
    assert (await admin_request(world, "GET", "/schema/x"))[0] == 404
    assert await admin_request(world, "DELETE", "/schema") == (200, {"version": 1})
    assert (await admin_request(world, "GET", "/schema"))[0] == 404
    assert (await admin_request(world, "GET", "/schema/1")) == (404, {"reason": "Schema is deleted"})
    assert await admin_request(world, "GET", "/schemas") == (200, {"getSchemaResponses": []})
    assert await admin_request(world, "POST", "/schema", TEXT) == (200, {"version": {"version": 2}})


async def test_versions_and_compatibility_are_returned(world: World) -> None:
    for schema in (FIRST, WITH_DEFAULT):
        await admin_request(world, "POST", "/schema", payload(schema))
    status, found = await admin_request(world, "POST", "/schema", payload(RENAMED))
    assert status == 409
    assert "version 1" in found["reason"]
    _, listed = await admin_request(world, "GET", "/schemas")
    assert [one["version"] for one in listed["getSchemaResponses"]] == [0, 1]
    _, numbers = await admin_request(world, "GET", "/metadata")
    assert numbers["info"] == numbers["index"][-1] == {"ledgerId": -1, "entryId": -1, "version": 1}
    assert len(numbers["index"]) == 2
    assert await admin_request(world, "POST", "/version", payload(FIRST)) == (200, {"version": 0})
    assert await admin_request(world, "POST", "/version", payload(RENAMED)) == (200, {"version": -1})
    for schema, fits in ((FIRST, True), (RENAMED, False)):
        assert await admin_request(world, "POST", "/compatibility", payload(schema)) == (
            202,
            {"compatibility": fits, "schemaCompatibilityStrategy": "FULL"},
        )


async def test_administrators_may_register_schemas_where_clients_may_not(world: World) -> None:
    region = world.regions["us"].broker
    assert region is not None
    place = NamespacePath("public/default")
    await region.policies.set(place, SCHEMA_UPDATES, False)
    assert (await admin_request(world, "POST", "/schema", payload(FIRST)))[0] == 200
    producer = await world.client("us").producer(TOPIC, schema=FIRST)
    await producer.send(b"x")
    consumer = await world.client("us").subscribe(
        TOPIC, "s", initial_position=InitialPosition.EARLIEST, schema=FIRST
    )
    assert (await consumer.receive()).schema_version == bytes(8)
    await region.policies.set(place, SCHEMA_COMPATIBILITY, CompatibilityStrategy.ALWAYS_INCOMPATIBLE)
    assert (await admin_request(world, "POST", "/schema", payload(WITH_DEFAULT)))[0] == 409


async def test_a_key_value_schema_is_shown_as_its_halves(world: World) -> None:
    pair = key_value(Schema(SchemaType.STRING), FIRST)

    await world.client("us").producer(TOPIC, schema=pair)
    _, found = await admin_request(world, "GET", "/schema")
    assert json.loads(found["data"]) == {"key": "", "value": json.loads(FIRST.data)}
    again = {"type": "KEY_VALUE", "schema": found["data"], "properties": found["properties"]}
    assert await admin_request(world, "POST", "/schema", again) == (200, {"version": {"version": 0}})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (None, 400),
        ([], 400),
        ({"type": "NOVEL"}, 400),
        ({"type": "AUTO_CONSUME", "schema": ""}, 400),
        ({"type": "STRING", "schema": 5}, 400),
        ({"type": "STRING", "schema": "", "properties": {"a": 1}}, 400),
        ({"type": "KEY_VALUE", "schema": "{}"}, 422),
        ({"type": "AVRO", "schema": "{"}, 409),
        ({"type": "AVRO", "schema": '{"type":"array","items":' * 3_000 + '"int"' + "}" * 3_000}, 409),
        (payload(native("Order", "Item")), 409),
    ],
    ids=lambda one: str(one)[:20],
)
async def test_an_invalid_schema_is_refused_and_not_stored(world: World, body: object, status: int) -> None:
    for target in ("/schema", "/version", "/compatibility"):
        found, said = await admin_request(world, "POST", target, body)
        assert found == status
        assert said["reason"]
    assert (await admin_request(world, "GET", "/schema"))[0] == 404


async def test_a_deleted_topic_has_no_schema_when_it_is_created_again(world: World) -> None:
    client = world.client("us")
    await client.producer(TOPIC, schema=FIRST)
    await client.close()
    answer = await world.ask_admin("us", "DELETE", "/admin/v2/persistent/public/default/orders")
    assert answer.status == 204
    assert (await admin_request(world, "GET", "/schema"))[0] == 404
    producer = await world.client("us").producer(TOPIC, schema=Schema(SchemaType.INT64))
    assert producer.schema_version == (2).to_bytes(8, "big")
    region = world.regions["us"].broker
    assert region is not None
    assert region.schemas.of(TopicName.parse(TOPIC)).numbers() == [0, 1, 2]
    answer = await world.ask_admin("us", "DELETE", "/admin/v2/namespaces/public/default?force=true")
    assert answer.status == 204
    assert region.schemas.newest(TopicName.parse(TOPIC)) is None
