"""Positions of a replicated subscription are replicated again within two seconds of the return or removal of a region,
however long the region was absent. In virtual time, with default settings."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.links.emulation import REQUEST_SECONDS
from emulator.client import Consumer, InitialPosition, Producer
from emulator.config.link_shape import LinkShape
from emulator.simulation.world import World, world
from tests.broker.regions import broker_of

__all__ = ["world"]

TOPIC = "persistent://public/default/orders"
RESUMED_SECONDS = 2.0
CALM_SECONDS = 21.0
"""Time after which a link that was lost once counts as lost after one silent interval again (RE4)."""
LONG_SECONDS = 100.0
"""An absence in which several snapshots time out, and the waits between them grow."""


async def consumed(w: World) -> tuple[Producer, Consumer]:
    """Return a producer and a consumer in us, and wait until the position is known in eu."""
    us = w.client("us")
    consumer = await us.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True)
    producer = await us.producer(TOPIC)
    await consume(producer, consumer)
    await w.quiet()
    return producer, consumer


async def consume(producer: Producer, consumer: Consumer) -> None:
    await producer.send(b"x")
    await consumer.acknowledge(await consumer.receive(), confirmed=True)


def follows(w: World) -> bool:
    """Return whether eu has the position of us."""
    return not broker_of(w, "eu").directory.serving[TOPIC].subscriptions["s"].backlog()


async def passes(w: World, seconds: float) -> None:
    end = w.simulation.now + seconds
    await w.simulation.until(lambda: w.simulation.now >= end, within_seconds=seconds + 1)


@pytest.mark.parametrize("is_loaded", [False, True], ids=["quiet", "under load"])
@pytest.mark.parametrize("absence_seconds", [3.0, LONG_SECONDS])
@pytest.mark.parametrize("absence", ["killed", "paused", "cut"])
@pytest.mark.world("us", "eu", "ap")
async def test_positions_follow_within_two_seconds_of_a_return(
    world: World, absence: str, absence_seconds: float, is_loaded: bool
) -> None:
    producer, consumer = await consumed(world)
    {"killed": world.kill, "paused": world.pause, "cut": lambda name: world.cut("us", name)}[absence]("ap")
    await consume(producer, consumer)

    async def load() -> None:
        while True:
            await consume(producer, consumer)
            await asyncio.sleep(0.5)

    loading = asyncio.ensure_future(load()) if is_loaded else None
    await passes(world, absence_seconds)
    assert not follows(world), "no snapshot completes without ap"
    if loading is not None:
        loading.cancel()
    {"killed": world.start, "paused": world.resume, "cut": lambda name: world.heal()}[absence]("ap")
    await world.simulation.until(lambda: follows(world), within_seconds=RESUMED_SECONDS)


@pytest.mark.world("us", "eu", "ap")
async def test_positions_follow_within_two_seconds_of_any_moment_of_a_connection_attempt(
    world: World,
) -> None:
    """The cut link loses the connection request, or the responses to it, at each part of an attempt."""
    producer, consumer = await consumed(world)
    for part in range(8):
        world.cut("us", "ap")
        await consume(producer, consumer)
        await passes(world, 4.0 + part * REQUEST_SECONDS / 4)
        assert not broker_of(world, "us").peers["ap"].connected
        world.heal()
        await world.simulation.until(lambda: follows(world), within_seconds=RESUMED_SECONDS)
        await passes(world, CALM_SECONDS)


@pytest.mark.world("us", "eu")
async def test_a_link_whose_round_trip_is_longer_than_the_limit_of_a_request_is_established(
    world: World,
) -> None:
    link = broker_of(world, "us").peers["eu"]
    await world.simulation.until(lambda: link.connected)
    for one, other in (("us", "eu"), ("eu", "us")):
        world.simulation.network.shape(one, other, LinkShape(latency_ms=REQUEST_SECONDS * 600))
    world.simulation.network.reset("us", "eu")
    await world.simulation.until(lambda: not link.connected)
    await world.simulation.until(lambda: link.connected, within_seconds=60)


@pytest.mark.world("us", "eu", "ap")
async def test_positions_follow_within_two_seconds_of_a_removal(world: World) -> None:
    producer, consumer = await consumed(world)
    world.kill("ap")
    await consume(producer, consumer)
    await passes(world, LONG_SECONDS)
    assert not follows(world)
    response = await world.ask_admin("us", "PUT", "/geoemu/v1/removed-regions/ap")
    assert response.status == 200
    await world.simulation.until(lambda: follows(world), within_seconds=RESUMED_SECONDS)
