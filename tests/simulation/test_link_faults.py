"""Faults of links that brokers emulate themselves, in virtual time: links of clients, stalls and flapping."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from emulator.client import EARLIEST, Client, ClientError
from emulator.model.values import CLIENTS
from emulator.runtimes.faults import LinkFault, link_fault
from emulator.simulation.scenarios.runtime import SimulatedRuntime
from emulator.simulation.world import World, simple_topology

TOPIC = "persistent://public/default/orders"


def faults_of(world: World) -> SimulatedRuntime:
    runtime = SimulatedRuntime(world, Path("run"))
    runtime._states.stopped.clear()  # `World.play` has started every region
    return runtime


async def begin(runtime: SimulatedRuntime, verb: str, a: str, b: str, **values: Any) -> LinkFault:
    fault = link_fault(verb, runtime.topology.region_names, a, b, **values)
    await fault.begin(runtime)
    return fault


async def publish_seconds(client: Client, payload: bytes = b"x") -> float:
    """Return the virtual seconds until a publish is acknowledged, by a producer that exists already."""
    producer = await client.producer(TOPIC)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await producer.send(payload)
    seconds = loop.time() - began
    await producer.close()
    return seconds


def test_a_fault_of_client_links_does_not_affect_links_between_regions() -> None:
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime, client = faults_of(world), world.client("us")
            await publish_seconds(client)
            fault = await begin(runtime, "cut", CLIENTS, "us")
            eu = await world.client("eu").producer(TOPIC)
            await eu.send(b"while the clients of us are cut off")
            await world.quiet()
            assert world.is_ready()
            await fault.end(runtime)
            await publish_seconds(client)

        world.play(main())


def test_a_client_whose_link_is_cut_times_out_and_its_messages_arrive_once_after_heal() -> None:
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime, client = faults_of(world), world.client("us")
            producer = await client.producer(TOPIC)
            await producer.send(b"before")
            await begin(runtime, "cut", CLIENTS, "us")
            pending = asyncio.ensure_future(producer.send(b"during"))
            with pytest.raises(ClientError):
                await world.client("us").producer(TOPIC)
            assert not pending.done()
            await runtime.heal()
            await pending
            reader = await world.client("us").reader(TOPIC, EARLIEST)
            assert [(await reader.receive()).payload for _ in range(2)] == [b"before", b"during"]

        world.play(main())


def test_what_a_held_link_queues_arrives_after_heal() -> None:
    with World(simple_topology(["us"])) as world:

        async def main() -> None:
            runtime = faults_of(world)
            producer = await world.client("us").producer(TOPIC)
            await begin(runtime, "hold", CLIENTS, "us")
            pending = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(3)]
            await asyncio.sleep(1)
            assert not any(send.done() for send in pending)
            await runtime.heal()
            positions = await asyncio.gather(*pending)
            assert positions == sorted(positions)

        world.play(main())


def test_the_latency_of_a_client_link_is_added_in_each_direction() -> None:
    with World(simple_topology(["us"])) as world:

        async def main() -> None:
            runtime, client = faults_of(world), world.client("us")
            assert await publish_seconds(client) < 0.1
            await begin(runtime, "latency", "us", CLIENTS, latency_ms=300)
            assert 0.6 <= await publish_seconds(client) < 0.8
            await runtime.heal()
            assert await publish_seconds(client) < 0.1

        world.play(main())


def test_a_region_knows_that_the_bandwidth_of_its_link_is_limited() -> None:
    """Its replicators then send as many bytes as Pulsar does, as those of a region that is a process."""
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime = faults_of(world)
            await world.quiet()
            us, eu = world.regions["us"].broker.peers["eu"], world.regions["eu"].broker.peers["us"]
            fault = await begin(runtime, "bandwidth", "us", "eu", one_way=True, bytes_per_second=10_000)
            assert (us.needs_single_frames, eu.needs_single_frames) == (True, False)
            await fault.end(runtime)
            assert not us.needs_single_frames

        world.play(main())


def test_a_slow_reader_receives_everything_and_other_clients_are_not_delayed() -> None:
    with World(simple_topology(["us"])) as world:

        async def main() -> None:
            runtime = faults_of(world)
            reader = await world.client("us").reader(TOPIC)
            await begin(runtime, "bandwidth", "us", CLIENTS, one_way=True, bytes_per_second=10_000)
            producer = await world.client("us").producer(TOPIC)
            loop = asyncio.get_running_loop()
            began = loop.time()
            sent = [asyncio.ensure_future(producer.send(bytes(10_000))) for _ in range(20)]
            await asyncio.gather(*sent)
            assert loop.time() - began < 5, "receipts are small"
            for _ in range(20):
                await reader.receive()
            assert loop.time() - began >= 19

        world.play(main())


def test_connections_that_are_reset_are_opened_again_and_nothing_is_lost() -> None:
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime, client = faults_of(world), world.client("us")
            producer = await client.producer(TOPIC)
            sent = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(10)]
            await begin(runtime, "reset", CLIENTS, "us")
            await begin(runtime, "reset", "us", "eu")
            await asyncio.gather(*sent)
            await world.quiet()
            reader = await world.client("eu").reader(TOPIC, EARLIEST)
            assert [(await reader.receive()).payload for _ in range(10)] == [b"%d" % n for n in range(10)]

        world.play(main())


def test_a_half_open_connection_is_silent_while_new_ones_work() -> None:
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime, client = faults_of(world), world.client("us")
            producer = await client.producer(TOPIC)
            await producer.send(b"before")
            loop = asyncio.get_running_loop()
            await begin(runtime, "half_open", CLIENTS, "us")
            began = loop.time()
            assert await publish_seconds(world.client("us")) < 0.1
            await producer.send(b"after")
            interval = world.client_settings.keep_alive_interval_seconds
            assert loop.time() - began >= interval, "only the keep-alive ends the old connection"

        world.play(main())


def test_a_stalled_link_delays_what_is_sent_during_a_stall() -> None:
    with World(simple_topology(["us"])) as world:

        async def main() -> None:
            runtime, loop = faults_of(world), asyncio.get_running_loop()
            producer = await world.client("us").producer(TOPIC)
            await begin(runtime, "stall", CLIENTS, "us", every_ms=5_000, stall_ms=1_000)
            times = []
            for _ in range(100):
                began = loop.time()
                await producer.send(b"x")
                times.append(loop.time() - began)
                await asyncio.sleep(0.1)
            assert 0.5 < max(times) < 1.2
            assert sorted(times)[len(times) // 2] < 0.1

        world.play(main())


def test_lossy_wifi_has_the_published_round_trips() -> None:
    """More than half longer than 20 ms, 10 % longer than 100 ms; here with the time of the commit."""
    with World(simple_topology(["us"])) as world:

        async def main() -> None:
            runtime, loop = faults_of(world), asyncio.get_running_loop()
            producer = await world.client("us").producer(TOPIC)

            async def round_trips() -> list[float]:
                times = []
                for _ in range(1_000):
                    began = loop.time()
                    await producer.send(b"x")
                    times.append(loop.time() - began)
                    await asyncio.sleep(0.097)  # of no common multiple with the stalls
                return sorted(times)

            plain = await round_trips()
            fault = await begin(runtime, "profile", CLIENTS, "us", profile="lossy-wifi")
            wifi = await round_trips()
            median = wifi[500] - plain[500]
            assert 0.015 < median < 0.025
            assert 0.07 < sum(time > 0.100 for time in wifi) / len(wifi) < 0.13
            assert 0.2 < wifi[-1] < 0.35
            await fault.end(runtime)
            assert (await round_trips())[-1] < 0.05

        world.play(main())


def test_regions_replicate_over_a_flapping_link() -> None:
    with World(simple_topology(["us", "eu"])) as world:

        async def main() -> None:
            runtime = faults_of(world)
            await begin(runtime, "flap", "us", "eu", period_ms=4_000, up=0.5)
            producer = await world.client("us").producer(TOPIC)
            for number in range(20):
                await producer.send(b"%d" % number)
                await asyncio.sleep(1)
            await world.quiet()
            reader = await world.client("eu").reader(TOPIC, EARLIEST)
            assert [(await reader.receive()).payload for _ in range(20)] == [b"%d" % n for n in range(20)]

        world.play(main())


def test_a_region_that_starts_again_still_has_the_fault_of_its_client_link() -> None:
    with World(simple_topology(["us"])) as world:

        async def main() -> None:
            runtime = faults_of(world)
            await begin(runtime, "latency", "us", CLIENTS, latency_ms=300)
            await runtime.restart("us")
            assert 0.6 <= await publish_seconds(world.client("us")) < 0.9

        world.play(main())
