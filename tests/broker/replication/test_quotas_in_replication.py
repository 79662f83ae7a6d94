"""Backlog quotas that a remote region reaches while it receives replicated messages: clients are refused; messages,
markers and positions of other regions are not (L5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from emulator.client import ClientError, Consumer, Producer
from emulator.client.client import Client
from emulator.simulation.world import World
from tests.broker.replication.limits import (
    EVICT,
    EXCEPTION,
    HOLD,
    IMPATIENT,
    NAMESPACE,
    ORDERS,
    PATIENT,
    SETTINGS,
    TWO,
    ask,
    has_subscription,
    receive,
    set_quota,
    subscribe,
    topic_of,
    until_reason,
)
from tests.broker.topologies import clusters


async def over_quota(w: World, us: Client, action: str) -> tuple[Producer, Consumer]:
    """Publish 30 messages in us. The subscription's consumer is in us and acknowledges only the first one, so its
    backlog in eu exceeds the quota of eu."""
    consumer = await subscribe(us, replicated=True)
    producer = await us.producer(ORDERS)
    await producer.send(b"0")
    await receive(consumer, 1)
    await w.simulation.until(lambda: has_subscription(w, "eu"))
    await set_quota(w, "eu", 1_000, action)
    for number in range(1, 30):
        await producer.send(b"%d" % number)
    await w.simulation.until(lambda: topic_of(w, "eu").subscriptions["billing"].backlog() >= 20)
    return producer, consumer


@TWO
@pytest.mark.parametrize("action", [HOLD, EXCEPTION])
async def test_positions_pass_a_quota_and_empty_the_backlog_that_blocks_clients(
    world: World, action: str
) -> None:
    """The consumer's position arrives in eu although eu refuses clients."""
    _, consumer = await over_quota(world, world.client("us"), action)
    why = await until_reason(world, "topic", "orders", "quota-exceeded", "eu")
    assert why.startswith("producers of clients are refused: the backlog of subscription billing is about ")
    with pytest.raises(ClientError, match="backlog"):
        await world.client("eu", settings=IMPATIENT).producer(ORDERS)
    await receive(consumer, 29)
    await world.simulation.until(lambda: topic_of(world, "eu").retention.quota_refusal is None)
    await (await world.client("eu").producer(ORDERS)).send(b"again")
    assert await receive(consumer, 1) == [b"again"]


@pytest.mark.world(
    topology=clusters(["us"], ["eu"], settings=replace(SETTINGS, housekeeping_interval_ms=3_600_000))
)
@pytest.mark.parametrize("action", [HOLD, EXCEPTION])
@pytest.mark.parametrize("way", ["raised", "removed"])
async def test_a_quota_that_is_relaxed_accepts_clients_at_once(world: World, action: str, way: str) -> None:
    """A producer that was requested between the change and the next round was refused for the former quota."""
    await over_quota(world, world.client("us"), action)
    with pytest.raises(ClientError, match="backlog"):
        await world.client("eu", settings=IMPATIENT).producer(ORDERS)
    if way == "raised":
        await set_quota(world, "eu", 1_000_000, action)
    else:
        await ask(world, "eu", "DELETE", f"{NAMESPACE}/backlogQuota?backlogQuotaType=destination_storage")
    await (await world.client("eu", settings=IMPATIENT).producer(ORDERS)).send(b"again")
    assert topic_of(world, "eu").retention.quota_refusal is None


@TWO
@pytest.mark.parametrize("action", [HOLD, EXCEPTION])
async def test_a_region_that_restarts_over_its_quota_still_receives_messages_and_refuses_clients(
    world: World, action: str
) -> None:
    producer, consumer = await over_quota(world, world.client("us"), action)
    world.kill("eu")
    for number in range(30, 40):
        await producer.send(b"%d" % number)
    world.start("eu")
    with pytest.raises(ClientError, match="backlog"):
        await world.client("eu", settings=IMPATIENT).producer(ORDERS)
    await world.quiet()
    assert topic_of(world, "eu").state.readable_end >= 40
    await receive(consumer, 39)
    await (await world.client("eu").producer(ORDERS)).send(b"again")


@TWO
async def test_messages_that_a_remote_region_evicts_are_consumed_in_every_other_region(world: World) -> None:
    """A position that an eviction moved is never sent (L4), also not after a later acknowledgement in eu."""
    producer, consumer = await over_quota(world, world.client("us"), EVICT)
    await world.simulation.until(lambda: topic_of(world, "eu").subscriptions["billing"].skipped > 0)
    there = await subscribe(world.client("eu"), replicated=True)
    evicted_to = int((await receive(there, 1))[0])
    assert evicted_to > 1
    await world.quiet()
    await producer.send(b"last")
    assert await receive(consumer, 29 + 1) == [*(b"%d" % number for number in range(1, 30)), b"last"]


@TWO
async def test_the_backlog_of_a_cut_link_blocks_clients_of_its_source_until_the_link_heals(
    world: World,
) -> None:
    """The replicator's backlog counts, as upstream; `explain` names it."""
    us = world.client("us")
    await (await us.producer(ORDERS)).send(b"first")
    await world.quiet()
    world.cut("us", "eu")
    await set_quota(world, "us", 500, HOLD)
    producer = await us.producer(ORDERS)
    sending = [producer.send_nowait(bytes(100)) for _ in range(20)]
    why = await until_reason(world, "topic", "orders", "quota-exceeded")
    assert "the backlog of the replicator to eu is about" in why
    world.heal()
    await asyncio.gather(*sending)
    await producer.send(b"last")
    await world.quiet()
    assert topic_of(world, "eu").state.readable_end == topic_of(world, "us").state.readable_end


@TWO
@pytest.mark.parametrize("action", [HOLD, EXCEPTION])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_transaction_commits_into_a_topic_over_its_quota(
    world: World, action: str, *, restarts: bool
) -> None:
    """Its messages were acknowledged before the topic exceeded the quota; its marker is the region's own."""
    us, eu = world.client("us"), world.client("eu", settings=PATIENT)
    producer, consumer = await over_quota(world, us, EVICT)
    await receive(consumer, 29)
    producer_there = await eu.producer(ORDERS)
    transaction = await eu.new_transaction()
    await producer_there.send(b"atomic", transaction=transaction)
    await set_quota(world, "eu", 1_000, action)
    await producer.send(bytes(10_000))
    await until_reason(world, "topic", "orders", "quota-exceeded", "eu")
    if restarts:
        world.kill("eu")
        world.start("eu")
    await transaction.commit()
    assert sorted(await receive(consumer, 2)) == [bytes(10_000), b"atomic"]
    await world.simulation.until(lambda: topic_of(world, "eu").retention.quota_refusal is None)
