"""A world in a `with`: protocol tests that need no sleeping and no ports."""

from __future__ import annotations

import asyncio

import pytest

from emulator.client import InitialPosition
from emulator.simulation.world import World, world

TOPIC = "persistent://public/default/orders"


def stored(w: World, region: str) -> int:
    return len(w.regions[region].medium.entries(TOPIC))


@pytest.mark.world("us", "eu", "ap")
async def test_quiet_means_replicated(world: World) -> None:
    producer = await world.client("us").producer(TOPIC)
    for number in range(10):
        await producer.send(b"%d" % number)
    await world.quiet()
    assert [stored(world, region) for region in world.regions] == [10, 10, 10]


@pytest.mark.world("us", "eu")
async def test_a_cut_link_passes_nothing_until_it_is_healed(world: World) -> None:
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"before")
    await world.quiet()
    world.cut("us", "eu")
    await producer.send(b"after")
    with pytest.raises(TimeoutError, match="us still has 1 entries"):
        await world.quiet(within_seconds=10)
    assert stored(world, "eu") == 1
    world.heal()
    await world.quiet()
    assert stored(world, "eu") == 2


@pytest.mark.world("us", "eu")
async def test_a_killed_region_comes_back_with_what_it_acknowledged(world: World) -> None:
    client = world.client("us", "eu")
    producer = await client.producer(TOPIC)
    sent = [producer.send_nowait(b"%d" % number) for number in range(20)]
    await sent[5]
    world.kill("us")
    await asyncio.sleep(1)
    world.start("us")
    await asyncio.gather(*sent)
    await world.quiet()
    consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    assert {(await consumer.receive()).payload for _ in range(20)} == {b"%d" % n for n in range(20)}


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.world("us", "eu")
async def test_peers_find_out_that_a_region_is_gone(world: World, power: bool) -> None:
    """By a reset from its kernel, or by the timeout."""
    broker = world.regions["eu"].broker
    assert broker is not None
    (world.power_off if power else world.kill)("us")
    await world.simulation.until(lambda: bool(broker.waiting_for({"us"})), within_seconds=10)


def test_the_same_seed_is_the_same_world() -> None:
    def digest(seed: int) -> str:
        with world("us", "eu", seed=seed) as w:

            async def scenario() -> None:
                producer = await w.client("us").producer(TOPIC)
                await producer.send(b"x")
                await w.quiet()

            w.play(scenario())
            return w.simulation.trace.hexdigest()

    assert digest(1) == digest(1) != digest(2)
