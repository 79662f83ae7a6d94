"""Exclusive producers (PIP-68) and their queue (PIP-440), with our own client under virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from emulator.client import AccessMode, Client, ClientError, ClientSettings
from emulator.client.producer import Producer
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ServerError
from emulator.model.stored_keys import GrantKey, WaitQueueKey
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.world import DRIVER, World
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAITING, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING
WITH_GRACE_PERIOD = BrokerSettings(exclusive_grace_period_ms=5_000)
WITHOUT_GRACE_PERIOD = replace(WITH_GRACE_PERIOD, exclusive_grace_period_ms=0)
SLOW = DiskFaults(commit_seconds=(0.2, 0.2))
REMOTE = RemoteFaults(commit_seconds=(0.2, 0.2))
QUICK = ClientSettings(backoff_seconds=0.05, backoff_seconds_max=0.4)


def in_line(w: World) -> list[str]:
    region = w.regions["us"].broker
    topic = region.directory.serving.get(TOPIC) if region is not None else None
    return [] if topic is None else [one.producer_name for one in topic.access.waiting]


def stored_line(w: World) -> list[str]:
    """Return the producers that keep a place in the queue over a restart."""
    stored = broker_of(w).store.get(WaitQueueKey(TOPIC).text)
    return [] if stored is None else [name for name, _ in json.loads(stored.value)]


class Contender:
    """A client whose producer waits for the topic."""

    def __init__(self, w: World, name: str, priority: int = 0, *, region: str = "us") -> None:
        self.name = name
        host = w.client_host(name, region)
        host.network.loop = w.simulation.host(DRIVER).loop
        self.host = host
        self.client = w.client_on(host, (region,), QUICK)
        self.opening = asyncio.ensure_future(
            self.client.producer(TOPIC, name=name, access_mode=WAITING, priority=priority)
        )

    def die(self, *, silently: bool = False) -> None:
        """End like a killed program: its connections are gone, and it does not reconnect."""
        self.client.closed = True
        self.host.network.program_died(silently=silently)

    @property
    def has_it(self) -> bool:
        return self.opening.done()

    @property
    def producer(self) -> Producer:
        return self.opening.result()


async def contenders(w: World, *names: str) -> list[Contender]:
    """Create contenders that ask in this order; the first one gets the topic."""
    made: list[Contender] = []
    for name in names:
        made.append(Contender(w, name))
        await w.simulation.until(lambda one=made[-1]: one.has_it or one.name in in_line(w))  # type: ignore[misc]
    return made


async def fenced(producer: Producer) -> ClientError:
    """Return the error of a loser's next publish."""
    with pytest.raises(ClientError) as caught:
        await producer.send(b"too late")
    assert caught.value.code is ServerError.ProducerFenced
    return caught.value


def entries(w: World, region: str = "us") -> list[bytes]:
    return [entry.data for entry in w.regions[region].medium.entries(TOPIC)]


async def test_a_waiting_producer_is_promoted_when_the_owner_closes(world: World) -> None:
    owner, waiter = await contenders(world, "owner", "waiter")
    assert not waiter.has_it
    await owner.producer.close()
    await waiter.opening
    assert (owner.producer.topic_epoch, waiter.producer.topic_epoch) == (0, 1)
    await waiter.producer.send(b"mine")


async def test_a_waiting_producer_is_promoted_when_the_owner_dies(world: World) -> None:
    owner, waiter = await contenders(world, "owner", "waiter")
    owner.die()
    await waiter.opening


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING, SHARED], ids=lambda mode: mode.label)
async def test_a_fenced_producer_gets_producer_fenced_and_nothing_it_sends_is_stored(
    world: World,
    mode: AccessMode,
) -> None:
    loser = await world.client("us").producer(TOPIC, name="loser", access_mode=mode)
    await loser.send(b"before")
    winner = await world.client("us").producer(TOPIC, name="winner", access_mode=FENCING)
    await fenced(loser)
    await fenced(loser)
    await winner.send(b"after")
    assert len(entries(world)) == 2


