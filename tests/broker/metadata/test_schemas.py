"""Schemas of a topic: registered, looked up by version, rejected, shared by the regions of a cluster."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest

from emulator.broker.metadata.schemas import SENTENCE_LENGTH_MAX
from emulator.broker.region import Region
from emulator.client import Client, ClientError, InitialPosition, Schema, SchemaType
from emulator.core.policies.declaration import Policy
from emulator.core.policies.schemas import (
    SCHEMA_AUTO_UPDATE,
    SCHEMA_COMPATIBILITY,
    SCHEMA_UPDATES,
    SCHEMA_VALIDATION,
)
from emulator.core.schemas.compatibility import CompatibilityStrategy
from emulator.errors import ServerError
from emulator.model.stored_keys import NamespacePath, SchemaPath, TopicPoliciesPath
from emulator.model.values import TopicName
from tests.broker.regions import regions, until
from tests.schemas_made import FIRST, RENAMED, STRING, WITH_DEFAULT, WITHOUT_DEFAULT, record

TOPIC = "persistent://public/default/orders"
NAME = TopicName.parse(TOPIC)
NAMESPACE = NamespacePath("public/default")
EARLIEST = InitialPosition.EARLIEST
AUTO_CONSUME = Schema(SchemaType.AUTO_CONSUME)


def version(number: int) -> bytes:
    return pack(">q", number)


async def set_policy(region: Region, policy: Policy[object], value: object) -> None:
    await region.policies.set(NAMESPACE, policy, value)


async def refused(attempt: object) -> str:
    """Return the message of an error that clients read as "incompatible"."""
    with pytest.raises(ClientError) as found:
        await attempt  # type: ignore[misc]
    assert found.value.code is ServerError.IncompatibleSchema
    return str(found.value)


async def test_a_producers_schema_gets_a_version_that_its_messages_contain() -> None:
    async with regions("us") as world, world.client("us") as client:
        assert await client.schema(TOPIC) is None
        one = await client.producer(TOPIC, schema=FIRST)
        same = await client.producer(TOPIC, schema=FIRST)
        newer = await client.producer(TOPIC, schema=WITH_DEFAULT)
        assert [each.schema_version for each in (one, same, newer)] == [version(0), version(0), version(1)]
        consumer = await client.subscribe(TOPIC, "s", initial_position=EARLIEST)
        for each in (one, newer):
            await each.send(b"x")
        said = [(await consumer.receive()).schema_version for _ in range(2)]
        assert said == [version(0), version(1)]
        assert await client.schema(TOPIC, version(0)) == (FIRST, version(0))
        assert await client.schema(TOPIC) == (WITH_DEFAULT, version(1))


async def test_a_requested_bytes_schema_is_registered_and_no_schema_is_not() -> None:
    """The Go client looks up the version that its own messages name."""
    async with regions("us") as world, world.client("us") as client:
        await client.producer(TOPIC)
        assert await client.schema(TOPIC) is None
        of_bytes = Schema(SchemaType.NONE, b"")
        producer = await client.producer(TOPIC, schema=of_bytes)
        assert producer.schema_version == version(0)
        assert await client.schema(TOPIC, version(0)) == (of_bytes, version(0))
        with pytest.raises(ClientError, match="Incompatible"):
            await client.producer(TOPIC, schema=STRING)


async def test_a_consumer_of_bytes_can_read_every_topic() -> None:
    """The Go client's table views send such a schema; the topic has messages, and no schema or another one."""
    async with regions("us") as world, world.client("us") as client:
        of_bytes = Schema(SchemaType.NONE, b"")
        await (await client.producer(TOPIC)).send(b"1")
        await client.subscribe(TOPIC, "first", schema=of_bytes)
        assert await client.schema(TOPIC) is None
        await client.producer(TOPIC, schema=STRING)
        await client.subscribe(TOPIC, "second", schema=of_bytes)


async def test_an_incompatible_schema_is_rejected_with_the_reason() -> None:
    async with regions("us") as world, world.client("us") as client:
        await client.producer(TOPIC, schema=FIRST)
        why = await refused(client.producer(TOPIC, schema=WITHOUT_DEFAULT))
        assert "version 0" in why
        assert "note" in why
        why = await refused(client.schema_version(TOPIC, STRING))
        assert "exists schema type AVRO, new schema type STRING" in why
        assert await client.schema(TOPIC) == (FIRST, version(0)), "the rejected request left nothing"


