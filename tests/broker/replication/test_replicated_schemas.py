"""Schemas are replicated before the messages that need them, and each region numbers its versions itself (INV-42)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import pack

import pytest

from emulator.broker.replication.entry_forms import RemoteSchemaVersions
from emulator.broker.replication.replicator import Replicator
from emulator.client import InitialPosition, Message, Schema, SchemaType
from emulator.config.broker_settings import BrokerSettings
from emulator.core.policies.schemas import SCHEMA_COMPATIBILITY, SCHEMA_UPDATES, SCHEMA_VALIDATION
from emulator.core.replication.progress import ReplicatorState
from emulator.core.schemas.compatibility import CompatibilityStrategy
from emulator.errors import ProtocolError
from emulator.model.stored_keys import NamespacePath
from emulator.model.values import TopicName
from emulator.simulation.world import World
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry
from tests.broker.connection.raw import raw_client
from tests.broker.regions import broker_of, regions
from tests.broker.topologies import clusters
from tests.schemas_made import FIRST, RENAMED, STRING, WITH_DEFAULT, WITHOUT_DEFAULT, record
from tests.swarm.faults import ConfigurationAway

TOPIC = "persistent://public/default/orders"
NAME = TopicName.parse(TOPIC)
NAMESPACE = NamespacePath("public/default")
EARLIEST = InitialPosition.EARLIEST
NEWEST_TO_OLDEST = (record("id", "a=", "b="), record("id", "a="), FIRST)


def version(number: int) -> bytes:
    return pack(">q", number)


def replicator(w: World, here: str, there: str) -> Replicator:
    return broker_of(w, here).directory.serving[TOPIC].replicators[there]


async def received(w: World, region: str, count: int, topic: str = TOPIC) -> list[Message]:
    client = w.client(region)
    consumer = await client.subscribe(topic, "s", initial_position=EARLIEST)
    found = [await consumer.receive() for _ in range(count)]
    for message in found:
        await consumer.acknowledge(message)
    await client.close()
    return found


async def meaning(w: World, region: str, messages: Sequence[Message]) -> list[tuple[bytes, Schema]]:
    """Return each payload with the schema that this region returns for its version."""
    client = w.client(region)
    found = [(message.payload, await client.schema(TOPIC, message.schema_version)) for message in messages]
    await client.close()
    return [(payload, schema[0]) for payload, schema in found if schema is not None]


async def publish(w: World, region: str, schema: Schema, *payloads: bytes) -> None:
    client = w.client(region)
    producer = await client.producer(TOPIC, schema=schema)
    for payload in payloads:
        await producer.send(payload)
    await client.close()


@pytest.mark.world(topology=clusters(("us", "eu")))
async def test_regions_of_one_cluster_share_the_numbers(world: World) -> None:
    await publish(world, "us", FIRST, b"0")
    await publish(world, "us", WITH_DEFAULT, b"1")
    found = await received(world, "eu", 2)
    assert [one.schema_version for one in found] == [version(0), version(1)]
    assert await meaning(world, "eu", found) == [(b"0", FIRST), (b"1", WITH_DEFAULT)]


@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_clusters_have_their_own_version_numbers_for_the_same_schema(world: World) -> None:
    await publish(world, "ap", NEWEST_TO_OLDEST[0], b"ap")
    await world.quiet()
    by_payload = dict(zip((b"old", b"newer", b"newest"), reversed(NEWEST_TO_OLDEST), strict=True))
    for payload, schema in by_payload.items():
        await publish(world, "us", schema, payload)
    await world.quiet()
    for region in ("us", "ap"):
        found = await meaning(world, region, await received(world, region, 4))
        assert dict(found) == {b"ap": NEWEST_TO_OLDEST[0], **by_payload}
    assert [broker_of(world, one).schemas.of(NAME).numbers() for one in ("us", "ap")] == [[0, 1, 2]] * 2
    newest = [broker_of(world, one).schemas.of(NAME).find(NEWEST_TO_OLDEST[0]) for one in ("us", "ap")]
    assert [one.number for one in newest if one is not None] == [0, 0]
    oldest = [broker_of(world, one).schemas.of(NAME).find(FIRST) for one in ("us", "ap")]
    assert [one.number for one in oldest if one is not None] == [1, 1]


@pytest.mark.parametrize("killed", ["us", "ap"])
@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_a_kill_on_either_side_changes_no_schema(world: World, killed: str) -> None:
    await publish(world, "ap", WITH_DEFAULT, b"ap")
    await world.quiet()
    world.hold("us", "ap")
    await publish(world, "us", FIRST, b"0", b"1")
    await publish(world, "us", WITH_DEFAULT, b"2")
    world.kill(killed)
    world.heal()
    world.start(killed)
    await world.ready()
    await world.quiet()
    found = await meaning(world, "ap", await received(world, "ap", 4))
    wanted = [(b"ap", WITH_DEFAULT), (b"0", FIRST), (b"1", FIRST), (b"2", WITH_DEFAULT)]
    assert found == wanted


@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_messages_wait_until_the_other_cluster_accepts_their_schema(
    world: World,
) -> None:
    await publish(world, "ap", FIRST, b"ap")
    await world.quiet()
    await broker_of(world, "us").policies.set(
        NAMESPACE, SCHEMA_COMPATIBILITY, CompatibilityStrategy.ALWAYS_COMPATIBLE
    )
    await publish(world, "us", FIRST, b"0")
    await publish(world, "us", RENAMED, b"1")
    await publish(world, "us", FIRST, b"2")
    await world.simulation.until(
        lambda: "rejects schema 1" in replicator(world, "us", "ap").lifecycle.why_not
    )
    held = replicator(world, "us", "ap")
    assert held.lifecycle.state is ReplicatorState.HELD
    assert "number" in held.lifecycle.why_not, "with the reason of the region that rejects it"
    assert held.backlog == 2, "earlier messages arrived, and later ones wait in order"
    await broker_of(world, "ap").policies.set(
        NAMESPACE, SCHEMA_COMPATIBILITY, CompatibilityStrategy.ALWAYS_COMPATIBLE
    )
    await world.quiet()
    found = await meaning(world, "ap", await received(world, "ap", 4))
    assert found == [(b"ap", FIRST), (b"0", FIRST), (b"1", RENAMED), (b"2", FIRST)]
    assert held.lifecycle.why_not == ""


@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_replicators_need_no_schema_and_register_new_ones(world: World) -> None:
    """Policies about the schemas of clients do not apply to replicators."""
    await publish(world, "ap", FIRST, b"ap")
    for policy, value in ((SCHEMA_UPDATES, False), (SCHEMA_VALIDATION, True)):
        await broker_of(world, "ap").policies.set(NAMESPACE, policy, value)
    await publish(world, "us", WITH_DEFAULT, b"0")
    await world.quiet()
    assert (b"0", WITH_DEFAULT) in await meaning(world, "ap", await received(world, "ap", 2))


@pytest.mark.world(topology=clusters(("us",), ("ap",), settings=BrokerSettings(region_tail_bytes=0)))
async def test_entries_that_are_read_from_the_store_wait_for_their_schema_too(world: World) -> None:
    await publish(world, "ap", WITH_DEFAULT, b"ap")
    await world.quiet()
    world.cut("us", "ap")
    await publish(world, "us", FIRST, *(b"%d" % number for number in range(40)))
    world.kill("us")
    world.start("us")
    world.heal()
    await world.ready()
    await world.quiet()
    found = await meaning(world, "ap", await received(world, "ap", 41))
    assert found[1:] == [(b"%d" % number, FIRST) for number in range(40)]


@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_without_the_remote_store_a_new_schema_waits_and_a_known_one_does_not(
    world: World,
) -> None:
    await publish(world, "us", FIRST, b"0")
    await world.quiet()
    outage = ConfigurationAway(0.0, 1.0, "c-ap")
    outage.begin(world)
    await publish(world, "us", FIRST, b"1")
    await world.quiet()
    await publish(world, "us", WITH_DEFAULT, b"2")
    await world.simulation.until(
        lambda: replicator(world, "us", "ap").lifecycle.state is ReplicatorState.HELD
    )
    outage.end(world)
    await world.quiet()
    found = await meaning(world, "ap", await received(world, "ap", 3))
    assert found == [(b"0", FIRST), (b"1", FIRST), (b"2", WITH_DEFAULT)]


@pytest.mark.world(topology=clusters(("us", "eu"), ("ap",)))
async def test_concurrent_registrations_in_two_clusters_keep_the_schema_of_each_message(world: World) -> None:
    made = [record("id", f"field{number}=") for number in range(3)]
    for region, schema in zip(("us", "eu", "ap"), made, strict=True):
        world.client(region)
        await publish(world, region, schema, region.encode())
    await world.quiet()
    for region in ("us", "eu", "ap"):
        found = await meaning(world, region, await received(world, region, 3))
        assert dict(found) == {b"us": made[0], b"eu": made[1], b"ap": made[2]}


async def test_an_unknown_schema_version_is_replicated_without_a_schema() -> None:
    """Otherwise a number that a client invented would name another schema in another cluster."""
    async with (
        regions("us", "eu") as world,
        world.client("eu") as eu,
        raw_client(world) as raw,
    ):
        consumer = await eu.subscribe(TOPIC, "s", initial_position=EARLIEST)
        opened = await raw.open_producer(1)
        assert opened.producer_name == "p"
        for number, said in enumerate((version(7), version(7), b"odd", b"")):
            metadata = pb.MessageMetadata(
                producer_name="p", sequence_id=number, publish_time=1, schema_version=said
            )
            raw.writer.write(send_frame(1, number, 1, 0, data=build_entry(metadata, b"x")))
        async with asyncio.timeout(30):
            assert [(await consumer.receive()).schema_version for _ in range(4)] == [b""] * 4


@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_schemas_of_other_types_are_replicated(world: World) -> None:
    await publish(world, "us", STRING, b"0")
    await world.quiet()
    assert await meaning(world, "ap", await received(world, "ap", 1)) == [(b"0", STRING)]
    client = world.client("ap")
    assert await client.schema(TOPIC) == (Schema(SchemaType.STRING), version(0))


@pytest.mark.world(topology=clusters(("us",), ("ap",)))
async def test_the_compatibility_strategy_of_the_remote_cluster_applies(world: World) -> None:
    await broker_of(world, "us").policies.set(NAMESPACE, SCHEMA_COMPATIBILITY, CompatibilityStrategy.BACKWARD)
    await publish(world, "us", WITHOUT_DEFAULT, b"0")
    await publish(world, "us", FIRST, b"1")
    await world.simulation.until(
        lambda: replicator(world, "us", "ap").lifecycle.state is ReplicatorState.HELD
    )
    await broker_of(world, "ap").policies.set(NAMESPACE, SCHEMA_COMPATIBILITY, CompatibilityStrategy.BACKWARD)
    await world.quiet()
    assert len(await received(world, "ap", 2)) == 2


@pytest.mark.parametrize("answer", [b"x" * 7, b"x" * 5_000_000])
async def test_a_remote_version_of_another_size_is_refused(answer: bytes) -> None:
    """It would be sent in each entry, and stored."""

    class Lying:
        def request_schema_version(self, topic: str, schema: Schema) -> asyncio.Future[bytes]:
            told: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            told.set_result(answer)
            return told

    async with regions("us") as world, world.client("us") as client:
        await client.producer(TOPIC, schema=FIRST)
        numbers = RemoteSchemaVersions(world.running["us"].schemas, NAME, Lying())
        with pytest.raises(ProtocolError, match="bytes instead of 8"):
            await numbers.learn(version(0))
        assert numbers.remote_version(version(0)) is None
