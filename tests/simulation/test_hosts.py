"""Leaders, uptime checkers, last resorts, two owners: the scenarios of PIP-68 and PIP-440 in virtual time, and their
results with the switches to upstream."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from emulator.client import AccessMode, ClientError
from emulator.config.loading import load_topology
from emulator.errors import ConfigurationError, ServerError
from emulator.run.history_events import HistoryEvent
from emulator.run.history_events import Outcome as Outcome_
from emulator.scenarios.actors.host import State, read
from emulator.scenarios.actors.specs import HostSpec
from emulator.scenarios.format.entries import numbered, own_topics, priorities
from emulator.scenarios.scenario import find_scenario
from emulator.simulation.history import SimulatedHistory
from emulator.simulation.outcome import SimulationOutcome
from emulator.simulation.scenarios.figures import ownership_figures
from emulator.simulation.scenarios.hosts import SimulatedHost
from emulator.simulation.scenarios.run import prepare_scenario, run_scenario
from emulator.simulation.world import World, simple_topology

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
TOPOLOGY = load_topology(ROOT / "topology.yaml")


@cache
def outcome_of(name: str) -> SimulationOutcome:
    """Run a scenario that is shipped with geoemu."""
    outcome = run_scenario(prepare_scenario(find_scenario(Path(name)), TOPOLOGY), 1)
    assert outcome.violation is None
    return outcome


def written(events: list[HistoryEvent], topic: str, region: str) -> list[Mapping[str, Any]]:
    """Return the messages that a region's owners have acknowledged on a topic, in the order of its log."""
    ok = [
        event
        for event in events
        if event.op == "publish" and event.outcome == "ok" and event.region == region
    ]
    mine = [event for event in ok if event.topic == topic and event.message_id is not None]
    mine.sort(key=lambda event: [int(part) for part in str(event.message_id).split(":")])
    return [read(str(event.detail).encode()) for event in mine]


def introductions(messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if message["kind"] == "introduction"]


def owners(events: list[HistoryEvent], group: str) -> Counter[str]:
    """Return the number of topics that each host of a group owned last, by its acknowledged publishes."""
    owner: dict[str, str] = {}
    for event in events:
        if event.op == "publish" and event.outcome == "ok" and event.actor.startswith(f"{group}-"):
            owner[str(event.topic)] = event.actor
    return Counter(owner.values())


def test_each_leader_continues_from_a_state_equal_to_the_log() -> None:
    """Whatever was killed: numbers neither jump nor fall, and a leader reads what the earlier ones wrote."""
    outcome = outcome_of("leader-election")
    topic = "persistent://public/default/metadata"
    messages = written(outcome.events, topic, "us-east")
    state, leaders = State(), list[str]()
    for message in messages:
        if message["kind"] == "introduction":
            assert (message["state"], message["read"]) == (state.digest, state.messages)
            leaders.append(str(message["producer"]))
        else:
            assert message["number"] == state.next_number
        state.apply(json.dumps(message).encode())
    assert leaders == ["worker-1", "worker-2", "worker-3"]
    assert [one["epoch"] for one in introductions(messages)] == [0, 1, 2]


def test_first_in_first_out_one_host_gets_all_the_work_of_the_dead_one() -> None:
    """Balanced priorities spread it evenly, random ones in between."""
    outcome = outcome_of("uptime-checkers")
    fifo, balanced, by_chance = (owners(outcome.events, group) for group in ("fifo", "balanced", "random"))
    assert sorted(fifo.values()) == [8, 8, 8, 16]
    assert sorted(balanced.values()) == [10, 10, 10, 10]
    assert 10 < max(by_chance.values()) < 16
    assert sum(by_chance.values()) == 40