@pytest.mark.parametrize(
    ("strategy", "schema", "fits"),
    [
        (CompatibilityStrategy.ALWAYS_INCOMPATIBLE, WITH_DEFAULT, False),
        (CompatibilityStrategy.ALWAYS_COMPATIBLE, STRING, True),
        (CompatibilityStrategy.BACKWARD, WITHOUT_DEFAULT, False),
        (CompatibilityStrategy.FORWARD, WITHOUT_DEFAULT, True),
        (CompatibilityStrategy.FULL, WITH_DEFAULT, True),
        (CompatibilityStrategy.FULL_TRANSITIVE, RENAMED, False),
    ],
)
async def test_the_strategy_of_the_namespace_decides_until_the_topic_has_one(
    strategy: CompatibilityStrategy, schema: Schema, fits: bool
) -> None:
    async with regions("us") as world, world.client("us") as client:
        region = world.running["us"]
        await set_policy(region, SCHEMA_COMPATIBILITY, strategy)
        await client.producer(TOPIC, schema=FIRST)
        if fits:
            assert await client.schema_version(TOPIC, schema) == version(1)
        else:
            await refused(client.schema_version(TOPIC, schema))
        opposite = (
            CompatibilityStrategy.ALWAYS_INCOMPATIBLE if fits else CompatibilityStrategy.ALWAYS_COMPATIBLE
        )
        await region.policies.set(TopicPoliciesPath(TOPIC), SCHEMA_COMPATIBILITY, opposite)
        other = record("id", "note=", "more=") if fits else schema
        if fits:
            await refused(client.schema_version(TOPIC, other))
        else:
            assert await client.schema_version(TOPIC, other) == version(1)


async def test_the_older_policy_applies_where_the_newer_one_is_unset() -> None:
    async with regions("us") as world, world.client("us") as client:
        region = world.running["us"]
        await set_policy(region, SCHEMA_AUTO_UPDATE, "AutoUpdateDisabled")
        await client.producer(TOPIC, schema=FIRST)
        await refused(client.producer(TOPIC, schema=WITH_DEFAULT))
        await set_policy(region, SCHEMA_COMPATIBILITY, CompatibilityStrategy.FULL)
        await client.producer(TOPIC, schema=WITH_DEFAULT)
        await set_policy(region, SCHEMA_COMPATIBILITY, CompatibilityStrategy.UNDEFINED)
        assert region.schemas.strategy(NAME) is CompatibilityStrategy.ALWAYS_INCOMPATIBLE


async def test_where_updates_are_not_allowed_only_known_schemas_are_used() -> None:
    async with regions("us") as world, world.client("us") as client:
        region = world.running["us"]
        await client.producer(TOPIC, schema=FIRST)
        await set_policy(region, SCHEMA_UPDATES, False)
        assert (await client.producer(TOPIC, schema=FIRST)).schema_version == version(0)
        assert "auto updating is disabled" in await refused(client.producer(TOPIC, schema=WITH_DEFAULT))


async def test_where_schemas_are_enforced_a_producer_without_one_is_refused() -> None:
    async with regions("us") as world, world.client("us") as client:
        await set_policy(world.running["us"], SCHEMA_VALIDATION, True)
        await client.producer(TOPIC), "the topic has no schema yet"
        await client.producer(TOPIC, schema=FIRST)
        assert "SchemaValidationEnforced" in await refused(client.producer(TOPIC))


async def test_the_first_consumer_of_an_idle_topic_registers_its_schema() -> None:
    async with regions("us") as world, world.client("us") as client:
        await client.subscribe(TOPIC, "any", schema=AUTO_CONSUME)
        await client.subscribe(TOPIC, "s", schema=FIRST)
        assert await client.schema(TOPIC) == (FIRST, version(0))
        await client.subscribe(TOPIC, "newer", schema=WITH_DEFAULT)
        assert await client.schema(TOPIC) == (FIRST, version(0)), "it only reads"
        why = await refused(client.subscribe(TOPIC, "other", schema=WITHOUT_DEFAULT))
        assert "note" in why


async def test_a_consumer_with_a_schema_is_rejected_on_a_topic_without_one() -> None:
    async with regions("us") as world, world.client("us") as client:
        await (await client.producer(TOPIC)).send(b"x")
        why = await refused(client.subscribe(TOPIC, "s", schema=FIRST))
        assert why == "Topic does not have schema to check"
        await client.subscribe(TOPIC, "any", schema=AUTO_CONSUME)


async def test_partitions_share_a_schema() -> None:
    async with regions("us") as world, world.client("us") as client:
        region = world.running["us"]
        await region.partitioned.create(NAME, 2)
        versions = [
            (await client.producer(f"{TOPIC}-partition-{index}", schema=schema)).schema_version
            for index, schema in enumerate((FIRST, WITH_DEFAULT))
        ]
        assert versions == [version(0), version(1)]
        assert await client.schema(f"{TOPIC}-partition-0") == (WITH_DEFAULT, version(1))
        assert await client.schema(TOPIC) == (WITH_DEFAULT, version(1))


async def test_schemas_survive_a_kill() -> None:
    async with regions("us") as world:
        async with world.client("us") as client:
            await client.producer(TOPIC, schema=FIRST)
            await client.producer(TOPIC, schema=WITH_DEFAULT)
        await world.crash("us")
        await world.start("us")
        async with world.client("us") as client:
            assert await client.schema(TOPIC, version(0)) == (FIRST, version(0))
            assert (await client.producer(TOPIC, schema=FIRST)).schema_version == version(0)


