"""The example topology of each shape in virtual time: how long replication takes, and what a fault of a hop stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.client import EARLIEST, ClientError
from emulator.config.loading import load_topology
from emulator.config.shapes import ShapeName
from emulator.errors import ServerError
from emulator.runtimes.faults import link_fault
from emulator.simulation.scenarios.runtime import SimulatedRuntime
from emulator.simulation.world import SERVICE_PORT, World

EXAMPLES = Path(__file__).parents[2] / "examples" / "shapes"
TOPIC = "persistent://public/default/orders"
FIRST, LAST = "us-east", "eu-west"


def world_of(shape: ShapeName) -> World:
    topology = load_topology(EXAMPLES / f"{shape}.yaml")
    return World(
        topology.with_regions(lambda region: replace(region, host=region.name, service_port=SERVICE_PORT))
    )


def runtime_of(world: World) -> SimulatedRuntime:
    runtime = SimulatedRuntime(world, Path("run"))
    runtime._states.stopped.clear()  # `World.play` has started every region
    return runtime


def stored(world: World, region: str) -> int:
    return len(world.regions[region].medium.entries(TOPIC))


async def replication_seconds(world: World, source: str, target: str) -> float:
    """Return the virtual seconds from the send of a message to its reception in another region. Both topics exist."""
    producer = await world.client(source).producer(TOPIC)
    reader = await world.client(target).reader(TOPIC, EARLIEST)
    await producer.send(b"the first one opens the topics")
    await reader.receive()
    began = world.simulation.now
    await producer.send(b"the second one is measured")
    await reader.receive()
    return world.simulation.now - began


@pytest.mark.parametrize(("shape", "hops"), [("mesh", 1), ("hub", 1), ("chain", 4), ("ring", 1)])
def test_replication_takes_the_latency_of_all_hops(shape: ShapeName, hops: int) -> None:
    with world_of(shape) as world:
        hop_s = world.topology.link(FIRST, "us-west").latency_ms / 1000

        async def main() -> None:
            assert hops * hop_s < await replication_seconds(world, FIRST, LAST) < (hops + 1) * hop_s + 0.02

        world.play(main())


def test_branches_of_a_hub_replicate_to_each_other_while_its_region_is_down() -> None:
    with world_of("hub") as world:

        async def main() -> None:
            world.kill(FIRST)
            assert await replication_seconds(world, "us-west", LAST) > 2 * 0.010

        world.play(main())


def test_a_cut_hop_stops_replication_over_it_until_it_is_healed() -> None:
    with world_of("chain") as world:

        async def main() -> None:
            runtime = runtime_of(world)
            fault = link_fault("cut", world.topology.region_names, "us-west", "ap-south")
            await fault.begin(runtime)
            east = await world.client(FIRST).producer(TOPIC)
            west = await world.client(LAST).producer(TOPIC)
            await east.send(b"east of the cut")
            await west.send(b"west of the cut")
            await world.simulation.until(lambda: stored(world, "us-west") == stored(world, "ap-south") == 1)
            await asyncio.sleep(30)
            assert [stored(world, region) for region in world.regions] == [1, 1, 1, 1, 1]
            cut = {
                (link.source, link.target) for link in (await runtime.status()).links if link.state == "cut"
            }
            near, far = ("us-east", "us-west"), ("ap-south", "eu-central", "eu-west")
            assert cut == {way for a in near for b in far for way in ((a, b), (b, a))}
            await fault.end(runtime)
            await world.quiet()
            assert [stored(world, region) for region in world.regions] == [2, 2, 2, 2, 2]

        world.play(main())


def test_clients_of_a_standby_region_publish_after_it_was_made_the_active_one() -> None:
    with world_of("active-standby") as world:

        async def main() -> None:
            active = await world.client(FIRST).producer(TOPIC)
            await active.send(b"from the active region")
            with pytest.raises(ClientError) as caught:
                await world.client(LAST).producer(TOPIC)
            assert caught.value.code is ServerError.NotAllowedError
            await world.quiet()
            reader = await world.client(LAST).reader(TOPIC, EARLIEST)
            assert (await reader.receive()).payload == b"from the active region"
            world.kill(FIRST)
            path = "/admin/v2/namespaces/public/default/exclusiveHome"
            assert (await world.ask_admin(LAST, "POST", path, LAST)).status == 204
            standby = await world.client(LAST).producer(TOPIC)
            await standby.send(b"after the fail-over")
            assert (await reader.receive()).payload == b"after the fail-over"

        world.play(main())