def test_figures_contain_the_load_of_the_busiest_host_and_the_time_without_an_owner() -> None:
    figures = outcome_of("uptime-checkers").figures
    loads = {name: value for name, value in figures.items() if "most topics" in name}
    assert loads == {
        "fifo-1 killed: most topics of one host afterwards": 16,
        "balanced-1 killed: most topics of one host afterwards": 10,
        "random-1 killed: most topics of one host afterwards": 11,
    }
    assert 0 < figures["fifo-1 killed: last topic without an owner for (s)"] < 2


def test_topics_without_a_new_owner_are_in_the_figures() -> None:
    def event(at_ms: float, op: str, outcome: Outcome_, **fields: Any) -> HistoryEvent:
        return HistoryEvent(at_ms, "h-1", op, outcome, region="us", **fields)

    events = [
        event(1, "connect", "ok", topic="t", topic_epoch=0),
        event(2, "note", "fact", detail="kill h-1"),
    ]
    assert ownership_figures(events) == {"h-1 killed: topics without a new owner": 1}


def test_an_owner_publishes_its_name_and_priority() -> None:
    outcome = outcome_of("last-resort")
    (first, *_) = introductions(written(outcome.events, "persistent://public/default/endpoint-1", "us-east"))
    assert (first["producer"], first["priority"], first["epoch"]) == ("primary-1", 3, 0)


def test_the_last_resort_is_the_last_although_it_came_first() -> None:
    outcome = outcome_of("last-resort")
    for number in range(1, 13):
        topic = f"persistent://public/default/endpoint-{number}"
        names = [str(one["producer"]) for one in introductions(written(outcome.events, topic, "us-east"))]
        standby = [name.startswith("backup") for name in names]
        assert standby.count(True) == 1, names
        assert not any(standby[: standby.index(True)])
        assert all(name.startswith("primary") for name in names[standby.index(True) + 1 :])


def test_each_report_counts_once_and_none_of_an_owner_after_the_first_of_the_next_one() -> None:
    outcome = outcome_of("owner-reports")
    received = [json.loads(str(event.detail)) for event in outcome.events if event.op == "receive"]
    assert [one["number"] for one in received] == list(range(len(received)))
    assert [one["epoch"] for one in received] == sorted(one["epoch"] for one in received)
    assert {one["epoch"] for one in received} == {0, 1, 2}


def test_the_report_of_an_owner_that_lost_its_topic_is_stored_and_does_not_count() -> None:
    """The topic of the reports accepts it: only the message on the owned topic is rejected."""
    events = outcome_of("owner-reports").events
    taken_over = next(
        at for at, one in enumerate(events) if one.op == "receive" and '"epoch":1' in str(one.detail)
    )
    stale = [
        one
        for one in events[taken_over:]
        if one.op == "publish"
        and (one.actor, one.outcome) == ("checker-1", "ok")
        and '"epoch":0' in str(one.detail)
    ]
    assert stale
    transactions = {one.transaction for one in stale}
    refused = {one.transaction for one in events if one.op == "publish" and "fenced" in str(one.error)}
    committed = {one.transaction for one in events if (one.op, one.action) == ("end_transaction", "commit")}
    assert transactions <= refused
    assert not transactions & committed


def test_two_regions_have_two_owners_and_both_streams_are_in_every_log() -> None:
    outcome = outcome_of("two-owners")
    events = outcome.events
    topic = "persistent://public/default/registry"
    for region, names in (("us-east", ["east-1", "east-2"]), ("eu-central", ["central-1"])):
        found = introductions(written(events, topic, region))
        assert [one["producer"] for one in found] == names
        assert [one["epoch"] for one in found] == list(range(len(names)))
    received = {event.producer for event in events if event.op == "receive" and event.region == "us-west"}
    assert received == {"east-1", "east-2", "central-1"}


def test_upstream_priorities_count_for_nothing() -> None:
    """`queue_priority: upstream`: the last resort takes over at once, because it came first. The scenario fails."""
    topology = replace(TOPOLOGY, compatibility={"queue_priority": "upstream"})
    outcome = run_scenario(prepare_scenario(find_scenario(Path("last-resort")), topology), 1)
    assert outcome.violation is not None
    assert "primary-2 owns 4, not 6" in outcome.violation.sentence
    assert outcome.figures["primary-1 killed: most topics of one host afterwards"] == 4
    first_heirs = owners([event for event in outcome.events if event.actor != "primary-1"], "backup")
    assert first_heirs == {"backup-1": 4}


