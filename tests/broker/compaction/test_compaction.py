"""A compacted topic, read by clients, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.broker.compaction.compacted_log import CompactedRow
from emulator.client import (
    EARLIEST,
    Batching,
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
)
from emulator.errors import ServerError
from emulator.model.stored_keys import CompactionKey
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.world import World
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
PATH = "/admin/v2/persistent/public/default/orders"
SLOW = DiskFaults(commit_seconds=(0.5, 0.5))


async def ask(w: World, method: str, target: str, body: Any = None) -> Any:
    answer = await w.ask_admin("us", method, target, body)
    assert answer.status in (200, 204), answer
    return answer.json() if answer.status == 200 else None


async def compact(w: World) -> None:
    await ask(w, "PUT", f"{PATH}/compaction")
    while (status := await ask(w, "GET", f"{PATH}/compaction"))["status"] == "RUNNING":
        await asyncio.sleep(0.1)
    assert status == {"status": "SUCCESS", "lastError": ""}


async def left(client: Client, **options: Any) -> list[tuple[str | None, bytes]]:
    """Return what a reader receives that starts at the earliest message."""
    reader = await client.reader(TOPIC, EARLIEST, **{"read_compacted": True} | options)
    found = []
    while await reader.has_message():
        message = await reader.receive()
        found.append((message.key, message.payload))
    await reader.close()
    return found


def compacted_logs(w: World) -> list[str]:
    return sorted(name for name in w.regions["us"].medium.logs if name.startswith("compacted://"))


async def send(client: Client, *pairs: tuple[str | None, bytes], batching: Batching | None = None) -> None:
    producer = await client.producer(TOPIC, batching=batching)
    for future in [producer.send_nowait(value, key=key) for key, value in pairs]:
        await future
    await producer.close()


PAIRS = [
    ("a", b"1"),
    ("b", b"2"),
    (None, b"3"),
    ("a", b"4"),
    ("c", b"5"),
    ("b", b""),
    ("d", b"6"),
    ("c", b""),
]
STAYS = [(None, b"3"), ("a", b"4"), ("d", b"6")]


@pytest.mark.parametrize("batching", [None, Batching(messages_max=3)])
@pytest.mark.parametrize(
    "disk",
    [
        pytest.param(name, marks=pytest.mark.world("us", disk=disk))
        for name, disk in (
            ("own", DiskFaults()),
            ("own with gaps", DiskFaults(id_jump_probability=0.5)),
            ("remote", RemoteFaults()),
        )
    ],
)
async def test_the_newest_message_of_each_key_is_kept(
    world: World, disk: str, batching: Batching | None
) -> None:
    client = world.client("us")
    await send(client)
    assert (await ask(world, "GET", f"{PATH}/compaction"))["status"] == "NOT_RUN"
    await send(client, *PAIRS, batching=batching)
    await compact(world)
    assert await left(client) == STAYS
    assert await left(client, receiver_queue_size=1) == STAYS
    assert await left(client, read_compacted=False) == PAIRS
    await send(client, ("a", b"7"), ("e", b"8"), batching=batching)
    assert await left(client) == [*STAYS, ("a", b"7"), ("e", b"8")]
    await compact(world)
    assert await left(client) == [(None, b"3"), ("d", b"6"), ("a", b"7"), ("e", b"8")]
    assert compacted_logs(world) == ["compacted://public/default/2/orders"]
    figures = await ask(world, "GET", f"{PATH}/internalStats")
    assert figures["compactedLedger"]["entries"] > 0


@pytest.mark.world("us", "eu")
async def test_a_log_with_markers_of_replicated_subscriptions_is_compacted(world: World) -> None:
    """Both regions have markers between the messages, and the position is still replicated after the compaction."""
    client = world.client("us")
    earliest = InitialPosition.EARLIEST
    consumer = await client.subscribe(TOPIC, "s", initial_position=earliest, replicated=True)
    for number in range(5):
        await send(client, ("a", b"%d" % number))
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        await world.quiet()
    log = broker_of(world, "us").directory.serving[TOPIC].log
    assert log.next_entry_id > 5, "there are markers"
    await compact(world)
    assert await left(client) == [("a", b"4")]
    await send(client, ("a", b"5"))
    assert await left(client) == [("a", b"4"), ("a", b"5")]
    await compact(world)
    assert await left(client) == [("a", b"5")]
    await consumer.acknowledge(await consumer.receive(), confirmed=True)
    await world.quiet()
    assert broker_of(world, "eu").directory.serving[TOPIC].subscriptions["s"].backlog() == 0


async def test_when_everything_was_deleted_there_is_no_last_message(world: World) -> None:
    client = world.client("us")
    await send(client, ("a", b"1"), ("a", b""))
    await compact(world)
    reader = await client.reader(TOPIC, EARLIEST, read_compacted=True)
    assert await reader.last_message_id() is None
    assert not await reader.has_message()
    waiting = asyncio.ensure_future(reader.receive())
    await send(client, ("b", b"2"))
    assert (await waiting).payload == b"2"


async def test_the_last_message_of_a_compacted_topic_is_the_last_kept_one(world: World) -> None:
    client = world.client("us")
    await send(client, ("a", b"1"), ("b", b"2"), ("c", b"3"), ("c", b""), batching=Batching(messages_max=4))
    await compact(world)
    reader = await client.reader(TOPIC, EARLIEST, read_compacted=True)
    last = await reader.last_message_id()
    assert last is not None
    assert last.batch_index == 1
    raw = await client.reader(TOPIC, EARLIEST)
    last = await raw.last_message_id()
    assert last is not None
    assert last.batch_index == 3


async def test_a_compacted_subscription_continues_after_a_restart_without_backlog_of_removed_messages(
    world: World,
) -> None:
    client = world.client("us")
    await send(client, *PAIRS)
    await compact(world)
    options: dict[str, Any] = {
        "initial_position": InitialPosition.EARLIEST,
        "type_": ConsumerType.FAILOVER,
        "read_compacted": True,
    }
    consumer = await client.subscribe(TOPIC, "table", **options)
    first = await consumer.receive()
    await consumer.acknowledge(first, confirmed=True)
    await consumer.close()
    world.kill("us")
    world.start("us")
    await world.ready()
    consumer = await client.subscribe(TOPIC, "table", **options)
    rest = await received(consumer, 2)
    assert [first.payload, *(one.payload for one in rest)] == [value for _, value in STAYS]
    await consumer.acknowledge_cumulative(rest[-1], confirmed=True)
    await world.simulation.until(lambda: world.regions["us"].backlog(TOPIC, "table") == 0)


async def received(consumer: Consumer, count: int) -> list[Message]:
    return [await consumer.receive() for _ in range(count)]


async def test_a_reader_begins_anywhere_and_continues_during_a_compaction(world: World) -> None:
    client = world.client("us")
    await send(client, *[(f"key-{number}", b"%d" % number) for number in range(50)])
    await compact(world)
    reader = await client.reader(TOPIC, EARLIEST, read_compacted=True, receiver_queue_size=1)
    before = [await reader.receive() for _ in range(20)]
    assert [one.payload for one in before] == [b"%d" % number for number in range(20)]
    await send(client, *[(f"key-{number}", b"new") for number in range(40)])
    await compact(world)
    rest = [(await reader.receive()).key for _ in range(51)]
    # One or two messages that were in flight are from before.
    assert rest[-50:] == [f"key-{number}" for number in [*range(40, 50), *range(40)]]
    from_middle = await client.reader(TOPIC, before[10].id, read_compacted=True)
    assert (await from_middle.receive()).key == "key-40"
    await from_middle.seek(EARLIEST)
    assert (await from_middle.receive()).key == "key-40"


@pytest.mark.parametrize("type_", [ConsumerType.SHARED, ConsumerType.KEY_SHARED])
async def test_shared_consumers_cannot_read_compacted(world: World, type_: ConsumerType) -> None:
    with pytest.raises(ClientError, match="readCompacted only allowed") as refused:
        await world.client("us").subscribe(TOPIC, "s", type_=type_, read_compacted=True)
    assert refused.value.code is ServerError.NotAllowedError


@pytest.mark.world("us", disk=SLOW)
async def test_a_topic_that_grew_by_its_threshold_is_compacted_and_a_concurrent_request_is_refused(
    world: World,
) -> None:
    client = world.client("us")
    await send(client, ("a", b"1"))
    topic = broker_of(world).directory.serving[TOPIC]
    namespace = "/admin/v2/namespaces/public/default/compactionThreshold"
    await ask(world, "PUT", namespace, 1_000)
    assert await ask(world, "GET", namespace) == 1_000
    assert topic.compaction.needed_from == 0
    await send(client, *[("a", b"x" * 100) for _ in range(20)])
    await world.simulation.until(lambda: topic.compaction.view is not None)
    assert topic.compaction.needed_from == topic.compaction.reading.horizon > 0
    await world.simulation.until(lambda: not topic.compaction.is_running)
    await ask(world, "DELETE", namespace)
    await send(client, ("a", b"2"))
    await ask(world, "PUT", f"{PATH}/compaction")
    assert (await world.ask_admin("us", "PUT", f"{PATH}/compaction")).status == 409
    assert (await world.ask_admin("us", "PUT", f"{PATH}-not-there/compaction")).status == 404


async def test_a_new_threshold_counts_what_was_stored_since_the_last_compaction(world: World) -> None:
    """As in Pulsar, including entries that were stored while there was no threshold."""
    client = world.client("us")
    await send(client, *[("a", b"x" * 100) for _ in range(20)])
    compaction = broker_of(world).directory.serving[TOPIC].compaction
    namespace = "/admin/v2/namespaces/public/default/compactionThreshold"
    await ask(world, "PUT", namespace, 1_000)
    await world.simulation.until(lambda: compaction.view is not None and not compaction.is_running)
    first = compaction.reading.horizon
    await ask(world, "DELETE", namespace)
    await ask(world, "PUT", namespace, 1_000)
    assert not compaction.is_running, "nothing was stored since"
    await ask(world, "DELETE", namespace)
    await send(client, *[("a", b"x" * 100) for _ in range(20)])
    await ask(world, "PUT", namespace, 100_000)
    assert not compaction.is_running
    await ask(world, "PUT", namespace, 1_000)
    await world.simulation.until(lambda: compaction.reading.horizon > first)


async def test_a_deleted_topic_leaves_nothing_and_a_new_one_of_its_name_is_empty(
    world: World,
) -> None:
    client = world.client("us")
    await send(client, *PAIRS)
    await compact(world)
    await ask(world, "DELETE", f"{PATH}?force=true")
    assert not compacted_logs(world)
    assert CompactionKey(TOPIC).text not in world.regions["us"].medium.values
    await send(client, ("z", b"1"))
    assert await left(client) == [("z", b"1")]


async def test_a_trimmed_topic_is_read_from_its_compacted_log(world: World) -> None:
    client = world.client("us")
    await send(client, *PAIRS)
    await compact(world)
    topic = broker_of(world).directory.serving[TOPIC]
    needed_from = topic.compaction.needed_from
    assert needed_from is not None
    await world.regions["us"].host.ask(topic.log.trim(needed_from))
    assert await left(client) == STAYS
    await send(client, ("a", b"7"))
    await compact(world)
    assert await left(client) == [(None, b"3"), ("d", b"6"), ("a", b"7")]


@pytest.mark.parametrize("kill_after", [0.05 * step for step in range(1, 30)])
@pytest.mark.world("us", disk=DiskFaults(commit_seconds=(0.1, 0.1)))
async def test_a_kill_at_any_moment_leaves_the_topic_as_it_was_or_compacted(
    world: World, kill_after: float
) -> None:
    """INV-32: each commit takes a tenth of a second, so that the kill falls between any two steps, or into one."""
    client = world.client("us")
    await send(client, *PAIRS)
    await compact(world)
    await send(client, ("a", b"7"), ("d", b""))
    await ask(world, "PUT", f"{PATH}/compaction")
    await asyncio.sleep(kill_after)
    world.kill("us")
    world.start("us")
    await world.ready()
    found = await left(client)
    assert dict(one for one in found if one[1])["a"] == b"7"
    assert [value for key, value in found if key is None] == [b"3"]
    assert found[-1][0] != "d" or not found[-1][1]
    row = CompactedRow.decode("", world.regions["us"].medium.values[CompactionKey(TOPIC).text].value)
    await world.simulation.until(
        lambda: compacted_logs(world) == [f"compacted://public/default/{row.generation}/orders"]
    )
    await compact(world)
    assert await left(client) == [(None, b"3"), ("a", b"7")]


async def test_a_row_that_was_stored_although_its_write_failed_names_an_existing_log(
    world: World,
) -> None:
    """The region believes its former row, as its store reported, and discards the new log. After a restart the store
    may return the new row: the log that it names must still exist (INV-32)."""
    client, disk = world.client("us"), world.regions["us"].medium
    await send(client, *PAIRS)
    await compact(world)
    key = CompactionKey(TOPIC).text
    world.kill("us")
    # What an unconfirmed write leaves: a finished log, and a row that the next start rewrites.
    row = CompactedRow.decode(key, disk.values[key].value)
    world.start("us")
    await world.ready()
    host = world.regions["us"].host
    broker = broker_of(world, "us")
    await host.ask(_open(broker.store, f"compacted://public/default/{row.generation + 1}/orders"))
    version = disk.values[key].version
    assert await left(client) == STAYS
    await world.simulation.until(lambda: len(compacted_logs(world)) == 1)
    assert disk.values[key].version > version


async def _open(store: Any, name: str) -> None:
    await store.open_log(name)
