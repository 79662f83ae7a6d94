"""A replicator with a backlog sends it in parts, and lets the appends of its region pass between them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from emulator.broker.replication.backlog_parts import (
    GROWTH_ENTRIES_MAX,
    LIVE_ENTRIES,
    PART_ENTRIES,
    PARTS_IN_FLIGHT,
)
from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.pending_publish import LET_PASS_SECONDS, IssuedAppends
from emulator.core.replication.progress import ReplicatorState
from emulator.simulation.world import World, world
from tests.broker.replication.test_replicator import TOPIC, replicator_of

__all__ = ["world"]

BACKLOG = 2_000


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
        return replicator._backlog_parts.next_part(replicator.topic.state.replicable_end)

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
