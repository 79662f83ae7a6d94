"""A replicator sends again as soon as its state allows it: no timer of an earlier state stops it or replaces that."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.broker.replication.replicator import Replicator
from emulator.client import InitialPosition
from emulator.core.replication import ReplicatorState
from emulator.errors import ServerError
from emulator.region_config import BrokerSettings
from emulator.simulation.world import World, world

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
    broker = w.regions[here].broker
    assert broker is not None
    return broker.directory.serving[TOPIC].replicators[there]


async def break_link(w: World, here: str, there: str) -> None:
    """Close the connection, as a router does that restarts; it is established again at once."""
    peer = replicator_of(w, here, there).peer

    async def abort() -> None:
        assert peer._transport is not None
        peer._transport.abort()

    await w.regions[here].host.ask(abort())


def test_a_link_flap_shortly_before_a_topic_rests_does_not_end_its_replication() -> None:
    """The remote region refused the producer, so a retry was due. The link broke and opened the producer at once, the
    topic became inactive and its replicator closed the producer. The retry that was still due opened a producer that
    the link did not know: the response was dropped, and the replicator waited for it for ever."""
    with world("us", "eu", settings=QUICK_ROUNDS) as w:

        async def story() -> None:
            producer = await w.client("eu").producer(TOPIC)
            await producer.send(b"0")
            await w.quiet()
            await ask(w, "us", "DELETE", f"{TARGET}?force=true")
            replicator = replicator_of(w, "eu", "us")
            await w.simulation.until(lambda: "was deleted" in replicator.life.why_not)
            await producer.send(b"1")
            await producer.close()
            refused_at = w.simulation.now
            await w.simulation.until(lambda: w.simulation.now > refused_at + 12)
            consumer = await w.client("us").subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
            await ask(w, "eu", "POST", f"{TARGET}/inactiveTopicPolicies", INACTIVE)
            await break_link(w, "eu", "us")
            assert (await consumer.receive()).payload == b"1"
            await w.simulation.until(lambda: replicator.life.state is ReplicatorState.RESTING)
            rested_at = w.simulation.now
            await w.simulation.until(lambda: w.simulation.now > rested_at + 6)
            assert replicator.life.state is ReplicatorState.RESTING, "no timer opens the producer"
            await (await w.client("eu").producer(TOPIC)).send(b"2")
            assert (await consumer.receive()).payload == b"2"
            assert replicator_of(w, "eu", "us") is replicator

        w.play(story())


def test_a_higher_rate_counts_at_once() -> None:
    """The wait of the lower rate went on, and no other one began while it did."""
    with world("us", "eu") as w:

        async def story() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"0")
            await w.quiet()
            replicator = replicator_of(w, "us", "eu")
            target = f"{NAMESPACE}/replicatorDispatchRate"
            await ask(w, "us", "POST", target, rate(1, 86_400))
            for number in range(40):
                await producer.send(b"%d" % number)
            await w.simulation.until(lambda: replicator.backlog == 39)
            await ask(w, "us", "POST", target, rate(10, 1))
            raised_at = w.simulation.now
            await w.simulation.until(lambda: not replicator.backlog or w.simulation.now > raised_at + 30)
            assert not replicator.backlog

        w.play(story())


def rate(messages: int, seconds: int) -> dict[str, int]:
    return {"dispatchThrottlingRateInMsg": messages, "ratePeriodInSecond": seconds}


def test_a_request_for_a_producer_that_is_never_answered_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    with world("us", "eu") as w:

        async def story() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"0")
            await w.quiet()
            replicator = replicator_of(w, "us", "eu")
            with monkeypatch.context() as lost:
                lost.setattr(replicator.peer, "open_producer", lambda user, topic: None)
                await break_link(w, "us", "eu")
                await w.simulation.until(lambda: replicator.life.state is ReplicatorState.OPENING)
                await producer.send(b"1")
            await w.simulation.until(lambda: not replicator.backlog)

        w.play(story())


def test_a_refusal_of_many_entries_in_flight_is_followed_by_one_short_back_off() -> None:
    """Each of them doubled the back-off and started a timer of its own."""
    with world("us", "eu") as w:

        async def story() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"0")
            await w.quiet()
            replicator = replicator_of(w, "us", "eu")

            async def refuse() -> None:
                for _ in range(20):
                    replicator.entry_refused(ServerError.PersistenceError, "the disk is full")

            await w.regions["us"].host.ask(refuse())
            assert replicator.life.state is ReplicatorState.REFUSED
            await producer.send(b"1")
            await w.simulation.until(lambda: not replicator.backlog, within_seconds=1)

        w.play(story())
