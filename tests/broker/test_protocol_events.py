"""Protocol events are counted where they happen, and requests wait for a count (`/geoemu/v1/protocol-events`)."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker import protocol_events
from emulator.broker.protocol_events import ProtocolEvents
from emulator.client import AccessMode, InitialPosition
from emulator.config.broker_settings import BrokerSettings
from emulator.model.protocol_events import COUNT_MAX, PROTOCOL_EVENTS, ProtocolState
from emulator.net.http import NoHttpResponse
from emulator.simulation.world import World
from tests.broker.metadata_sync.clusters import TWO, clusters, create, soon

ORDERS = "persistent://public/default/orders"
EVENTS = "/geoemu/v1/protocol-events"
QUICK = BrokerSettings(snapshot_interval_ms=100)


def events_of(world: World, region: str = "us") -> ProtocolEvents:
    broker = world.regions[region].broker
    assert broker is not None
    return broker.resources.protocol_events


async def publish_and_acknowledge(world: World, count: int = 5, topic: str = "orders") -> None:
    client = world.client("us")
    consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.EARLIEST, replicated=True)
    producer = await client.producer(topic)
    for _ in range(count):
        await producer.send(b"x")
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
    await client.close()


@pytest.mark.world("us", "eu", settings=QUICK)
async def test_snapshots_and_updates_are_counted_at_both_ends(world: World) -> None:
    await publish_and_acknowledge(world)
    await world.quiet()
    us, eu = events_of(world), events_of(world, "eu")
    topic = world.regions["us"].broker.directory.serving[ORDERS]  # type: ignore[union-attr]
    replicated = topic.subscriptions.replicated
    assert replicated is not None
    counters = replicated.snapshots.controller.counters
    assert counters.completed > 0
    assert us.count("snapshot_started", ORDERS) == counters.started
    assert us.count("snapshot_round", ORDERS) == us.count("snapshot_round") == counters.completed
    assert us.count("snapshot_response", ORDERS) == counters.completed
    assert us.count("update_sent", ORDERS) == eu.count("update_applied", ORDERS) > 0
    assert eu.count("update_sent") == us.count("update_applied") == 0


@pytest.mark.world("us", "eu", "ap", settings=QUICK)
async def test_a_response_of_each_region_and_round_is_counted(world: World) -> None:
    await publish_and_acknowledge(world, 1)
    await events_of(world).reached("snapshot_round", 1, seconds=10)
    assert events_of(world).count("snapshot_started") == 1
    assert events_of(world).count("snapshot_response") == 4, "two rounds with two other regions"


@pytest.mark.world("us")
async def test_events_of_partitions_count_for_the_partitioned_topic(world: World) -> None:
    client = world.client("us")
    for number in (0, 0, 1):
        producer = await client.producer(f"many-partition-{number}", access_mode=AccessMode.EXCLUSIVE)
        await producer.close()
    events, many = events_of(world), "persistent://public/default/many"
    assert events.count("takeover", f"{many}-partition-0") == 2
    assert events.count("takeover", many) == events.count("takeover") == 3


@pytest.mark.parametrize(("commit", "decided"), [(True, "committing"), (False, "aborting")])
@pytest.mark.world("us")
async def test_the_states_of_a_transaction_are_counted_in_order(
    world: World, commit: bool, decided: str
) -> None:
    client, seen = world.client("us"), []
    events = events_of(world)
    note = events.note

    def noted(event: str, topic: str = "", times: int = 1) -> None:
        seen.append(event)
        note(event, topic, times)

    events.note = noted  # type: ignore[method-assign]
    producer = await client.producer("orders")
    transaction = await client.new_transaction()
    await producer.send(b"x", transaction=transaction)
    await (transaction.commit() if commit else transaction.abort())
    await events.reached("transaction_ended", 1, seconds=10)
    assert seen == ["transaction_opened", f"transaction_{decided}", "transaction_ended"]


async def test_metadata_events_are_counted_by_the_sync_leaders() -> None:
    async with clusters(TWO) as world:
        us, eu = world.running["us"], world.running["eu"]
        await create(us)
        await soon(lambda: eu.policies.has_namespace("acme/orders"))
        published = us.resources.protocol_events.count("metadata_event_published")
        assert published >= 1
        await soon(lambda: eu.resources.protocol_events.count("metadata_event_applied") == published)


@pytest.mark.world("us", "eu", settings=QUICK)
async def test_a_request_is_answered_as_soon_as_the_count_is_reached(world: World) -> None:
    target = f"{EVENTS}/snapshot_round?count=2&topic=orders"
    request = asyncio.ensure_future(world.ask_admin("us", "GET", target, seconds=40))
    for _ in range(20):
        await asyncio.sleep(0.1)
        assert not request.done()
    began = world.simulation.now
    await publish_and_acknowledge(world, 1)
    assert await events_of(world).reached("snapshot_round", 1, seconds=10)
    assert not request.done()
    await publish_and_acknowledge(world, 1)
    assert await events_of(world).reached("snapshot_round", 2, seconds=10)
    reached = world.simulation.now
    response = await request
    assert response.json() == {"event": "snapshot_round", "topic": ORDERS, "count": 2, "start": 0}
    assert world.simulation.now - reached < 0.005
    assert reached - began < 10


@pytest.mark.world("us")
async def test_a_request_for_a_count_that_is_never_reached_ends_at_its_deadline(world: World) -> None:
    began = world.simulation.now
    response = await world.ask_admin("us", "GET", f"{EVENTS}/takeover?count={COUNT_MAX}&wait_ms=700")
    assert (response.status, response.json()["count"]) == (200, 0)
    assert 0.7 <= world.simulation.now - began < 0.75
    assert (await world.ask_admin("us", "GET", f"{EVENTS}/takeover")).json()["count"] == 0
    assert [row["event"] for row in (await world.ask_admin("us", "GET", EVENTS)).json()] == [*PROTOCOL_EVENTS]


@pytest.mark.world("us")
async def test_a_hundred_requests_wait_for_the_same_count_and_leave_nothing_behind(world: World) -> None:
    requests = [
        asyncio.ensure_future(world.ask_admin("us", "GET", f"{EVENTS}/takeover?count={count}", seconds=40))
        for count in (1, 2) * 50
    ]
    abandoned = asyncio.ensure_future(events_of(world).reached("takeover", 9, seconds=30))
    client = world.client("us")
    for _ in range(2):
        producer = await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
        await producer.close()
    assert all(response.json()["count"] >= 1 for response in await asyncio.gather(*requests))
    abandoned.cancel()
    await asyncio.wait({abandoned})
    assert events_of(world)._waiting == {}


@pytest.mark.world("us")
async def test_a_region_counts_from_zero_after_a_restart(world: World) -> None:
    client = world.client("us")
    await client.producer("orders", access_mode=AccessMode.EXCLUSIVE)
    assert (await world.ask_admin("us", "GET", f"{EVENTS}/takeover")).json()["count"] == 1
    await client.close()
    world.kill("us")
    world.start("us")
    await world.ready()
    row = (await world.ask_admin("us", "GET", f"{EVENTS}/takeover")).json()
    assert (row["count"], row["start"]) == (0, 1)


@pytest.mark.parametrize(
    ("target", "status", "reason"),
    [
        ("no_such", 404, "there is no event 'no_such': events are snapshot_started, "),
        ("takeover?count=-1", 400, "count: '-1' must be a whole number"),
        ("takeover?count=x", 400, "count: 'x' must be a whole number"),
        (f"takeover?count={COUNT_MAX + 1}", 400, f"count: {COUNT_MAX + 1} must be at most {COUNT_MAX}"),
        ("takeover?wait_ms=30001", 400, "wait_ms: 30001 must be at most 30000"),
        ("takeover?topic=a://b", 400, "topic 'a://b': domain must be persistent"),
        ("transaction_opened?topic=orders", 400, "transaction_opened belongs to no topic: omit the topic"),
    ],
)
@pytest.mark.world("us")
async def test_wrong_parameters_are_refused(world: World, target: str, status: int, reason: str) -> None:
    response = await world.ask_admin("us", "GET", f"{EVENTS}/{target}")
    assert response.status == status
    assert response.json()["reason"].startswith(reason)


async def test_separate_counts_of_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_events, "TOPICS_MAX", 2)
    events = ProtocolEvents()
    for topic in ("a", "b", "a", "c"):
        events.note("takeover", f"persistent://t/n/{topic}")
    assert events.count("takeover") == 4
    counts = [events.count("takeover", f"persistent://t/n/{topic}") for topic in ("a", "b", "c")]
    assert counts == [2, 0, 1], "the topic that did not change for the longest time is forgotten"


@pytest.mark.parametrize(
    ("counts", "topic", "problem"),
    [
        ({}, None, "name exactly one of snapshot_started"),
        ({"takeover": 1, "update_sent": 1}, None, "name exactly one of"),
        ({"snapshot_rounds": 1}, None, "snapshot_rounds is none of .*; did you mean snapshot_round?"),
        ({"takeover": 0}, None, "takeover: 0 must be a whole number from 1 to"),
        ({"takeover": -3}, None, "takeover: -3 must be"),
        ({"takeover_more": True}, None, "takeover_more: True must be"),
        ({"takeover": "2"}, None, "takeover: '2' must be"),
        ({"takeover": 1.5}, None, "takeover: 1.5 must be"),
        ({"takeover": COUNT_MAX + 1}, None, "must be a whole number from 1 to"),
        ({"transaction_ended": 1}, "orders", "transaction_ended belongs to no topic"),
        ({"takeover": 1}, "x://y", "domain must be persistent"),
    ],
)
def test_a_wrong_state_is_refused_with_its_rule(
    counts: dict[str, object], topic: str | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        ProtocolState.of(counts, topic)


def test_a_state_is_described_as_it_was_written() -> None:
    assert str(ProtocolState.of({"snapshot_round_more": 2}, "orders")) == f"snapshot_round_more 2 of {ORDERS}"


@pytest.mark.world("us")
async def test_a_region_stops_at_once_while_requests_wait(world: World) -> None:
    targets = [f"{EVENTS}/takeover?count={count}" for count in range(1, 11)]
    requests = [asyncio.ensure_future(world.ask_admin("us", "GET", one, seconds=40)) for one in targets]
    await asyncio.sleep(0.5)
    region, began = world.regions["us"], world.simulation.now
    assert region.broker is not None
    await region.host.ask(region.broker.stop())
    region.kill()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {NoHttpResponse}
    assert world.simulation.now - began < 1
