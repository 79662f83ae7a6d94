"""Conditions of a whole run, with real regions: each guarantee, and what a wait that fails reports."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from emulator.broker.admin.resources.conditions import _parse
from emulator.broker.explain.conditions import WaitScope, state_of
from emulator.broker.explain.delivery import delivery_state
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.client import Client, Consumer, InitialPosition
from emulator.errors import Refused
from emulator.model.conditions import CONDITIONS, ConditionState
from emulator.model.values import TopicName
from emulator.runtimes.contract import RegionStatus
from emulator.scenarios import await_conditions
from emulator.scenarios.await_conditions import ConditionWait
from tests.broker.regions import Regions, regions, until

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

TOPIC = "persistent://public/default/orders"
SHORT = 0.3
LONG = 10.0


def awaiting(
    world: Regions,
    condition: str,
    topic: str | None = "orders",
    subscription: str | None = None,
    *,
    lost: str = "",
) -> ConditionWait:
    """A wait that calls the regions of `world` without HTTP."""

    async def get_regions() -> tuple[RegionStatus, ...]:
        return tuple(
            RegionStatus(
                name=name,
                cluster="test",
                state="lost" if name == lost else "running" if name in world.running else "killed",
                service_url="",
                admin_url="",
                pid=None,
            )
            for name in world.names
        )

    async def call(region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
        running = world.running[region.name]
        if method == "GET":
            *_, tenant, namespace, name, last = urlsplit(path).path.split("/")
            found = await running.directory.acquire(
                f"persistent://{tenant}/{namespace}/{name}", OpenMode.EXISTING
            )
            source = urlsplit(path).query.removeprefix("source=")
            return 200, json.dumps((await delivery_state(found, last, source)).as_json()).encode()
        wait, _ = _parse({name: value for name, value in body.items() if value is not None})
        state = await state_of(running, path.rpartition("/")[2], wait)
        return 200, json.dumps(state.to_json()).encode()

    return ConditionWait(call, get_regions, condition, topic, subscription)


async def subscribed(client: Client, name: str = "s") -> Consumer:
    return await client.subscribe(TOPIC, name, initial_position=InitialPosition.EARLIEST, replicated=True)


async def publish(client: Client, count: int) -> None:
    producer = await client.producer(TOPIC)
    await asyncio.gather(*(producer.send(b"x") for _ in range(count)))


def end_in(world: Regions, region: str) -> int:
    return world.running[region].directory.serving[TOPIC].state.stored_end


async def test_replicated_means_that_every_region_stores_what_any_region_stored() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us, world.client("eu") as eu:
        await publish(us, 200)
        await publish(eu, 100)
        assert await awaiting(world, "replicated").run(LONG)
        for region in world.running.values():
            topic = region.directory.serving[TOPIC]
            entries = await topic.reading.read(0, 1_000, 10_000_000)
            assert sum(not one.hidden for one in entries) == 300


async def test_replicated_names_the_region_that_lacks_entries_and_why() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        await publish(us, 1)
        assert await awaiting(world, "replicated").run(LONG)
        world.cut("us", "eu")
        await publish(us, 3)
        wait = awaiting(world, "replicated")
        assert not await wait.run(SHORT)
        assert f"3 entries of {TOPIC} not replicated to eu" in wait.describe()
        assert "replicated of persistent://public/default/orders is not reached" in wait.describe()
        assert await awaiting(world, "replicated", lost="eu").run(LONG), "a lost region is left out"


async def test_messages_published_after_the_wait_began_do_not_extend_it() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await publish(us, 5)
        us_region = world.running["us"]
        first = await state_of(us_region, "replicated", WaitScope(None, None, (), {}))
        end = first.goal[TOPIC]["end"]
        await publish(us, 5)
        assert end_in(world, "us") > end
        again = await state_of(us_region, "replicated", WaitScope(None, None, (), first.goal))
        assert again.goal == first.goal
        inflated = {TOPIC: {"ledger": first.goal[TOPIC]["ledger"], "end": 10**9}}
        lied_to = await state_of(us_region, "replicated", WaitScope(None, None, (), inflated))
        assert lied_to.goal[TOPIC]["end"] == end_in(world, "us"), "a goal beyond the log is the log's end"
        for wrong in ({TOPIC: {"end": "x"}}, {TOPIC: {"ledger": -1, "end": 3}}, {"other": {"end": 1}}):
            other = await state_of(us_region, "replicated", WaitScope(None, None, (), wrong))
            assert other.goal[TOPIC]["end"] == end_in(world, "us")


async def test_replicated_with_a_subscription_means_that_a_fail_over_redelivers_nothing() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await subscribed(us)
        await publish(us, 30)
        await publish(eu, 30)
        for _ in range(60):
            await consumer.acknowledge(await asyncio.wait_for(consumer.receive(), 5), confirmed=True)
        assert await awaiting(world, "replicated", "orders", "s").run(LONG)
        await world.crash("us")
        await (await eu.producer(TOPIC)).send(b"new")
        for name in ("eu", "ap"):
            async with world.client(name) as client:
                again = await subscribed(client)
                assert (await asyncio.wait_for(again.receive(), 5)).payload == b"new", name
                await again.close()


async def test_acknowledgements_that_a_client_sends_in_a_group_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Released clients send acknowledgements up to 100 ms after their program acknowledged."""
    assert await_conditions.GROUPING_SECONDS > 0.1
    monkeypatch.setattr(await_conditions, "GROUPING_SECONDS", 1.0)  # a busy machine delays the response, too
    async with regions("us", "eu") as world, world.client("us") as us, world.client("eu") as eu:
        consumer = await subscribed(us)
        await publish(us, 5)
        received = [await asyncio.wait_for(consumer.receive(), 5) for _ in range(5)]

        acknowledged, tasks = asyncio.Event(), list[asyncio.Future[None]]()

        async def acknowledge() -> None:
            await consumer.acknowledge(*received, confirmed=True)
            acknowledged.set()

        loop = asyncio.get_running_loop()
        loop.call_later(0.1, lambda: tasks.append(asyncio.ensure_future(acknowledge())))
        assert await awaiting(world, "replicated", "orders", "s").run(LONG)
        assert acknowledged.is_set()
        await (await eu.producer(TOPIC)).send(b"new")
        again = await subscribed(eu)
        assert (await asyncio.wait_for(again.receive(), 5)).payload == b"new"


