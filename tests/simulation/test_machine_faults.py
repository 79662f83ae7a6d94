"""Faults of a region's disk, clock and power in virtual time, through the runtime contract."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.broker.topic.pending_publish import PendingPublish
from emulator.broker.topic.topic import Topic
from emulator.client import Client
from emulator.config.loading import load_topology
from emulator.errors import Refused
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.region import AS_SHIPPED, Overrides
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.scenarios.run import prepare_scenario, run_scenario
from emulator.simulation.scenarios.runtime import SimulatedRuntime
from emulator.simulation.world import World

pytestmark = [pytest.mark.world("us", "eu"), pytest.mark.within(300)]
TOPIC = "persistent://public/default/orders"


async def _up(world: World) -> SimulatedRuntime:
    runtime = SimulatedRuntime(world, Path("run"))
    await runtime.up()
    return runtime


def _stored(world: World, region: str = "us") -> list[bytes]:
    return [data for _, data in world.regions[region].medium.entries(TOPIC)]


def _holds(world: World, payload: bytes, region: str = "us") -> bool:
    return any(entry.endswith(payload) for entry in _stored(world, region))


async def test_a_slow_disk_makes_each_publish_take_longer(world: World) -> None:
    runtime = await _up(world)
    producer = await world.client("us").producer("orders")
    await producer.send(b"first")
    await runtime.disk("us", "slow", 3_000)
    begin = world.simulation.now
    await producer.send(b"slow")
    assert world.simulation.now - begin >= 3
    await runtime.disk("us", "healthy")
    begin = world.simulation.now
    await producer.send(b"fast")
    assert world.simulation.now - begin < 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("state", ["full", "failing"])
async def test_a_publish_waits_while_the_disk_refuses_it_and_is_stored_once_afterwards(
    world: World, state: str, seed: int
) -> None:
    """Also in the other region, to which the topic is replicated."""
    runtime = await _up(world)
    producer = await world.client("us").producer("orders")
    await producer.send(b"before")
    await runtime.disk("us", state)
    waiting = asyncio.ensure_future(producer.send(b"meanwhile"))
    await asyncio.sleep(20)
    assert not waiting.done(), "acknowledged although its write failed"
    await runtime.disk("us", "healthy")
    await waiting
    await world.quiet()
    for region in ("us", "eu"):
        assert sum(entry.endswith(b"meanwhile") for entry in _stored(world, region)) == 1


@pytest.mark.parametrize("state", ["full", "failing", "slow"])
async def test_a_region_that_starts_has_the_disk_that_it_had(world: World, state: str) -> None:
    runtime = await _up(world)
    await runtime.disk("us", state)
    await runtime.kill("us")
    await runtime.start("us")
    status = await runtime.status()
    assert status.regions[0].disk.state == state
    producer = asyncio.ensure_future(world.client("us").producer("orders"))
    await asyncio.sleep(5)
    if state != "slow":
        assert not producer.done(), "the topic was created on a disk that stores nothing"
    await runtime.disk("us", "healthy")
    await (await producer).send(b"after")


async def test_a_disk_that_becomes_full_while_the_region_is_down_is_full_when_it_starts(world: World) -> None:
    runtime = await _up(world)
    await runtime.kill("us")
    await runtime.disk("us", "full")
    await runtime.start("us")
    send = asyncio.ensure_future(_publish(world.client("us"), b"later"))
    await asyncio.sleep(10)
    assert not send.done()
    await runtime.disk("us", "healthy")
    await send


async def _publish(client: Client, payload: bytes) -> None:
    producer = await client.producer("orders")
    await producer.send(payload)


async def test_a_paused_region_gets_no_fault(world: World) -> None:
    runtime = await _up(world)
    await runtime.pause("us")
    for change in (runtime.disk("us", "full"), runtime.power_loss("us"), runtime.skew("us", 5)):
        with pytest.raises(Refused, match="us is paused"):
            await change
    await runtime.resume("us")


@pytest.mark.parametrize(
    ("state", "delay_ms", "error"),
    [("odd", None, "none of healthy"), ("slow", 0, "more than 0"), ("full", 3, "requires the state slow")],
)
async def test_a_disk_without_meaning_is_refused(
    world: World, state: str, delay_ms: float | None, error: str
) -> None:
    runtime = await _up(world)
    with pytest.raises(Refused, match=error):
        await runtime.disk("us", state, delay_ms)
    with pytest.raises(Refused, match="no region"):
        await runtime.disk("mars", "full")


@pytest.mark.world("us", "eu", disk=DiskFaults(commit_seconds=(5.0, 5.0)))
async def test_a_power_loss_keeps_what_was_acknowledged_and_nothing_else(world: World) -> None:
    runtime = await _up(world)
    producer = await world.client("us").producer("orders")
    await producer.send(b"acknowledged")
    asyncio.ensure_future(producer.send(b"unsynced")).add_done_callback(lambda done: done.exception())
    await asyncio.sleep(1)
    await runtime.power_loss("us")
    await runtime.power_loss("us")  # nothing is left to lose
    assert _holds(world, b"acknowledged")
    assert not _holds(world, b"unsynced")
    await runtime.start("us")


@pytest.mark.world("us", "eu", disk=RemoteFaults())
async def test_a_power_loss_of_a_region_with_a_remote_log_is_a_kill(world: World) -> None:
    runtime = await _up(world)
    await _publish(world.client("us"), b"acknowledged")
    await runtime.disk("us", "slow", 100)
    await runtime.power_loss("us")
    await runtime.start("us")
    assert _holds(world, b"acknowledged")


@pytest.mark.within(600)
async def test_a_clock_that_drifts_moves_away_while_timers_do_not(world: World) -> None:
    runtime = await _up(world)
    clock = world.regions["us"].host.wall_clock_ms
    await runtime.skew("us", 250, 1_000)
    await asyncio.sleep(100)
    assert clock.offset_ms == pytest.approx(350, abs=1)
    await runtime.kill("us")
    await asyncio.sleep(100)
    await runtime.start("us")
    assert clock.offset_ms == pytest.approx(450, abs=5)
    await runtime.skew("us", 0)
    await asyncio.sleep(100)
    assert clock.offset_ms == pytest.approx(0, abs=1)
    with pytest.raises(Refused, match="from -100000 to 100000 ppm"):
        await runtime.skew("us", 0, 100_001)


# Whole scenarios, with a verdict.


class _AcknowledgesFailedAppends(Topic):
    """A topic that acknowledges publishes although their append failed."""

    def _stored(self, batch: list[PendingPublish], done: asyncio.Future[int]) -> None:
        failure = done.exception()
        if failure is not None and not self.closed:
            self._acknowledge(batch)
        super()._stored(batch, done)


def _outcome(seed: int, overrides: Overrides = AS_SHIPPED) -> SimulationOutcome:
    path = Path(__file__).parents[1] / "runtimes" / "machine-faults.yaml"
    topology = load_topology(Path(__file__).parents[2] / "topology.yaml")
    return run_scenario(prepare_scenario(path, topology), seed, overrides=overrides)


@pytest.mark.parametrize("seed", range(3))
def test_a_scenario_with_every_machine_fault_loses_nothing(seed: int) -> None:
    outcome = _outcome(seed)
    assert outcome.violation is None
    found = [
        (event.op, event.detail) for event in outcome.events if event.op in ("disk", "skew", "power_loss")
    ]
    assert found == [
        ("disk", "slow, 100 ms"),
        ("disk", "full"),
        ("disk", "healthy"),
        ("disk", "failing"),
        ("disk", "healthy"),
        ("skew", "clock +250 ms, drift +200 ppm"),
        ("power_loss", None),
    ]


def test_the_verdict_finds_a_broker_that_acknowledges_failed_appends() -> None:
    outcome = _outcome(0, replace(AS_SHIPPED, topic=_AcknowledgesFailedAppends))
    assert outcome.violation is not None
