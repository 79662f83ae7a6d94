"""Fail-over plans and translations of positions over HTTP: real regions, wrong names, regions that do not respond, and
requests that make no sense."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from emulator.broker.admin.server import Admin
from emulator.cli.curl import piped
from emulator.client import Client, ConsumerType, InitialPosition, Message
from emulator.errors import Refused, RuntimeFailure
from emulator.model.failover_plans import FailoverPlan, PartitionedPlan, Translation
from emulator.run.history import HistoryWriter
from emulator.run.history_events import read_events
from emulator.runtimes.contract import RegionStatus, RunStatus
from emulator.scenarios.failover_plans import plan_failover, plan_requests, plan_topic, record_plan
from emulator.scenarios.region_queries import call_over_http
from emulator.scenarios.translations import translate
from tests.broker.regions import Regions, regions, until

TOPIC = "persistent://public/default/orders"
STATE = "/geoemu/v1/delivery-state/public/default/orders/s"
PLAN = "/geoemu/v1/failover-plan/public/default/orders/s"


@dataclass
class ServedRegions:
    world: Regions
    statuses: dict[str, RegionStatus]

    def killed(self, name: str) -> dict[str, RegionStatus]:
        return {**self.statuses, name: replace(self.statuses[name], state="killed")}

    async def ask(self, region: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, raw = await call_over_http(self.statuses[region], method, path, body, seconds=20)
        return status, json.loads(raw)

    async def plan(self, source: str = "us", target: str = "eu") -> FailoverPlan:
        return await plan_failover(self.statuses, "orders", "s", source, target)

    async def settled_plan(self, redelivered: int) -> FailoverPlan:
        async with asyncio.timeout(20):
            while True:
                found = await self.plan()
                if found.quiet and found.redelivered_messages <= redelivered:
                    return found


@contextlib.asynccontextmanager
async def served(*names: str) -> AsyncIterator[tuple[ServedRegions, Client]]:
    async with regions(*names) as world, world.client(names[0]) as client:
        admins = {name: Admin(region, {}) for name, region in world.running.items()}
        ports = {name: await admin.start() for name, admin in admins.items()}
        statuses = {
            name: RegionStatus(name, "test", "running", "", f"http://127.0.0.1:{port}", None)
            for name, port in ports.items()
        }
        try:
            yield ServedRegions(world, statuses), client
        finally:
            for admin in admins.values():
                admin.close()


async def consumed(client: Client, count: int, *, left: int = 0) -> list[Message]:
    """Publish messages, and acknowledge all but the first `left` ones."""
    consumer = await client.subscribe(
        TOPIC,
        "s",
        type_=ConsumerType.SHARED,
        initial_position=InitialPosition.EARLIEST,
        replicated=True,
    )
    producer = await client.producer(TOPIC)
    for number in range(count):
        await producer.send(b"%d" % number)
    received = [await asyncio.wait_for(consumer.receive(), 5) for _ in range(count)]
    await consumer.acknowledge(*received[left:], confirmed=True)
    return received


async def test_a_plan_over_http_is_quiet_exact_and_recorded(tmp_path: Path) -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 10)
        found = await world.settled_plan(0)
        assert (found.redelivered_messages, found.exact, found.skipped_messages) == (0, True, 0)
        assert (found.information_age_ms, found.topic) == (0, TOPIC)
        history = HistoryWriter.in_run(tmp_path, "operator")
        record_plan(history, found)
        record_plan(history, replace(found, complete=False))
        history.close()
    (event,) = read_events(tmp_path / "history" / "operator.jsonl")
    assert (event.op, event.region, event.other_region, event.subscription) == (
        "failover_plan",
        "us",
        "eu",
        "s",
    )
    assert event.plan is not None
    assert event.plan["quiet"] is True
    assert event.plan["begun_at_ms"] == found.begun_at_ms > 0


async def test_without_a_response_of_the_source_the_plan_is_what_the_target_knows() -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 10)
        await world.settled_plan(0)
        producer = await us.producer(TOPIC)
        for number in range(3):
            await producer.send(b"later %d" % number)
        topic = world.world.running["us"].directory.serving[TOPIC]
        await until(lambda: not topic.replicators["eu"].backlog)
        found = await plan_failover(world.killed("us"), TOPIC, "s", "us", "eu")
        assert (found.redelivered_messages, found.exact, found.quiet) == (3, False, False)
        assert (found.skipped_messages, found.missing_messages, found.source_mark_delete) == (
            None,
            None,
            None,
        )
        assert found.information_age_ms is not None
        assert found.causes == ("source-silent",)
        assert found.wait_for == ("region us to respond",)
        with pytest.raises(RuntimeFailure, match="eu, which would take over, is killed"):
            await plan_failover(world.killed("eu"), TOPIC, "s", "us", "eu")


async def test_three_regions_are_quiet_only_together() -> None:
    async with served("us", "eu", "ap") as (world, us):
        await consumed(us, 10)
        assert (await world.settled_plan(0)).quiet
        found = await plan_failover(world.killed("ap"), TOPIC, "s", "us", "eu")
        assert not found.quiet, "what the third region sends when it returns is unknown"


@pytest.mark.parametrize(
    ("topic", "subscription", "source", "target", "message"),
    [
        ("orders", "s", "us", "us", "us: a fail-over needs two different regions"),
        ("orders", "s", "mars", "eu", "no region 'mars' in this run"),
        ("orders", "s", "us", "mars", "no region 'mars' in this run"),
        ("nothing", "s", "us", "eu", "us: Topic persistent://public/default/nothing not found"),
        ("orders", "missing", "us", "eu", "us: Subscription missing not found for topic"),
        ("no/such", "s", "us", "eu", "topic 'no/such': must be"),
        ("non-persistent://public/default/x", "s", "us", "eu", "a non-persistent topic keeps no messages"),
        ("void/default/x", "s", "us", "eu", "us: "),
    ],
)
async def test_a_wrong_name_is_refused(
    topic: str, subscription: str, source: str, target: str, message: str
) -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 1)
        with pytest.raises((Refused, RuntimeFailure)) as refused:
            await plan_failover(world.statuses, topic, subscription, source, target)
        assert message in str(refused.value)


async def test_a_topic_that_the_target_does_not_have_is_missing_there() -> None:
    async with served("us", "eu") as (world, us):
        world.world.cut("us", "eu")
        await consumed(us, 4, left=1)
        found = await world.plan()
        assert (found.redelivered_messages, found.missing_messages, found.exact) == (3, 4, False)
        assert found.causes[0] == "topic-missing-there"
        assert found.target_last is None
        with pytest.raises(Refused, match="eu does not have the topic, and us is killed"):
            await plan_failover(world.killed("us"), TOPIC, "s", "us", "eu")


async def test_of_a_partitioned_topic_one_partition_is_planned() -> None:
    async with served("us", "eu") as (world, us):
        path = "/admin/v2/persistent/public/default/parts/partitions"
        assert (await call_over_http(world.statuses["us"], "PUT", path, 2))[0] == 204
        producer = await us.producer("parts")
        await us.subscribe("parts", "s", initial_position=InitialPosition.EARLIEST)
        await producer.send(b"x")
        for query in (
            plan_failover(world.statuses, "parts", "s", "us", "eu"),
            translate(world.statuses, "parts", "1:0", "us", "eu"),
        ):
            with pytest.raises(
                Refused, match=r"has partitions: name one of them, such as .*parts-partition-0"
            ):
                await query
        found = await plan_failover(world.statuses, "parts-partition-0", "s", "us", "eu")
        assert found.topic == "persistent://public/default/parts-partition-0"


async def test_the_plan_of_a_partitioned_topic_has_the_sums_of_its_partitions() -> None:
    async with served("us", "eu") as (world, us):
        path = "/admin/v2/persistent/public/default/parts/partitions"
        assert (await call_over_http(world.statuses["us"], "PUT", path, 3))[0] == 204
        consumer = await us.subscribe("parts", "s", initial_position=InitialPosition.EARLIEST)
        producer = await us.producer("parts")
        for _ in range(9):
            await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive(), confirmed=True)
        found = await plan_topic(world.statuses, "parts", "s", "us", "eu")
        assert isinstance(found, PartitionedPlan)
        assert [one.topic[-1] for one in found.partitions] == ["0", "1", "2"]
        assert found.redelivered_messages == sum(one.redelivered_messages for one in found.partitions) == 9
        assert found.to_json()["redelivered_messages"] == 9
        assert len(found.to_json()["partitions"]) == 3
        one = await plan_topic(world.statuses, "parts-partition-1", "s", "us", "eu")
        assert not isinstance(one, PartitionedPlan)
        assert one.redelivered_messages == found.partitions[1].redelivered_messages
        killed = await plan_topic(world.killed("us"), "parts", "s", "us", "eu")
        assert isinstance(killed, PartitionedPlan)
        assert (killed.skipped_messages, killed.missing_messages, killed.exact) == (None, None, False)
        with pytest.raises(Refused, match="nowhere"):
            await plan_topic(world.statuses, "nowhere", "s", "us", "eu")


def test_the_plans_of_all_partitions_are_recorded(tmp_path: Path) -> None:
    parts = tuple(
        FailoverPlan(f"{TOPIC}-partition-{number}", "s", "us", "eu", 1, exact=True, quiet=True)
        for number in range(2)
    )
    with contextlib.closing(HistoryWriter(tmp_path / "history.jsonl", "operator")) as history:
        record_plan(history, PartitionedPlan.of(TOPIC, parts))
    recorded = [event.topic for event in read_events(tmp_path / "history.jsonl")]
    assert recorded == [one.topic for one in parts]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("partitions", [0, 2])
async def test_the_printed_command_returns_the_plan(partitions: int) -> None:
    async with served("us", "eu") as (world, us):
        if partitions:
            path = "/admin/v2/persistent/public/default/orders/partitions"
            assert (await call_over_http(world.statuses["us"], "PUT", path, partitions))[0] == 204
        consumer = await us.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
        producer = await us.producer("orders")
        for _ in range(4):
            await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive(), confirmed=True)
        run: Any = _StatusOnly(world.statuses)
        requests = await plan_requests(run, "orders", "s", "us", "eu")
        plans = [FailoverPlan.from_json(json.loads(await _output_of(piped(*one)))) for one in requests]
        names = [f"{TOPIC}-partition-{number}" for number in range(partitions)] or [TOPIC]
        assert [one.topic for one in plans] == names
        assert sum(one.redelivered_messages for one in plans) == 4
        with pytest.raises(Refused, match="no region"):
            await plan_requests(run, "orders", "s", "us", "mars")
        run = _StatusOnly(world.killed("us"))
        with pytest.raises(RuntimeFailure, match="us is killed"):
            await plan_requests(run, "orders", "s", "us", "eu")


@dataclass
class _StatusOnly:
    """A run of which only the status is known."""

    statuses: dict[str, RegionStatus]

    async def status(self) -> RunStatus:
        return RunStatus(Path(), "test", tuple(self.statuses.values()), ())


async def _output_of(command: str) -> bytes:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    return (await asyncio.wait_for(process.communicate(), 30))[0]


async def test_claims_that_make_no_sense_get_one_error_and_change_nothing() -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 10, left=5)
        _, state = await world.ask("eu", "GET", f"{STATE}?source=us")
        for body in (None, [], "x", {}, {**state, "region": "us"}, {**state, "region": "mars"}):
            status, _ = await world.ask("us", "POST", PLAN, body)
            assert status in (400, 404)
        for change in (
            {"unacknowledged": {"us:1": [[0, 2**62]]}},
            {"stored": {"us": "9:9:9"}},
            {"messages": 10**30},
            {"partial": [["us:1:1", 2**40, "f"]]},
        ):
            status, answer = await world.ask("us", "POST", PLAN, {**state, **change})
            assert (status, next(iter(change)) in answer["reason"]) == (400, True)
        assert (await world.ask("eu", "GET", f"{STATE}?source=mars"))[0] == 404
        # A claim that is well formed and untrue gives a wrong plan, and nothing else.
        lie = {**state, "unacknowledged": {"us:1": [[0, 60_000_000]], "eu:9": [[5, 6]]}, "stored": {}}
        status, answer = await world.ask("us", "POST", PLAN, lie)
        assert (status, answer["exact"]) == (200, False)
        cursor = world.world.running["us"].directory.serving[TOPIC].subscriptions["s"].cursor
        assert cursor.unacked_count(10**6) >= 5


# Positions in other regions.


async def translated(
    world: ServedRegions, position: str, *, source: str = "us", target: str = "eu"
) -> Translation:
    return await translate(world.statuses, "orders", position, source, target)


async def test_a_position_is_translated_exactly_there_and_back() -> None:
    async with served("us", "eu") as (world, us), world.world.client("eu") as eu:
        far = await eu.producer(TOPIC)
        for number in range(5):
            await far.send(b"far %d" % number)
        await consumed(us, 30)
        await world.settled_plan(35)
        topics = [world.world.running[name].directory.serving[TOPIC] for name in ("us", "eu")]
        payloads = [
            {
                entry.entry_id: entry.data[entry.info.payload_offset :]
                for entry in await topic.reading.read(0, 1_000, 10**7)
                if not entry.hidden
            }
            for topic in topics
        ]
        assert len(payloads[0]) == len(payloads[1]) == 35
        for entry_id, payload in payloads[0].items():
            position = f"{topics[0].ledger_id}:{entry_id}"
            there = await translated(world, position)
            assert there.exact is not None
            assert payloads[1][int(there.exact.partition(":")[2])] == payload
            back = await translated(world, there.exact, source="eu", target="us")
            assert (back.exact, back.origin) == (position, there.origin)


async def test_an_entry_that_is_not_stored_there_has_bounds() -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 3)
        await world.settled_plan(0)
        producer = await us.producer(TOPIC)
        local = await producer.send(b"local", replicate_to=["__local__"])
        after = await producer.send(b"after")
        there = world.world.running["eu"].directory.serving[TOPIC]
        topic = world.world.running["us"].directory.serving[TOPIC]
        await until(lambda: not topic.replicators["eu"].backlog)
        found = await translated(world, f"{local.ledger}:{local.entry}")
        assert found.exact is None
        later = await translated(world, f"{after.ledger}:{after.entry}")
        assert entry_in(found.after) < entry_in(found.upto) <= entry_in(later.exact)
        world.world.cut("us", "eu")
        late = await producer.send(b"late")
        found = await translated(world, f"{late.ledger}:{late.entry}")
        assert (found.exact, found.upto) == (None, None)
        assert found.after == f"{there.ledger_id}:{there.state.readable_end - 1}"
        assert found.basis == "the entry is not stored there yet"


async def test_snapshots_bound_a_position_if_one_region_does_not_respond() -> None:
    async with served("us", "eu") as (world, us):
        received = await consumed(us, 20)
        await world.settled_plan(0)
        first, last = received[0].id, received[-1].id
        exact = {one: (await translated(world, f"{one.ledger}:{one.entry}")).exact for one in (first, last)}
        for one in (first, last):
            position = f"{one.ledger}:{one.entry}"
            by_target = await translate(world.killed("us"), "orders", position, "us", "eu")
            assert by_target.exact is None
            assert by_target.upto is None or entry_in(by_target.upto) >= entry_in(exact[one])
            by_source = await translate(world.killed("eu"), "orders", position, "us", "eu")
            assert by_source.after is None or entry_in(by_source.after) < entry_in(exact[one])
        assert (
            await translate(world.killed("us"), "orders", f"{first.ledger}:0", "us", "eu")
        ).upto is not None


def entry_in(position: str | None) -> int:
    assert position is not None
    return int(position.partition(":")[2])


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ("x", "us: position: 'x' must be a position, like 5:17"),
        ("1:-1", "us: position: '1:-1' must be a position, like 5:17"),
        ("1:99999", "has no entry 1:99999 in us: its log has entries 1:0 to 1:"),
        ("77:0", "has no entry 77:0 in us"),
        ("1:99999999999999999999999", "must be a position, like 5:17"),
    ],
)
async def test_a_position_that_does_not_exist_is_refused(position: str, message: str) -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 1)
        with pytest.raises(Refused) as refused:
            await translated(world, position)
        assert message in str(refused.value)


async def test_queries_for_positions_that_make_no_sense_get_one_error() -> None:
    async with served("us", "eu") as (world, us):
        await consumed(us, 1)
        path = "/geoemu/v1/position/public/default/orders"
        for query in ("", "origin=x", "origin=us:1:-1", "source=mars&position=1:1", "source=eu&position=x"):
            status, answer = await world.ask("us", "GET", f"{path}?{query}")
            assert (status, bool(answer["reason"])) == (400, True)
        status, answer = await world.ask("us", "GET", f"{path}?origin=mars:1:5")
        assert (status, answer["position"], answer["complete"]) == (200, None, True)
