"""A replicator with a backlog sends it in parts, and lets the appends of its region pass between them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from emulator.broker.replication.pacing import (
    GATHER_SECONDS,
    GROWTH_ENTRIES_MAX,
    LIVE_ENTRIES,
    PART_ENTRIES,
    PARTS_IN_FLIGHT,
)
from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.pending_publish import LET_PASS_SECONDS, IssuedAppends
from emulator.client import Producer
from emulator.core.replication.progress import ReplicatorState
from emulator.simulation.world import World, world
from tests.broker.replication.test_replicator import TOPIC, replicator_of

__all__ = ["world"]

BACKLOG = 2_000
GATHERING = "emulator.broker.replication.pacing.GATHER_SECONDS"


async def interrupted(w: World, messages: int) -> Replicator:
    """Return a replicator that is disconnected, and has this backlog in the memory of its topic."""
    producer = await w.client("us").producer(TOPIC)
    await producer.send(b"0")
    await w.quiet()
    replicator = replicator_of(w, "us", "eu")
    w.cut("us", "eu")
    await w.simulation.until(lambda: replicator.lifecycle.state is ReplicatorState.DOWN)
    await asyncio.gather(*(producer.send(b"1") for _ in range(messages)))
    assert replicator.backlog >= messages
    return replicator


async def hold_appends(w: World, replicator: Replicator) -> None:
    """Let the region wait for an append that never becomes durable."""

    async def hold() -> None:
        replicator.topic.region.resources.appends.issued(asyncio.get_running_loop().create_future())

    await w.regions["us"].host.ask(hold())


@pytest.mark.world("us", "eu")
async def test_a_backlog_is_sent_in_parts_between_the_appends_of_clients(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicator = await interrupted(world, BACKLOG)
    sent: list[tuple[float, int]] = []
    send = replicator._send

    def counting(entries: list) -> None:  # type: ignore[type-arg]
        sent.append((world.simulation.now, len(entries)))
        send(entries)

    monkeypatch.setattr(replicator, "_send", counting)
    await hold_appends(world, replicator)
    world.heal("us", "eu")
    await world.simulation.until(lambda: not replicator.backlog, within_seconds=30)
    parts = [(at, count) for at, count in sent if count]
    in_parts = parts[:-1]
    assert len(in_parts) >= (BACKLOG - 2 * LIVE_ENTRIES) // PART_ENTRIES, "the last one is sent at once"
    assert max(count for _, count in in_parts) <= PART_ENTRIES
    waits = [later - earlier for (earlier, _), (later, _) in pairwise(in_parts)]
    assert min(waits) >= LET_PASS_SECONDS * 0.99


@pytest.mark.world("us", "eu")
async def test_a_part_grows_with_what_is_published_between_parts(world: World) -> None:
    """The size stays while nothing is published: clients of a busy topic wait for their own receipts meanwhile."""
    replicator = await interrupted(world, 30)

    def next_part() -> int:
        return replicator._pacing.next_part(replicator.topic.state.replicable_end)

    producer = await world.client("us").producer(TOPIC)
    assert [next_part(), next_part()] == [PART_ENTRIES + 30] * 2
    await producer.send(b"2")
    assert [next_part(), next_part()] == [PART_ENTRIES + 1] * 2
    await asyncio.gather(*(producer.send(b"3") for _ in range(GROWTH_ENTRIES_MAX + 10)))
    assert next_part() == PART_ENTRIES + GROWTH_ENTRIES_MAX
    world.heal("us", "eu")
    await world.simulation.until(lambda: replicator.lifecycle.is_connected)
    assert next_part() == PART_ENTRIES


@pytest.mark.world("us", "eu")
async def test_a_backlog_under_little_traffic_has_few_parts_in_flight(world: World) -> None:
    """So that a region which catches up does not take the processor of its region's clients."""
    replicator = await interrupted(world, 2 * PARTS_IN_FLIGHT * PART_ENTRIES)
    world.heal("us", "eu")
    await world.simulation.until(lambda: replicator.lifecycle.is_connected)
    world.hold("us", "eu")
    await world.simulation.until(lambda: replicator.progress.in_flight >= PARTS_IN_FLIGHT * PART_ENTRIES)
    await asyncio.sleep(1)  # of virtual time: no further part follows
    assert replicator.progress.in_flight == PARTS_IN_FLIGHT * PART_ENTRIES
    world.heal("us", "eu")
    await world.simulation.until(lambda: not replicator.backlog)