async def test_an_unacknowledged_message_keeps_the_later_ones_from_being_replicated() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await subscribed(us)
        await publish(us, 10)
        received = [await asyncio.wait_for(consumer.receive(), 5) for _ in range(10)]
        await consumer.acknowledge(*received[1:], confirmed=True)
        wait = awaiting(world, "replicated", "orders", "s")
        assert not await wait.run(2 * SHORT)
        assert f"9 acknowledged messages of s of {TOPIC} would be delivered again in eu" in wait.describe()
        await consumer.acknowledge(received[0], confirmed=True)
        assert await awaiting(world, "replicated", "orders", "s").run(LONG)


async def test_acknowledgements_after_the_wait_began_do_not_extend_it() -> None:
    """Of a stream of messages, each acknowledged at once, the last ones are always missing elsewhere."""
    async with regions("us", "eu", snapshot_interval_ms=200) as world, world.client("us") as us:
        consumer, producer = await subscribed(us), await us.producer(TOPIC)
        stopped = asyncio.Event()

        async def stream() -> None:
            while not stopped.is_set():
                await producer.send(b"x")
                await consumer.acknowledge(await consumer.receive(), confirmed=True)

        streaming = asyncio.ensure_future(stream())
        assert await awaiting(world, "replicated", "orders", "s").run(LONG)
        stopped.set()
        await streaming


async def test_a_subscription_that_is_not_replicated_is_the_reason() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await us.subscribe(TOPIC, "s", initial_position=InitialPosition.EARLIEST)
        await publish(us, 1)
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        wait = awaiting(world, "replicated", "orders", "s")
        assert not await wait.run(SHORT)
        assert "1 acknowledged message of s" in wait.describe()


async def test_a_lying_goal_or_target_changes_only_the_answer() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await subscribed(us)
        await publish(us, 5)
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        here = world.running["us"]
        ledger = here.directory.serving[TOPIC].ledger_id
        target = await delivery_state(world.running["eu"].directory.serving[TOPIC], "s", "us")
        for acked in (
            {"mark_delete": 10**15, "ranges": [[0, 10**15]], "partial": [[3, "ff"]]},
            {"mark_delete": "x", "ranges": [1], "partial": {}},
            {"mark_delete": -5, "ranges": [[5, 1]], "partial": [["a", "b"]]},
        ):
            goal = {TOPIC: {"ledger": ledger, "end": 3, **acked}}
            scope = WaitScope(TopicName.parse(TOPIC), "s", (), goal, target)
            assert len((await state_of(here, "replicated", scope)).missing) <= 2
        assert here.directory.serving[TOPIC].subscriptions["s"].backlog() == 4


async def test_a_wait_survives_regions_that_are_killed_in_the_middle() -> None:
    """The goal is a position of a durable log, so a region that returns continues with it."""
    async with regions("us", "eu") as world, world.client("us") as us:
        world.cut("us", "eu")
        await until(lambda: not world.running["us"].peers["eu"].connected)
        await publish(us, 20)
        wait = awaiting(world, "replicated")
        waiting = asyncio.ensure_future(wait.run(LONG))
        await until(lambda: "us" in wait._goals)
        goal = wait._goals["us"]
        for name in ("us", "eu"):
            await world.crash(name)
        await until(lambda: "us is killed" in wait.describe())
        for name in ("us", "eu"):
            await world.start(name)
        world.heal("us", "eu")
        assert await waiting
        assert wait._goals["us"] == goal
        assert end_in(world, "eu") >= 20


