"""Replication between regions whose links lose, delay, repeat or swap single commands, as a faulty peer would.

Whatever is affected: every message arrives in every region once and in order, and replicated subscriptions follow.
"""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.replication.link_handshake import HANDSHAKE_SECONDS
from emulator.broker.replication.replicator import Replicator
from emulator.client import EARLIEST, InitialPosition, Producer
from emulator.config.broker_settings import BrokerSettings
from emulator.model.frame_faults import BETWEEN_REGIONS, FrameAction, FrameFault
from emulator.simulation.world import World
from tests.broker.regions import broker_of

pytestmark = pytest.mark.usefixtures("simulation")

TOPIC = "persistent://public/default/orders"
QUICK = BrokerSettings(snapshot_interval_ms=500)
DROP, DELAY, DUPLICATE, REORDER = FrameAction


NOT_SENT_HERE = {
    "close_producer",
    "error",
    "get_or_create_schema",
    "get_or_create_schema_response",
    "partitioned_metadata",
    "partitioned_metadata_response",
    "success",
}
"""Commands that replication of a topic without partitions and schema does not need."""


def replicator_of(world: World, here: str = "us", there: str = "eu") -> Replicator:
    return broker_of(world, here).directory.serving[TOPIC].replicators[there]


def acted(world: World, here: str, there: str, *, outbound: bool = True) -> int:
    """Return how often the faults of a link acted, on the frames that a region counts."""
    link = world.regions[here].links[there]
    faults = link.outbound_faults if outbound else link.inbound_faults
    return sum(armed.acted for armed in faults.armed.values())


async def send_all(producer: Producer, *payloads: bytes) -> None:
    for payload in payloads:
        await producer.send(payload)


async def received(world: World, region: str, name: str = "reader") -> list[bytes]:
    reader = await world.client(region).reader(TOPIC, EARLIEST)
    found = []
    while await reader.has_message():
        found.append((await reader.receive()).payload)
    return found


@pytest.mark.parametrize("action", FrameAction)
@pytest.mark.parametrize("what", BETWEEN_REGIONS)
@pytest.mark.world("us", "eu", settings=QUICK)
async def test_nothing_is_lost_and_nothing_arrives_twice(
    world: World, action: FrameAction, what: str
) -> None:
    """Both links lose, delay, repeat or swap frames of each kind, on the open connection and on the next one."""
    by_ms = 3_000.0 if action is DELAY else 0.0
    faults = [FrameFault(action, what, 2, nth, by_ms) for nth in (1, 4)]
    faults.append(FrameFault(DROP, "send", nth=2))  # so that there is a SEND_ERROR
    clients = [world.client(region) for region in ("us", "eu")]
    producers = [await client.producer(TOPIC) for client in clients]
    consumer = await clients[0].subscribe(
        TOPIC, "s", initial_position=InitialPosition.EARLIEST, replicated=True
    )
    for producer, region in zip(producers, ("us", "eu"), strict=True):
        await producer.send(f"{region}-first".encode())
    await world.quiet()
    world.arm("us", "eu", *faults)
    world.arm("eu", "us", *faults)
    for number in range(8):
        for producer, region in zip(producers, ("us", "eu"), strict=True):
            await producer.send(f"{region}-{number}".encode())
        await consumer.acknowledge(await consumer.receive())
        if number == 4:
            await world.quiet(240)
            world.simulation.network.reset("us", "eu")
            await world.simulation.until(world.is_ready)
    await world.quiet(240)
    affected = [
        armed
        for region in world.regions.values()
        for link in region.links.values()
        for side in (link.outbound_faults, link.inbound_faults)
        for armed in side.armed.values()
        if armed.acted and armed.fault.what == what
    ]
    assert affected or what in NOT_SENT_HERE
    world.heal()
    for _ in range(10):
        await consumer.acknowledge(await consumer.receive())
    await world.quiet(240)
    for region in ("us", "eu"):
        found = await received(world, region)
        for origin in (b"us", b"eu"):
            own = [payload for payload in found if payload.startswith(origin)]
            assert own == [origin + b"-first", *(origin + b"-%d" % number for number in range(8))]
    await world.simulation.until(lambda: world.regions["eu"].backlog(TOPIC, "s") == 0)


