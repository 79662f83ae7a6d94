"""Schemas by the admin API, as tools ask for them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from emulator.client import InitialPosition, Schema, SchemaType
from emulator.core.policies.schemas import SCHEMA_COMPATIBILITY, SCHEMA_UPDATES
from emulator.core.schemas.compatibility import Strategy
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import TopicName
from emulator.simulation.world import World, world
from tests.schemas_made import FIRST, RENAMED, WITH_DEFAULT, key_value, native

TOPIC = "persistent://public/default/orders"
PATH = "/admin/v2/schemas/public/default/orders"
TEXT = {"type": "STRING", "schema": "", "properties": None}


def payload(schema: Schema) -> dict[str, Any]:
    return {"type": schema.type.name, "schema": schema.data.decode(), "properties": dict(schema.properties)}


def play(story: Callable[[World], Awaitable[None]]) -> None:
    with world("us") as w:

        async def whole() -> None:
            await w.ready()
            await story(w)

        w.play(whole())


async def asked(w: World, method: str, target: str, body: object = None) -> tuple[int, Any]:
    answer = await w.ask_admin("us", method, PATH + target, body)
    return answer.status, json.loads(answer.body or b"null")


def test_a_schema_is_registered_read_and_deleted() -> None:
    async def story(w: World) -> None:
        assert await asked(w, "GET", "/schema") == (404, {"reason": "Schema not found"})
        assert await asked(w, "POST", "/schema", TEXT) == (200, {"version": {"version": 0}})
        status, found = await asked(w, "GET", "/schema")
        assert (status, found.pop("timestamp") > 0) == (200, True)
        assert found == {"version": 0, "type": "STRING", "data": "", "properties": {}}
        assert (await asked(w, "GET", "/schema/0"))[0] == 200
        assert (await asked(w, "GET", "/schema/1"))[0] == 404
        assert (await asked(w, "GET", "/schema/x"))[0] == 404
        assert await asked(w, "DELETE", "/schema") == (200, {"version": 1})
        assert (await asked(w, "GET", "/schema"))[0] == 404
        assert (await asked(w, "GET", "/schema/1")) == (404, {"reason": "Schema is deleted"})
        assert await asked(w, "GET", "/schemas") == (200, {"getSchemaResponses": []})
        assert await asked(w, "POST", "/schema", TEXT) == (200, {"version": {"version": 2}})

    play(story)


def test_versions_and_compatibility_are_told() -> None:
    async def story(w: World) -> None:
        for schema in (FIRST, WITH_DEFAULT):
            await asked(w, "POST", "/schema", payload(schema))
        status, found = await asked(w, "POST", "/schema", payload(RENAMED))
        assert status == 409
        assert "version 1" in found["reason"]
        _, listed = await asked(w, "GET", "/schemas")
        assert [one["version"] for one in listed["getSchemaResponses"]] == [0, 1]
        _, numbers = await asked(w, "GET", "/metadata")
        assert numbers["info"] == numbers["index"][-1] == {"ledgerId": -1, "entryId": -1, "version": 1}
        assert len(numbers["index"]) == 2
        assert await asked(w, "POST", "/version", payload(FIRST)) == (200, {"version": 0})
        assert await asked(w, "POST", "/version", payload(RENAMED)) == (200, {"version": -1})
        for schema, fits in ((FIRST, True), (RENAMED, False)):
            assert await asked(w, "POST", "/compatibility", payload(schema)) == (
                202,
                {"compatibility": fits, "schemaCompatibilityStrategy": "FULL"},
            )

    play(story)


def test_where_clients_may_bring_no_schema_whoever_administers_may() -> None:
    async def story(w: World) -> None:
        region = w.regions["us"].broker
        assert region is not None
        place = NamespacePath("public/default")
        await region.policies.set(place, SCHEMA_UPDATES, False)
        assert (await asked(w, "POST", "/schema", payload(FIRST)))[0] == 200
        producer = await w.client("us").producer(TOPIC, schema=FIRST)
        await producer.send(b"x")
        consumer = await w.client("us").subscribe(
            TOPIC, "s", initial_position=InitialPosition.EARLIEST, schema=FIRST
        )
        assert (await consumer.receive()).schema_version == bytes(8)
        await region.policies.set(place, SCHEMA_COMPATIBILITY, Strategy.ALWAYS_INCOMPATIBLE)
        assert (await asked(w, "POST", "/schema", payload(WITH_DEFAULT)))[0] == 409

    play(story)


def test_a_key_value_schema_is_shown_as_its_halves() -> None:
    pair = key_value(Schema(SchemaType.STRING), FIRST)

    async def story(w: World) -> None:
        await w.client("us").producer(TOPIC, schema=pair)
        _, found = await asked(w, "GET", "/schema")
        assert json.loads(found["data"]) == {"key": "", "value": json.loads(FIRST.data)}
        again = {"type": "KEY_VALUE", "schema": found["data"], "properties": found["properties"]}
        assert await asked(w, "POST", "/schema", again) == (200, {"version": {"version": 0}})

    play(story)


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
def test_what_is_no_schema_is_refused_and_leaves_nothing(body: object, status: int) -> None:
    async def story(w: World) -> None:
        for target in ("/schema", "/version", "/compatibility"):
            found, said = await asked(w, "POST", target, body)
            assert found == status
            assert said["reason"]
        assert (await asked(w, "GET", "/schema"))[0] == 404

    play(story)


def test_a_topic_that_is_deleted_has_no_schema_when_it_comes_back() -> None:
    async def story(w: World) -> None:
        client = w.client("us")
        await client.producer(TOPIC, schema=FIRST)
        await client.close()
        answer = await w.ask_admin("us", "DELETE", "/admin/v2/persistent/public/default/orders")
        assert answer.status == 204
        assert (await asked(w, "GET", "/schema"))[0] == 404
        producer = await w.client("us").producer(TOPIC, schema=Schema(SchemaType.INT64))
        assert producer.schema_version == (2).to_bytes(8, "big")
        region = w.regions["us"].broker
        assert region is not None
        assert region.schemas.of(TopicName.parse(TOPIC)).numbers() == [0, 1, 2]
        answer = await w.ask_admin("us", "DELETE", "/admin/v2/namespaces/public/default?force=true")
        assert answer.status == 204
        assert region.schemas.newest(TopicName.parse(TOPIC)) is None

    play(story)
