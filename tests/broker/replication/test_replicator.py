"""A replicator resumes as soon as its state allows it: no timer of an earlier state delays or replaces that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.broker.region import Region
from emulator.broker.replication.replicator import Replicator
from emulator.client import InitialPosition, Producer
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.core.replication.progress import ReplicatorState
from emulator.errors import ServerError
from emulator.simulation.world import World, world
from tests.broker.regions import broker_of

TOPIC = "persistent://public/default/orders"
TARGET = "/admin/v2/persistent/public/default/orders"
NAMESPACE = "/admin/v2/namespaces/public/default"
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 1,
    "deleteWhileInactive": True,
}
QUICK_ROUNDS = BrokerSettings(housekeeping_interval_ms=50)


async def ask(w: World, region: str, method: str, target: str, body: Any = None) -> None:
    answer = await w.ask_admin(region, method, target, body)
    assert answer.status in (200, 204), (answer.status, answer.body)


def replicator_of(w: World, here: str, there: str) -> Replicator:
    broker = broker_of(w, here)
    return broker.directory.serving[TOPIC].replicators[there]


async def break_link(w: World, here: str, there: str) -> None:
    """Close the connection, as a restarting router does; it is established again at once."""
    peer = replicator_of(w, here, there).peer

    async def abort() -> None:
        assert peer._transport is not None
        peer._transport.abort()

    await w.regions[here].host.ask(abort())


@pytest.mark.world("us", "eu", settings=QUICK_ROUNDS)
async def test_a_link_flap_before_a_replicator_rests_does_not_end_replication(world: World) -> None:
    """The remote region refused the producer, so a retry was due. The link broke and opened the producer at once, the
    topic became inactive and its replicator closed the producer. The retry that was still due opened a producer that
    the link did not know: the response was dropped, and the replicator waited for it for ever."""
    producer = await world.client("eu").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    await ask(world, "us", "DELETE", f"{TARGET}?force=true")
    replicator = replicator_of(world, "eu", "us")
    await world.simulation.until(lambda: "was deleted" in replicator.lifecycle.why_not)
    await producer.send(b"1")
    await producer.close()
    refused_at = world.simulation.now
    await world.simulation.until(lambda: world.simulation.now > refused_at + 12)
    consumer = await world.client("us").subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
    await ask(world, "eu", "POST", f"{TARGET}/inactiveTopicPolicies", INACTIVE)
    await break_link(world, "eu", "us")
    assert (await consumer.receive()).payload == b"1"
    await world.simulation.until(lambda: replicator.lifecycle.state is ReplicatorState.RESTING)
    rested_at = world.simulation.now
    await world.simulation.until(lambda: world.simulation.now > rested_at + 6)
    assert replicator.lifecycle.state is ReplicatorState.RESTING, "no timer opens the producer"
    await (await world.client("eu").producer(TOPIC)).send(b"2")
    assert (await consumer.receive()).payload == b"2"
    assert replicator_of(world, "eu", "us") is replicator


@pytest.mark.world("us", "eu")
async def test_a_higher_rate_applies_at_once(world: World) -> None:
    """The delay of the lower rate still ran, and no other one started meanwhile."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    replicator = replicator_of(world, "us", "eu")
    target = f"{NAMESPACE}/replicatorDispatchRate"
    await ask(world, "us", "POST", target, rate(1, 86_400))
    for number in range(40):
        await producer.send(b"%d" % number)
    await world.simulation.until(lambda: replicator.backlog == 39)
    await ask(world, "us", "POST", target, rate(10, 1))
    raised_at = world.simulation.now
    await world.simulation.until(lambda: not replicator.backlog or world.simulation.now > raised_at + 30)
    assert not replicator.backlog


def rate(messages: int, seconds: int) -> dict[str, int]:
    return {"dispatchThrottlingRateInMsg": messages, "ratePeriodInSecond": seconds}