@pytest.mark.world("us", "eu")
async def test_entries_are_gathered_after_a_large_write_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a topic with much traffic is sent in large parts, and one with little traffic at once."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    replicator = replicator_of(world, "us", "eu")
    written: list[float] = []
    write = replicator.peer.write

    def noting(data: bytes) -> None:
        written.append(world.simulation.now)
        write(data)

    monkeypatch.setattr(replicator.peer, "write", noting)
    published: list[float] = []
    for messages in (PART_ENTRIES, 10, 1):
        await asyncio.gather(*(producer.send(b"1") for _ in range(messages)))
        published.append(world.simulation.now)
        if messages == PART_ENTRIES:
            assert replicator._pacing.must_wait(1)
        await world.simulation.until(
            lambda: replicator.progress.next_entry_id == replicator.topic.state.replicable_end
        )
    large, gathered, live = written
    assert published[1] < large + GATHER_SECONDS <= gathered
    assert live <= published[2]


async def connected(w: World) -> tuple[Producer, Replicator]:
    producer = await w.client("us").producer(TOPIC)
    await producer.send(b"0")
    await w.quiet()
    return producer, replicator_of(w, "us", "eu")


async def write_part(w: World, producer: Producer, replicator: Replicator) -> None:
    """Publish as many messages as a large write has, and wait until they are sent."""
    await asyncio.gather(*(producer.send(b"1") for _ in range(PART_ENTRIES)))
    await w.simulation.until(
        lambda: replicator.progress.next_entry_id == replicator.topic.state.replicable_end
    )


@pytest.mark.world("us", "eu")
async def test_gathered_entries_wait_for_no_receipt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are new, not a backlog: the next receipt of a distant region may take long."""
    monkeypatch.setattr(GATHERING, 0.02)
    producer, replicator = await connected(world)
    world.hold("us", "eu")
    for _ in range(2 * PARTS_IN_FLIGHT):
        await write_part(world, producer, replicator)
    await producer.send(b"2")
    assert replicator.progress.in_flight == 2 * PARTS_IN_FLIGHT * PART_ENTRIES
    await asyncio.sleep(0.1)  # of virtual time
    assert replicator.progress.in_flight == 2 * PARTS_IN_FLIGHT * PART_ENTRIES + 1
    world.heal("us", "eu")
    await world.simulation.until(lambda: not replicator.backlog)


@pytest.mark.world("us", "eu")
async def test_gathering_ends_when_a_large_part_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GATHERING, 60)
    producer, replicator = await connected(world)
    await write_part(world, producer, replicator)
    sent = replicator.progress.next_entry_id
    await producer.send(b"2")
    await asyncio.sleep(1)  # of virtual time
    assert replicator.progress.next_entry_id == sent
    await asyncio.gather(*(producer.send(b"2") for _ in range(GROWTH_ENTRIES_MAX)))
    await world.simulation.until(
        lambda: replicator.progress.next_entry_id > sent + GROWTH_ENTRIES_MAX, within_seconds=10
    )


@pytest.mark.world("us", "eu")
async def test_a_replicator_that_keeps_up_does_not_wait_for_appends(world: World) -> None:
    replicator = await interrupted(world, LIVE_ENTRIES - 10)
    await hold_appends(world, replicator)
    world.heal("us", "eu")
    await world.simulation.until(lambda: replicator.lifecycle.is_connected)
    assert replicator.lifecycle.state is ReplicatorState.STREAMING
    assert replicator.progress.in_flight >= LIVE_ENTRIES - 10


async def test_an_append_passes_when_it_is_acknowledged() -> None:
    appends, loop = IssuedAppends(), asyncio.get_running_loop()
    await appends.let_pass()
    append: asyncio.Future[int] = loop.create_future()
    order: list[str] = []
    append.add_done_callback(lambda done: order.append("acknowledged"))
    appends.issued(append)
    passed = asyncio.create_task(appends.let_pass())
    passed.add_done_callback(lambda done: order.append("passed"))
    loop.call_later(LET_PASS_SECONDS / 10, append.set_exception, OSError("the disk is full"))
    await passed
    assert append.done()
    assert order == ["acknowledged", "passed"]
    assert append.exception() is not None