WAITERS = """
name: waiters
topic: persistent://public/default/orders
actors:
  producers:
    - {name: first, region: us-east, access: wait, priority: -1}
    - {name: low, region: us-east, access: wait, priority: -1}
    - {name: high, region: us-east, access: wait, priority: 7, messages: 20}
    - {name: barred, region: us-east, access: exclusive}
  consumers:
    - {name: reader, region: us-west, subscription: s}
steps:
  - begin: [reader, first]
  - wait_until: {producer: first, published: 20}
  - begin: low
  - begin: high
  - finish: first
  - wait_until: {producer: high, published: 20}
  - finish: high
  - wait_until: {producer: low, published: 20}
  - finish: low
  - begin: barred
  - wait_until: {producer: barred, published: 20}
  - finish: barred
  - drain: 10s
"""
"""Producers take turns: the highest priority first, and an exclusive one when no other is left."""


def test_producers_that_wait_take_turns_by_their_priority(tmp_path: Path) -> None:
    path = tmp_path / "waiters.yaml"
    path.write_text(WAITERS)
    outcome = run_scenario(prepare_scenario(path, TOPOLOGY), 1)
    assert outcome.violation is None
    stored = [event for event in outcome.events if event.op == "receive"]
    turns = [event.producer for event in stored]
    assert list(dict.fromkeys(turns)) == ["first", "high", "low", "barred"]
    assert turns == sorted(turns, key=["first", "high", "low", "barred"].index)


def test_a_producer_that_waits_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "waiters.yaml"
    path.write_text(WAITERS.replace("finish: first", "move: {producer: first, to: us-west}"))
    with pytest.raises(ConfigurationError, match="first waits for exclusive access in its region"):
        prepare_scenario(path, TOPOLOGY)


def test_upstream_all_lines_are_first_in_first_out() -> None:
    """`queue_priority: upstream`: whatever priorities the hosts use, the second one gets every topic."""
    topology = replace(TOPOLOGY, compatibility={"queue_priority": "upstream"})
    outcome = run_scenario(prepare_scenario(find_scenario(Path("uptime-checkers")), topology), 1)
    loads = {name: value for name, value in outcome.figures.items() if "most topics" in name}
    assert set(loads.values()) == {16}
    assert len(loads) == 3


# With hosts alone, on one region.


class Stage:
    """A region, and hosts that share topics on it."""

    def __init__(self, world: World, topics: int = 1) -> None:
        self.world = world
        self.record = SimulatedHistory(lambda: world.simulation.now)
        self.topics = numbered("persistent://public/default/t", topics)

    async def hosts(self, *names: str, rebuilds: bool = False) -> list[SimulatedHost]:
        """The first one owns every topic, the others wait in order."""
        hosts = [
            SimulatedHost(self.world, self.record, self.part(name, index, rebuilds))
            for index, name in enumerate(names)
        ]
        for host in hosts:
            await host.begin("")
            await host.join_queues()
        return hosts

    def part(self, name: str, index: int, rebuilds: bool) -> HostSpec:
        return HostSpec(
            name=name,
            region="us",
            group="h",
            topics=self.topics,
            own=own_topics(self.topics, 0, 1) if index == 0 else (),
            priorities=priorities(0, name, index, 1, self.topics),
            heartbeats_per_second=5,
            rebuilds=rebuilds,
        )

    async def until_holds(self, *hosts: SimulatedHost, within_seconds: float = 20) -> None:
        """Wait until one of them owns each topic."""
        await self.world.simulation.until(
            lambda: {topic for host in hosts for topic in host.counts.holds} == set(self.topics),
            within_seconds=within_seconds,
        )


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One region; a test's parameters are its compatibility switches."""
    callspec = getattr(request.node, "callspec", None)
    switches = callspec.params if callspec is not None else {}
    with World(replace(simple_topology(("us",)), compatibility=switches)) as made:
        yield made