@pytest.mark.world("us", disk=SLOW)
async def test_pending_sends_of_a_fenced_producer_are_stored_before_the_new_epoch(world: World) -> None:
    loser = await world.client("us").producer(TOPIC, name="loser", access_mode=EXCLUSIVE)
    for number in range(5):
        loser.send_nowait(b"%d" % number)
    await world.simulation.until(lambda: broker_of(world).directory.serving[TOPIC].publishing.issued > 0)
    winner = await world.client("us").producer(TOPIC, name="winner", access_mode=FENCING)
    await winner.send(b"after")
    of_winner = [b"winner" in entry for entry in entries(world)]
    assert of_winner == [False] * 5 + [True]


async def test_a_waiting_producer_that_is_closed_leaves_the_queue(world: World) -> None:
    owner, waiter, last = await contenders(world, "owner", "waiter", "last")
    waiter.opening.cancel()
    await world.simulation.until(lambda: in_line(world) == ["last"])
    await owner.producer.close()
    await last.opening
    assert last.producer.topic_epoch == 1


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_owner_and_queue_order_survive_an_unload(
    world: World,
) -> None:
    owner, first, second = await contenders(world, "owner", "first", "second")
    await broker_of(world).directory.unload(TOPIC, "requested by the admin API")
    await owner.producer.send(b"still mine")
    await world.simulation.until(lambda: in_line(world) == ["first", "second"])
    assert owner.producer.topic_epoch == 0
    assert not first.has_it
    assert not second.has_it


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_owner_and_queue_order_survive_a_kill(world: World, seed: int) -> None:
    owner, *_ = await contenders(world, "owner", "c", "a", "b")
    await world.simulation.until(lambda: in_line(world) == ["c", "a", "b"])
    await world.simulation.until(lambda: stored_line(world) == ["c", "a", "b"])
    world.kill("us")
    world.start("us")
    await owner.producer.send(b"still mine")
    await world.simulation.until(lambda: in_line(world) == ["c", "a", "b"])
    assert owner.producer.topic_epoch == 0


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_an_owner_that_died_with_the_region_is_waited_for_during_the_grace_period(world: World) -> None:
    owner, waiter = await contenders(world, "owner", "waiter")
    owner.die()
    world.kill("us")
    world.start("us")
    began = world.simulation.now
    await waiter.opening
    assert 4 < world.simulation.now - began < 8
    assert waiter.producer.topic_epoch == 1


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("its own disk", marks=pytest.mark.world("us", disk=SLOW, settings=WITHOUT_GRACE_PERIOD)),
        pytest.param(
            "a log elsewhere", marks=pytest.mark.world("us", disk=REMOTE, settings=WITHOUT_GRACE_PERIOD)
        ),
    ],
)
@pytest.mark.parametrize(
    "moment", ["before the epoch is durable", "when it is", "when its owner was notified"]
)
async def test_a_kill_at_any_step_of_a_promotion_leaves_one_owner_and_epochs_never_fall(
    world: World, moment: str, where: str
) -> None:
    owner, waiter = await contenders(world, "owner", "waiter")
    await owner.producer.close()
    stored = GrantKey.of(TOPIC, 1).text
    happened: dict[str, Callable[[], bool]] = {
        "before the epoch is durable": lambda: broker_of(world).directory.serving[TOPIC].access.waiting == [],
        "when it is": lambda: broker_of(world).store.get(stored) is not None,
        "when its owner was notified": lambda: waiter.has_it,
    }
    await world.simulation.until(happened[moment])
    world.kill("us")
    world.start("us")
    await waiter.opening
    await waiter.producer.send(b"mine")
    assert waiter.producer.topic_epoch in (1, 2)
    grants = broker_of(world).store.scan(GrantKey.prefix(TOPIC))
    assert len(grants) == waiter.producer.topic_epoch + 1