@pytest.mark.world("us", "eu")
async def test_a_request_for_a_producer_that_is_never_answered_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    replicator = replicator_of(world, "us", "eu")
    with monkeypatch.context() as lost:
        lost.setattr(replicator.peer, "open_producer", lambda user, topic: None)
        await break_link(world, "us", "eu")
        await world.simulation.until(lambda: replicator.lifecycle.state is ReplicatorState.OPENING)
        await producer.send(b"1")
    await world.simulation.until(lambda: not replicator.backlog)


@pytest.mark.world("us", "eu")
async def test_a_refusal_of_many_entries_in_flight_causes_one_short_back_off(world: World) -> None:
    """Each of them doubled the back-off and started a timer of its own."""
    producer = await world.client("us").producer(TOPIC)
    await producer.send(b"0")
    await world.quiet()
    replicator = replicator_of(world, "us", "eu")

    async def refuse() -> None:
        for _ in range(20):
            replicator.entry_refused(ServerError.PersistenceError, "the disk is full")

    await world.regions["us"].host.ask(refuse())
    assert replicator.lifecycle.state is ReplicatorState.REFUSED
    await producer.send(b"1")
    await world.simulation.until(lambda: not replicator.backlog, within_seconds=1)


ACTIONS = st.sampled_from(
    [
        "publish",
        "flap",
        "cut",
        "heal",
        "refuse",
        "refuse entries",
        "rest",
        "unload",
        "remove",
        "add",
        "wait",
        "rest soon",
    ]
)


async def act(w: World, action: str, producer: Producer) -> None:
    """Apply one random event to a replicator, from inside its region."""
    broker = broker_of(w, "us")
    match action:
        case "publish":
            await producer.send(b"x")
        case "flap":
            w.simulation.network.reset("us", "eu")
        case "cut":
            w.cut("us", "eu")
        case "heal":
            w.heal("us", "eu")
        case "unload":
            await ask(w, "us", "PUT", f"{TARGET}/unload")
        case "remove" | "add":
            there = ["us"] if action == "remove" else ["us", "eu"]
            await ask(w, "us", "POST", f"{NAMESPACE}/replication", there)
        case "wait":
            await asyncio.sleep(1.5)
        case "rest soon":  # while a retry of before the flap is due
            for step, pause in (("refuse", 0.0), ("flap", 0.06), ("rest", 0.0)):
                await act(w, step, producer)
                await asyncio.sleep(pause)
        case _:
            await w.regions["us"].host.ask(inside(broker, action))


async def inside(broker: Region, action: str) -> None:
    topic = broker.directory.serving.get(TOPIC)
    for replicator in () if topic is None else list(topic.replicators.values()):
        if action == "rest":
            replicator.rest()
        elif action == "refuse":
            replicator.refused("no room")
        else:
            for _ in range(3):
                replicator.entry_refused(ServerError.PersistenceError, "the disk is full")


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(ACTIONS, st.sampled_from([0.0, 0.03, 0.2])), max_size=14))
def test_the_backlog_of_a_replicator_drains_once_links_are_healed(
    steps: list[tuple[str, float]],
) -> None:
    """Link flaps, rejections, idle topics, unloading and policy changes, in any order and at any distance."""
    near = LinkShape(latency_ms=1.0)
    with world("us", "eu", link=near, settings=BrokerSettings(peer_reconnect_backoff_ms=5)) as w:

        async def scenario() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"first")
            for action, pause in steps:
                await act(w, action, producer)
                await asyncio.sleep(pause)
            w.heal()
            await ask(w, "us", "POST", f"{NAMESPACE}/replication", ["us", "eu"])
            await producer.send(b"last")
            await w.simulation.until(lambda: backlog(w) == 0, within_seconds=60)
            assert replicator_of(w, "us", "eu").lifecycle.state is ReplicatorState.STREAMING
            stored = [entry.entry_id for entry in w.regions["eu"].medium.entries(TOPIC)]
            assert len(stored) == 2 + [action for action, _ in steps].count("publish")

        w.play(scenario())


def backlog(w: World) -> int:
    """Return eu's backlog; 1 while us has no replicator."""
    broker = w.regions["us"].broker
    topic = None if broker is None else broker.directory.serving.get(TOPIC)
    return 1 if topic is None or "eu" not in topic.replicators else topic.replicators["eu"].backlog