async def test_two_regions_of_a_cluster_that_register_at_once_agree_on_the_numbers() -> None:
    """INV-41: each version number is assigned once, and to one schema in all regions."""
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        made = [record("id", f"field{number}=") for number in range(8)]
        await us.producer(TOPIC, schema=FIRST)
        await eu.producer(TOPIC, schema=FIRST)

        async def registers(client: Client, wanted: list[Schema]) -> list[tuple[bytes, Schema]]:
            return [(await client.schema_version(TOPIC, one), one) for one in wanted]

        told = await asyncio.gather(
            *(registers(client, made[start:] + made[:start]) for client in (us, eu) for start in (0, 4))
        )
        numbers = {one.data: number for pairs in told for number, one in pairs}
        assert all(numbers[one.data] == number for pairs in told for number, one in pairs)
        assert sorted(numbers.values()) == [version(number) for number in range(1, 9)]
        for client in (us, eu):
            for one in made:
                assert await client.schema(TOPIC, numbers[one.data]) == (one, numbers[one.data])


async def test_a_deleted_schema_is_found_by_its_version_and_its_number_is_not_reused() -> None:
    async with regions("us") as world, world.client("us") as client:
        schemas = world.running["us"].schemas
        await client.producer(TOPIC, schema=FIRST)
        assert await schemas.delete(NAME) == 1
        assert await schemas.delete(NAME) == 1, "there is nothing left to delete"
        assert await client.schema(TOPIC) is None
        assert await client.schema(TOPIC, version(0)) == (FIRST, version(0))
        assert await client.schema_version(TOPIC, STRING) == version(2), "not compared with any schema"
        assert await schemas.delete(NAME, force=True) == 3
        assert await client.schema(TOPIC, version(0)) is None
        assert await client.schema_version(TOPIC, FIRST) == version(4)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (Schema(SchemaType.AVRO, b"{"), "not JSON"),
        (Schema(SchemaType.AVRO, b'{"type":"record"}'), "not an Avro schema"),
        (
            Schema(SchemaType.AVRO, b'{"type":"array","items":' * 5_000 + b'"int"' + b"}" * 5_000),
            "deeper than",
        ),
        (Schema(SchemaType.AVRO, b'["int","string"]'), "a union"),
        (Schema(SchemaType.JSON, b"[]" * 3), "not JSON"),
        (Schema(SchemaType.INT32, b"4"), "has no data, but"),
        (Schema(SchemaType.KEY_VALUE, b"\0\0\0\x09x"), "bytes in"),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"{}"), "rootMessageTypeName"),
        (record(*(f"field{number}" for number in range(3_000))), "2,000 are allowed"),
        (record("x" * 300_000), "schema_bytes_max"),
        (Schema(SchemaType.STRING, b"", {"price": "€" * 100_000}), "300,005 bytes"),
        (Schema(SchemaType.KEY_VALUE, bytes(8), {"key.schema.type": "x" * 99_000}), "key.schema.type"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_an_invalid_schema_is_rejected_without_effect_on_others(schema: Schema, why: str) -> None:
    async with regions("us") as world, world.client("us") as client, world.client("us") as other:
        producer = await other.producer(TOPIC, schema=FIRST)
        sentence = await refused(client.producer(TOPIC, schema=schema))
        assert why in sentence
        assert len(sentence) <= SENTENCE_LENGTH_MAX
        assert why in await refused(client.subscribe(TOPIC, "s", schema=schema))
        await producer.send(b"x")
        assert await client.schema(TOPIC) == (FIRST, version(0)), "the connection is still open"


async def test_the_number_of_schema_versions_is_limited() -> None:
    async with regions("us", schema_versions_max=3) as world, world.client("us") as client:
        made = [record("id", f"field{number}=") for number in range(4)]
        await client.producer(TOPIC, schema=made[0])
        for schema in made[1:3]:
            await client.schema_version(TOPIC, schema)
        assert "schema_versions_max" in await refused(client.schema_version(TOPIC, made[3]))
        assert await client.schema_version(TOPIC, made[0]) == version(0)


@pytest.mark.parametrize("said", [b"\xff" * 8, b"x", version(7)])
async def test_an_unknown_schema_version_has_no_schema(said: bytes) -> None:
    async with regions("us") as world, world.client("us") as client:
        await client.producer(TOPIC, schema=FIRST)
        assert await client.schema(TOPIC, said) is None


async def test_an_invalid_version_in_the_store_does_not_hide_the_others() -> None:
    async with regions("us") as world, world.client("us") as client:
        region = world.running["us"]
        await client.producer(TOPIC, schema=FIRST)
        await region.metadata.put(SchemaPath.of("public/default/orders", 1).text, b'{"type":"AVRO"}')
        await until(lambda: region.metadata.list(SchemaPath.prefix())[-1].value == b'{"type":"AVRO"}')
        assert await client.schema(TOPIC, version(0)) == (FIRST, version(0))
        assert await client.schema_version(TOPIC, WITH_DEFAULT) == version(2)