async def test_a_fenced_producer_cannot_fence_its_successor(world: World) -> None:
    """A fencing producer reconnects by itself, with its old epoch: that must not fence again."""
    first = await world.client("us").producer(TOPIC, name="first", access_mode=FENCING)
    second = await world.client("us").producer(TOPIC, name="second", access_mode=FENCING)
    await fenced(first)
    await second.send(b"mine")
    assert second.topic_epoch == 1


@pytest.mark.world("us", "eu")
async def test_replicators_do_not_prevent_exclusive_access(world: World) -> None:
    """Exclusive in both regions: each has its owner, and both logs have both streams."""
    await world.ready()
    owners = {}
    for region in ("us", "eu"):
        client = world.client(region)
        owners[region] = await client.producer(TOPIC, name=f"owner-{region}", access_mode=EXCLUSIVE)
        await owners[region].send(b"of %s" % region.encode())
    for region in ("us", "eu"):
        await world.simulation.until(
            lambda region=region: (
                {b"of us", b"of eu"}  # type: ignore[misc]
                <= {
                    payload
                    for payload in (b"of us", b"of eu")
                    if any(payload in e for e in entries(world, region))
                }
            )
        )
        fencing = await world.client(region).producer(TOPIC, name=f"new-{region}", access_mode=FENCING)
        await fencing.send(b"again")
    await world.quiet()


@pytest.mark.world("us", settings=replace(WITH_GRACE_PERIOD, topic_idle_ms=500))
async def test_a_topic_with_a_waiting_producer_is_not_unloaded(world: World) -> None:
    shared = await world.client("us").producer(TOPIC, name="shared")
    waiter = Contender(world, "waiter")
    await world.simulation.until(lambda: in_line(world) == ["waiter"])
    await asyncio.sleep(3)
    assert in_line(world) == ["waiter"]
    await shared.close()
    await waiter.opening


def client_of(w: World) -> Client:
    return w.client("us")


@pytest.mark.world("us", disk=SLOW)
async def test_shared_producers_are_admitted_after_the_owner_left(world: World) -> None:
    owner = await client_of(world).producer(TOPIC, name="owner", access_mode=EXCLUSIVE)
    with pytest.raises(ClientError) as caught:
        await client_of(world).producer(TOPIC, name="shared")
    assert caught.value.code is ServerError.ProducerBusy
    await owner.close()
    shared = await client_of(world).producer(TOPIC, name="shared")
    assert shared.topic_epoch is None
    await shared.send(b"hello")


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD, disk=SLOW)
async def test_a_claim_being_granted_during_an_unload_is_answered_at_once(
    world: World,
) -> None:
    """It would wait for a response until its client gives the connection up."""
    other = await world.client("us").producer(TOPIC)
    await other.close()
    claim = asyncio.ensure_future(world.client("us").producer(TOPIC, name="a", access_mode=EXCLUSIVE))
    topic = broker_of(world).directory.serving[TOPIC]
    await world.simulation.until(lambda: topic.access.owner is not None)
    began = world.simulation.now
    unloading = broker_of(world).directory.unload(TOPIC, "an administrator wants it so")
    await world.regions["us"].host.ask(unloading)
    await claim
    assert world.simulation.now - began < 2.0


@pytest.mark.world("us", settings=WITH_GRACE_PERIOD)
async def test_queue_places_survive_a_clock_that_was_set_back(world: World) -> None:
    owner, early = await contenders(world, "owner", "early")
    world.regions["us"].host.wall_clock_ms.jump(-3_600_000)
    unloading = broker_of(world).directory.unload(TOPIC, "an administrator wants it so")
    await world.regions["us"].host.ask(unloading)
    await world.simulation.until(lambda: in_line(world) == ["early"])
    late = Contender(world, "late")
    await world.simulation.until(lambda: "late" in in_line(world))
    await owner.producer.close()
    await early.opening
    assert not late.has_it