async def test_a_snapshot_that_was_awaited_was_started_after_the_call() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        consumer = await subscribed(us)
        await publish(us, 1)
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        assert await awaiting(world, "quiet").run(LONG)
        sync = world.running["us"].directory.serving[TOPIC].subscriptions.replicated
        assert sync is not None
        before = sync.snapshots.controller.last_completed
        assert await awaiting(world, "snapshot").run(LONG), "also in a quiet topic"
        after = sync.snapshots.controller.last_completed
        assert before is not None
        assert after is not None
        assert after.snapshot.snapshot_id != before.snapshot.snapshot_id
        assert after.snapshot.local_position > before.snapshot.local_position
        assert await awaiting(world, "quiet").run(LONG), "it becomes quiet again"


async def test_a_snapshot_that_cannot_complete_names_the_link() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await subscribed(us)
        await publish(us, 1)
        world.cut("us", "eu")
        wait = awaiting(world, "snapshot")
        assert not await wait.run(SHORT)
        assert "no new snapshot of" in wait.describe()


async def test_quiet_lasts_until_a_client_acts() -> None:
    async with regions("us", "eu", "ap") as world, world.client("us") as us:
        consumer = await subscribed(us)
        await publish(us, 20)
        for _ in range(20):
            await consumer.acknowledge(await consumer.receive(), confirmed=True)
        assert await awaiting(world, "quiet", None).run(LONG)
        ends = {name: end_in(world, name) for name in world.running}
        loop = asyncio.get_running_loop()
        started = loop.time()
        await until(lambda: loop.time() > started + 0.5)
        assert ends == {name: end_in(world, name) for name in world.running}, "no client acted"


async def test_a_wait_for_quiet_loads_each_topic_once() -> None:
    """Each request loaded every topic again, so none was unloaded for as long as a wait lasted."""
    async with regions("us") as world, world.client("us") as us:
        await publish(us, 1)
        directory = world.running["us"].directory
        await until(lambda: not directory.serving[TOPIC].publishing.issued)

        async def ask(goal: dict[str, Any]) -> ConditionState:
            return await state_of(world.running["us"], "quiet", WaitScope(None, None, frozenset(), goal))

        first = await ask({})
        assert (first.topics, first.missing) == ((TOPIC,), ())
        await directory.unload(TOPIC, "unused")
        again = await ask(dict(first.goal))
        assert TOPIC not in directory.serving
        assert again == first
        await us.producer(TOPIC)
        await publish(us, 1)
        later = await ask(dict(again.goal))
        assert later.activity > again.activity
        await directory.unload(TOPIC, "unused")
        for nonsense in ({}, 5, None, {"settled": "x"}, {"settled": True}, {"settled": -1.5}):
            found = await ask({TOPIC: nonsense, "nowhere": {"settled": 1}})
            assert found.topics == (TOPIC,)
            assert TOPIC in directory.serving, "a region loads a topic of which it knows nothing"
            await directory.unload(TOPIC, "unused")


async def test_a_run_with_a_region_that_is_down_is_not_quiet_until_the_region_is_lost() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        await subscribed(us)
        await publish(us, 1)
        await world.crash("eu")
        wait = awaiting(world, "quiet", None)
        assert not await wait.run(SHORT)
        assert "eu is killed" in wait.describe()
        assert await awaiting(world, "quiet", None, lost="eu").run(LONG)


async def test_an_open_transaction_is_not_quiet() -> None:
    async with regions("us") as world, world.client("us") as us:
        transaction = await us.new_transaction()
        wait = awaiting(world, "quiet", None)
        assert not await wait.run(SHORT)
        assert "1 transaction open" in wait.describe()
        await transaction.abort()
        assert await awaiting(world, "quiet", None).run(LONG)


async def test_unknown_topics_and_topics_without_replicated_subscriptions_are_refused() -> None:
    async with regions("us", "eu") as world, world.client("us") as us:
        with pytest.raises(Refused, match="no region has topic"):
            await awaiting(world, "replicated", "ordres").run(LONG)
        await us.subscribe(TOPIC, "s")
        with pytest.raises(Refused, match=r"no subscription of .* is replicated"):
            await awaiting(world, "snapshot").run(LONG)
        with pytest.raises(Refused, match=r"no region has subscription t of"):
            await awaiting(world, "replicated", "orders", "t").run(LONG)
        with pytest.raises(Refused, match=r"subscription s of .* is not replicated"):
            await awaiting(world, "snapshot", "orders", "s").run(LONG)


@pytest.mark.parametrize(
    ("condition", "topic", "subscription", "rule"),
    [
        ("quite", "orders", None, "did you mean quiet"),
        ("quiet", None, "s", "requires a topic"),
        ("quiet", "a://b", None, "b"),
    ],
)
async def test_a_wrong_wait_is_refused(
    condition: str, topic: str | None, subscription: str | None, rule: str
) -> None:
    async with regions("us") as world:
        with pytest.raises(ValueError, match=rule):
            awaiting(world, condition, topic, subscription)


def test_every_condition_has_a_definition() -> None:
    assert CONDITIONS.keys() == {"quiet", "replicated", "snapshot"}