@pytest.fixture
def stage(world: World) -> Stage:
    return Stage(world)


@pytest.mark.parametrize("failed_promotion", ["proposal", "upstream"])
async def test_a_promotion_that_cannot_be_stored_leaves_the_topic_to_the_next_producer_or_without_one(
    stage: Stage, failed_promotion: str
) -> None:
    """`failed_promotion`: the store has no space when the owner dies, and has some a moment later."""
    owner, *waiting = await stage.hosts("a", "b", "c", "d")
    await stage.until_holds(owner)
    disk = stage.world.regions["us"].medium
    disk.fill()
    await owner.change("kill")
    await asyncio.sleep(1)
    disk.make_room()
    if failed_promotion == "proposal":
        await stage.until_holds(*waiting, within_seconds=10)
    else:
        await asyncio.sleep(60)
        assert not any(host.counts.holds for host in waiting)
        assert sum(host.counts.waits for host in waiting) == 3


@pytest.mark.parametrize("unloaded_owner", ["proposal", "upstream"])
async def test_a_restarted_region_keeps_a_topic_for_its_owner_or_for_the_first_to_connect(
    stage: Stage, unloaded_owner: str
) -> None:
    """`unloaded_owner`: the owner's reconnect is delayed."""
    owner, waiter = await stage.hosts("a", "b")
    await stage.until_holds(owner)
    stage.world.kill("us")
    await owner.change("pause")
    stage.world.start("us")
    await asyncio.sleep(2)
    assert len(waiter.counts.holds) == (unloaded_owner == "upstream")
    await owner.change("resume")
    winner, other = (owner, waiter) if unloaded_owner == "proposal" else (waiter, owner)
    await stage.world.simulation.until(lambda: other.counts.waits == 1, within_seconds=30)
    assert winner.counts.holds
    assert not other.counts.holds


@pytest.mark.parametrize("fenced_producers", ["proposal", "upstream"])
async def test_a_fenced_owner_gets_an_error_or_waits_in_the_queue_again_without_one(
    stage: Stage, fenced_producers: str
) -> None:
    """`fenced_producers`: its messages from meanwhile are stored when the other one leaves, or never."""
    client, other = stage.world.client("us"), stage.world.client("us")
    owner = await client.producer("t", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    fencer = await other.producer("t", access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)
    sent = owner.send_nowait(b"of an owner that was thrown out")
    done, _ = await asyncio.wait({sent}, timeout=10)
    assert bool(done) == (fenced_producers == "proposal")
    if fenced_producers == "proposal":
        error = sent.exception()
        assert isinstance(error, ClientError)
        assert error.code is ServerError.ProducerFenced
    else:
        await fencer.close()
        await asyncio.wait_for(sent, 10)


async def test_a_host_that_was_frozen_while_another_took_over_waits_again(stage: Stage) -> None:
    """That producer is fenced permanently; the host creates another one, which waits in the queue."""
    owner, waiter = await stage.hosts("a", "b", rebuilds=True)
    await stage.until_holds(owner)
    await owner.change("pause")
    assert not owner.counts.holds
    await stage.until_holds(waiter, within_seconds=120)
    await owner.change("resume")
    await stage.world.simulation.until(lambda: owner.counts.waits == 1, within_seconds=60)
    assert waiter.counts.holds
    assert not owner.counts.holds


async def test_a_host_that_stops_in_good_order_leaves_the_line_and_its_topics_at_once(stage: Stage) -> None:
    owner, second, third = await stage.hosts("a", "b", "c")
    await stage.until_holds(owner)
    await second.change("stop")
    await owner.change("stop")
    await stage.until_holds(third, within_seconds=1)
    assert not second.counts.holds
