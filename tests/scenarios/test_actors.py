"""Actors with the real Pulsar client, and whole scenarios, on regions that are processes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from emulator.run.history import is_closed
from emulator.run.history_events import HistoryEvent, read_events
from emulator.runtimes.process import ProcessRuntime
from emulator.scenarios.actors.processes import ActorProcess
from emulator.scenarios.actors.specs import Actor, ActorSpec
from emulator.scenarios.run_context import ScenarioObserver
from emulator.scenarios.runner import execute_scenario
from emulator.scenarios.scenario import SHIPPED, load_scenario, parse_scenario
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.verify import evaluate_run

from .virtual import DEADLINE_SECONDS, TOPOLOGY, consumer_spec, producer_spec, wait_until

pytestmark = [pytest.mark.real, pytest.mark.long]


class LiveRun:
    """Running regions, and actors on them; all are stopped at the end of the block."""

    def __init__(self, runtime: ProcessRuntime) -> None:
        self.runtime = runtime
        self._actors: list[Actor] = []

    async def begin(self, part: ActorSpec) -> ActorProcess:
        actor = ActorProcess(part, self.runtime.run_dir)
        self._actors.append(actor)
        await actor.begin(await self.service_url(part.region))
        return actor

    async def service_url(self, region: str) -> str:
        regions = (await self.runtime.status()).regions
        return next(each.service_url for each in regions if each.name == region)

    def events(self, actor: str) -> list[HistoryEvent]:
        return list(read_events(self.runtime.run_dir / "history" / f"{actor}.jsonl"))

    async def leave(self) -> None:
        await asyncio.gather(*(actor.leave() for actor in self._actors))


@asynccontextmanager
async def regions_up(run_dir: Path) -> AsyncIterator[LiveRun]:
    runtime = ProcessRuntime.create(TOPOLOGY, run_dir)
    await runtime.up()
    live = LiveRun(runtime)
    try:
        yield live
    finally:
        await live.leave()
        await runtime.down()


async def orders_done(orders: Actor, number: int) -> None:
    await wait_until(lambda: orders.counts.ok == number)


def origins(
    events: list[HistoryEvent], op: str, outcome: str
) -> list[tuple[str | None, str | None, int | None]]:
    return [
        (event.origin_region or event.region, event.producer, event.sequence_id)
        for event in events
        if (event.op, event.outcome) == (op, outcome)
    ]


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("acknowledge", ["individual", "cumulative"])
async def test_every_publish_and_delivery_is_in_the_history(
    tmp_path: Path, batching: bool, acknowledge: str
) -> None:
    async with regions_up(tmp_path / "run") as live:
        billing = await live.begin(consumer_spec(acknowledge=acknowledge))
        orders = await live.begin(producer_spec(messages=300, batching=batching, rate_per_second=None))
        await wait_until(lambda: billing.counts.received == 300)
        await orders.finish()
        assert (orders.counts.asked, orders.counts.ok) == (300, 300)
        assert billing.counts.repeated == 0
        await live.leave()

        expected = [("us-east", "orders", number) for number in range(300)]
        published, received = live.events("orders"), live.events("billing")
        assert origins(published, "publish", "asked") == expected
        assert origins(published, "publish", "ok") == expected
        assert origins(received, "receive", "ok") == expected
        ids = [event.message_id for event in published if (event.op, event.outcome) == ("publish", "ok")]
        assert ids == [event.message_id for event in received if event.op == "receive"]
        assert len(set(ids)) == 300
        assert Counter((event.op, event.outcome) for event in received) == {
            ("subscribe", "asked"): 1,
            ("subscribe", "ok"): 1,
            ("receive", "ok"): 300,
            ("acknowledge", "asked"): 300,
        }


async def test_a_consumer_acknowledges_the_message_that_it_left_when_it_is_delivered_again(
    tmp_path: Path,
) -> None:
    async with regions_up(tmp_path / "run") as live:
        billing = await live.begin(consumer_spec(type="shared", leaves_unacknowledged=3))
        orders = await live.begin(producer_spec(messages=10, batching=False))
        await wait_until(lambda: billing.counts.received == 10)
        asked = [event.message_id for event in live.events("billing") if event.op == "acknowledge"]
        received = [event.message_id for event in live.events("billing") if event.op == "receive"]
        assert asked == [*received[:2], *received[3:]]

        await billing.move("us-east", await live.service_url("us-east"))
        await wait_until(lambda: billing.counts.repeated == 1)
        await orders.finish()
        await live.leave()
        last = [event for event in live.events("billing") if event.op == "acknowledge"][-1]
        assert last.message_id == received[2]


async def test_a_producer_goes_on_by_itself_when_its_region_comes_back(tmp_path: Path) -> None:
    """Requests from while the region was down also get their outcome, and nothing is stored twice."""
    async with regions_up(tmp_path / "run") as live:
        orders = await live.begin(producer_spec())
        await wait_until(lambda: orders.counts.ok > 200)
        await live.runtime.kill("us-east")
        await wait_until(lambda: orders.counts.pending > 200)
        await live.runtime.start("us-east")
        began = time.monotonic()
        before = orders.counts.asked
        await wait_until(lambda: orders.counts.ok > before + 100)
        assert time.monotonic() - began < 5, "the client notices late"
        await orders.finish()
        assert orders.counts.ok == orders.counts.asked
        audit = await live.begin(consumer_spec(name="audit", subscription="audit"))
        await wait_until(lambda: audit.counts.received == orders.counts.asked)
        assert audit.counts.repeated == 0


@pytest.mark.parametrize("fault", ["kill", "pause", "nothing"])
async def test_a_consumer_moves_whatever_its_old_region_is_doing(tmp_path: Path, fault: str) -> None:
    async with regions_up(tmp_path / "run") as live:
        billing = await live.begin(consumer_spec())
        orders = await live.begin(producer_spec(region="us-west", rate_per_second=100))
        await wait_until(lambda: billing.counts.received > 20)
        if fault != "nothing":
            await getattr(live.runtime, fault)("us-east")
        began = time.monotonic()
        await billing.move("us-west", await live.service_url("us-west"))
        assert time.monotonic() - began < 3
        before = billing.counts.received
        await wait_until(lambda: billing.counts.received > before + 50)
        await orders.finish()
        await live.leave()
        places = [str(event.region) for event in live.events("billing") if event.op == "receive"]
        assert places == sorted(places), "us-east first, then us-west, never mixed"


async def test_a_producer_that_moves_knows_no_outcome_of_what_it_leaves_waiting_behind(
    tmp_path: Path,
) -> None:
    """Nor does it wait for one: the client that could have reported it is gone."""
    async with regions_up(tmp_path / "run") as live:
        orders = await live.begin(producer_spec())
        await wait_until(lambda: orders.counts.ok > 50)
        await live.runtime.kill("us-east")
        await wait_until(lambda: orders.counts.pending > 50)
        await orders.move("us-west", await live.service_url("us-west"))
        before = orders.counts.ok
        await wait_until(lambda: orders.counts.ok > before + 50)
        await asyncio.wait_for(orders.finish(), DEADLINE_SECONDS)
        events = live.events("orders")
        unknown = origins(events, "publish", "unknown")
        assert len(unknown) == orders.counts.unknown > 50
        requested = origins(events, "publish", "asked")
        assert sorted(requested) == sorted(unknown + origins(events, "publish", "ok"))


async def test_a_second_run_of_a_producer_continues_its_numbering(tmp_path: Path) -> None:
    """Otherwise deduplication would drop its messages."""
    async with regions_up(tmp_path / "run") as live:
        for expected in (50, 100):
            orders = await live.begin(producer_spec(messages=50, rate_per_second=None))
            await orders_done(orders, 50)
            await orders.leave()
            numbers = [number for *_, number in origins(live.events("orders"), "publish", "ok")]
            assert numbers == list(range(expected))


async def test_the_region_failover_scenario_completes(tmp_path: Path) -> None:
    async with regions_up(tmp_path / "run") as live:
        scenario = load_scenario(SHIPPED / "region-failover.yaml", TOPOLOGY)
        result = await execute_scenario(scenario, live.runtime, ScenarioObserver())
        assert result.completed, result.failure
        assert result.seconds < 15
        for name in ("orders-us-east", "orders-eu-central"):
            assert result.counts[name].ok == result.counts[name].asked
        acknowledged = sum(len(origins(live.events(name), "publish", "ok")) for name in result.counts)
        assert result.counts["billing"].received == acknowledged


@pytest.mark.long
def test_a_consumer_of_all_partitions_goes_on_in_another_region_and_nothing_is_lost(tmp_path: Path) -> None:
    """Each event of an actor on a partition matches the logs of that partition."""

    async def steps() -> None:
        async with regions_up(tmp_path / "run") as live:
            scenario = load_scenario(SHIPPED / "partitioned-failover.yaml", TOPOLOGY)
            result = await execute_scenario(scenario, live.runtime, ScenarioObserver())
            assert result.completed, result.failure

    asyncio.run(steps())
    judgement = evaluate_run(EmbeddedEngine(), tmp_path / "run")
    wrong = [one.sentence for one in judgement.checks if one.verdict in ("invalid", "unknown")]
    assert (judgement.verdict, wrong) == ("valid", [])


@pytest.mark.parametrize(
    "name",
    ["leader-election", "owner-reports", "uptime-checkers", "last-resort", "two-owners", "transaction-keys"],
)
async def test_scenarios_with_hosts_and_tasks_complete_in_processes_of_their_own(
    tmp_path: Path, name: str
) -> None:
    """Scenarios of exclusive producers and transaction keys; each leaves complete histories, without events that no
    client saw."""
    async with regions_up(tmp_path / "run") as live:
        result = await execute_scenario(
            load_scenario(SHIPPED / f"{name}.yaml", TOPOLOGY), live.runtime, ScenarioObserver()
        )
        assert result.completed, result.failure
        for actor, counts in result.counts.items():
            assert is_closed(live.runtime.run_dir / "history" / f"{actor}.jsonl")
            assert counts.pending == 0


async def test_a_producer_that_waits_has_begun_in_line_and_has_its_turn_when_the_one_before_finishes(
    tmp_path: Path,
) -> None:
    """In processes, the one with the higher priority first."""
    text = """
name: waiters
topic: orders
actors:
  producers:
    - {name: first, region: us-east, access: fencing}
    - {name: low, region: us-east, access: wait, priority: -1}
    - {name: high, region: us-east, access: wait, priority: 7, messages: 20, keyed: true}
steps:
  - begin: first
  - wait_until: {producer: first, published: 20}
  - begin: low
  - begin: high
  - move: {producer: first, to: us-west}
  - wait_until: {producer: high, published: 20}
  - finish: high
  - wait_until: {producer: low, published: 20}
  - finish: producers
  - drain: 10s
"""

    async with regions_up(tmp_path / "run") as live:
        result = await execute_scenario(parse_scenario(text, TOPOLOGY), live.runtime, ScenarioObserver())
        assert result.completed, result.failure
        last = max(event.at_ms for event in live.events("high") if event.op == "publish")
        connected = [event for event in live.events("low") if (event.op, event.outcome) == ("connect", "ok")]
        assert [event.at_ms > last for event in connected] == [True]