@pytest.mark.parametrize("fault", [FrameFault(DROP, "send"), FrameFault(REORDER, "send", 2)])
@pytest.mark.world("us", "eu")
async def test_lost_and_swapped_messages_are_stored_in_order(world: World, fault: FrameFault) -> None:
    """The remote region stored the next message, whose position the lost one was below: when it was sent again, it was
    dropped as a duplicate."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    world.arm("us", "eu", fault)
    await send_all(producer, b"1", b"2", b"3")
    await world.quiet()
    assert acted(world, "us", "eu") == fault.count
    assert await received(world, "eu") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("fault", [FrameFault(DROP, "send", nth=30), FrameFault(REORDER, "send", 2, nth=30)])
@pytest.mark.world("us", "eu")
async def test_faults_count_each_message_of_many_that_are_sent_at_once(
    world: World, fault: FrameFault
) -> None:
    """Without faults they would be one SEND, and the user's 30th would never be sent."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    world.arm("us", "eu", fault)
    numbers = [b"%d" % number for number in range(41)]
    await asyncio.gather(*(producer.send(payload) for payload in numbers[1:]))
    await world.quiet()
    assert acted(world, "us", "eu") == fault.count
    assert await received(world, "eu") == numbers


@pytest.mark.world("us", "eu")
async def test_a_message_of_an_earlier_stream_that_arrives_late_changes_nothing(world: World) -> None:
    """It arrives in the middle of the next stream, whose messages it repeats."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    world.arm("us", "eu", FrameFault(DELAY, "send", 1, nth=2, by_ms=2_500.0))
    await send_all(producer, *(b"%d" % number for number in range(1, 20)))
    await world.quiet()
    assert acted(world, "us", "eu") == 1
    assert await received(world, "eu") == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("what", ["send", "send_receipt"])
@pytest.mark.world("us", "eu")
async def test_a_loss_is_noticed_without_further_messages(world: World, what: str) -> None:
    """The replicator waited for the receipt of the last entry for ever, although the link was established."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    source, target = ("us", "eu") if what == "send" else ("eu", "us")
    world.arm(source, target, FrameFault(DROP, what))
    replicator, since = replicator_of(world), replicator_of(world).peer.since_ms
    await producer.send(b"1")
    await world.simulation.until(lambda: "sent no receipt for 1 entries" in str(replicator.why_not()))
    await world.quiet()
    assert await received(world, "eu") == [b"0", b"1"]
    assert replicator.peer.since_ms == since, "the link stays established"


@pytest.mark.parametrize("what", ["connected", "auth_challenge"])
@pytest.mark.world("us", "eu")
async def test_a_handshake_that_loses_a_command_is_given_up(world: World, what: str) -> None:
    """The remote region considered the link established and responded to PINGs; this region waited for ever."""
    world.arm("eu", "us", FrameFault(DROP, what))
    world.simulation.network.reset("us", "eu")
    peer = broker_of(world, "us").peers["eu"]
    await world.simulation.until(lambda: acted(world, "us", "eu", outbound=False) == 1)
    begun_at = world.simulation.now
    assert not peer.connected
    await world.simulation.until(lambda: peer.connected)
    assert world.simulation.now - begun_at < HANDSHAKE_SECONDS + 2


@pytest.mark.world("us", "eu")
async def test_faults_of_a_region_that_is_down_act_when_it_starts(world: World) -> None:
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    world.kill("us")
    world.arm("us", "eu", FrameFault(DROP, "auth_response"))
    world.start("us")
    await world.simulation.until(lambda: world.regions["us"].is_up and acted(world, "us", "eu") == 1)
    await world.simulation.until(world.is_ready)


@pytest.mark.world("us", "eu")
async def test_a_restarted_region_counts_anew(world: World) -> None:
    world.arm("us", "eu", FrameFault(DROP, "ping", 1))
    await world.simulation.until(lambda: acted(world, "us", "eu") == 1)
    world.kill("us")
    world.start("us")
    await world.simulation.until(world.is_ready)
    assert acted(world, "us", "eu") == 0
    await world.simulation.until(lambda: acted(world, "us", "eu") == 1)


@pytest.mark.world("us", "eu")
async def test_heal_disarms_and_delivers_what_waits(world: World) -> None:
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    world.arm("us", "eu", FrameFault(DELAY, "send", by_ms=600_000.0), FrameFault(DROP, "pong", 50))
    await producer.send(b"1")
    await world.simulation.until(lambda: acted(world, "us", "eu") == 1)
    world.heal("us", "eu")
    await world.quiet()
    assert await received(world, "eu") == [b"0", b"1"]
    assert not world.regions["us"].links["eu"].outbound_faults.armed
