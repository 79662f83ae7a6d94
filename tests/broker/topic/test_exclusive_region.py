"""One exclusive producer in all regions of a namespace: `exclusive_home` (X6)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from random import Random

import pytest

from emulator.client import AccessMode, ClientError
from emulator.errors import ServerError
from emulator.net.http import NoHttpResponse
from emulator.simulation.world import World
from tests.broker.regions import broker_of
from tests.broker.topic.test_exclusive_producers import TOPIC, Contender
from tests.broker.topologies import clusters

EXCLUSIVE, WAITING = AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE
REGIONS = ("us", "eu", "ap")
THREE_CLUSTERS = clusters(*((name,) for name in REGIONS), exclusive_home="us")
"""They share no configuration store."""


def owners(w: World) -> list[str]:
    """Return the producers that may publish right now, in any region."""
    brokers = [region.broker for region in w.regions.values()]
    topics = [broker.directory.serving.get(TOPIC) for broker in brokers if broker is not None]
    return [
        name
        for topic in topics
        if topic is not None
        for name, producer in topic.producers.items()
        if producer.source_region is None
    ]


async def move_home(w: World, region: str, home: str) -> None:
    """Change the policy in the cluster of a region."""
    path = "/admin/v2/namespaces/public/default/exclusiveHome"
    for _ in range(600):
        with contextlib.suppress(NoHttpResponse):
            if (await w.ask_admin(region, "POST", path, home)).status == 204:
                return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{region} could not be told")


async def rival(w: World, region: str, number: int) -> None:
    """A producer that keeps requesting the topic; when it is fenced, it asks as a new one."""
    for incarnation in itertools.count():
        one = Contender(w, f"{region}-{number}-{incarnation}", region=region)
        await one.opening
        with contextlib.suppress(ClientError):
            while True:
                await one.producer.send(b"mine")
                await asyncio.sleep(0.2)


@pytest.mark.world(topology=THREE_CLUSTERS)
async def test_clients_publish_in_the_exclusive_region_only(world: World) -> None:
    await world.ready()
    owner = await world.client("us").producer(TOPIC, name="owner", access_mode=EXCLUSIVE)
    for mode in (AccessMode.SHARED, EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING):
        with pytest.raises(ClientError) as caught:
            await world.client("eu").producer(TOPIC, name="stranger", access_mode=mode)
        assert caught.value.code is ServerError.NotAllowedError
        assert "in region us only" in str(caught.value)
    await owner.send(b"mine")
    await world.quiet()
    assert world.regions["eu"].medium.entries(TOPIC), "replication continues"


@pytest.mark.world(topology=THREE_CLUSTERS)
async def test_a_waiting_producer_is_promoted_when_the_exclusive_region_moves_there(world: World) -> None:
    await world.ready()
    owner = await world.client("us").producer(TOPIC, name="owner", access_mode=EXCLUSIVE)
    waiter = Contender(world, "waiter", region="eu")
    await world.simulation.until(lambda: TOPIC in broker_of(world, "eu").directory.serving)
    await world.simulation.until(
        lambda: len(broker_of(world, "eu").directory.serving[TOPIC].access.waiting) == 1
    )
    await move_home(world, "us", "eu")
    with pytest.raises(ClientError):
        await owner.send(b"too late")
    assert owners(world) == []
    await move_home(world, "eu", "eu")
    await waiter.opening
    await waiter.producer.send(b"mine")


@pytest.mark.world(topology=THREE_CLUSTERS)
async def test_a_disconnected_exclusive_region_stays_exclusive(world: World) -> None:
    """No other region may take over: it cannot ask whether this one still has an owner."""
    await world.ready()
    owner = await world.client("us").producer(TOPIC, name="owner", access_mode=EXCLUSIVE)
    waiter = Contender(world, "waiter", region="eu")
    for other in ("eu", "ap"):
        world.cut("us", other)
    await owner.send(b"alone")
    await asyncio.sleep(30)
    assert not waiter.has_it
    assert owners(world) == ["owner"]


@pytest.mark.world(topology=THREE_CLUSTERS)
async def test_a_former_exclusive_region_grants_nothing_when_it_returns(world: World) -> None:
    """Follow the order of docs/components/access.md: first the old region's cluster gets the change, then the new
    one's."""
    await world.ready()
    owner = await world.client("us").producer(TOPIC, name="owner", access_mode=WAITING)
    await move_home(world, "us", "eu")
    world.kill("us")
    await move_home(world, "eu", "eu")
    world.start("us")
    await world.ready()
    with pytest.raises(ClientError):
        await owner.send(b"as if nothing had happened")
    assert owners(world) == []


@pytest.mark.parametrize("seed", range(12))
def test_there_is_never_more_than_one_owner_in_all_regions(seed: int) -> None:
    """Whatever is killed, cut and moved, as long as the exclusive region is moved in the documented order."""
    chance = Random(f"home {seed}")
    with World(THREE_CLUSTERS) as w:

        async def watch() -> None:
            while True:
                assert len(owners(w)) <= 1, owners(w)
                await asyncio.sleep(0.005)

        async def disturb() -> None:
            home = "us"
            for _ in range(12):
                await asyncio.sleep(chance.uniform(0, 2))
                match chance.randrange(4):
                    case 0:
                        victim = chance.choice(REGIONS)
                        if w.regions[victim].is_up:
                            w.kill(victim)
                            await asyncio.sleep(chance.uniform(0, 1))
                            w.start(victim)
                            await w.simulation.until(lambda: w.regions[victim].broker is not None)  # noqa: B023
                    case 1:
                        w.cut(*chance.sample(REGIONS, 2))
                    case 2:
                        w.heal()
                    case _:
                        new = chance.choice(REGIONS)
                        for region in (home, *(one for one in REGIONS if one not in (home, new)), new):
                            await move_home(w, region, new)
                        home = new
            w.heal()

        async def scenario() -> None:
            await w.ready()
            watching = asyncio.ensure_future(watch())
            rivals = [asyncio.ensure_future(rival(w, region, n)) for region in REGIONS for n in range(2)]
            await disturb()
            await w.simulation.until(lambda: len(owners(w)) == 1)
            for task in (watching, *rivals):
                assert not task.done()
                task.cancel()

        w.play(scenario())
