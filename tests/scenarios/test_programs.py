"""A user's own programs as actors."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from emulator.errors import ConfigurationError
from emulator.run.history_events import read_events
from emulator.runtimes.contract import RegionStatus
from emulator.runtimes.process import ProcessRuntime
from emulator.scenarios.actors.program import ProgramProcess
from emulator.scenarios.actors.specs import ActorFailure
from emulator.scenarios.run_context import ScenarioObserver, ScenarioResult
from emulator.scenarios.runner import execute_scenario
from emulator.scenarios.scenario import Scenario, parse_scenario
from emulator.simulation.scenarios.run import prepare_scenario
from tests.runtimes.fixtures import REGIONS, end_all, fake_run

from .virtual import TOPOLOGY, program_spec, wait_until

ROOT = Path(__file__).parents[2]

FORWARDS = """
import os
import pulsar, geoemu

client = geoemu.recorded(pulsar.Client(os.environ["GEOEMU_SERVICE_URL"]))
consumer = client.subscribe(
    "orders", "billing", initial_position=pulsar.InitialPosition.Earliest, replicate_subscription_state_enabled=True
)
invoices = client.create_producer("invoices")
while True:
    order = consumer.receive()
    invoices.send(b"invoice of " + order.data())
    consumer.acknowledge(order)
"""


def scenario(command: str, *steps: str, more: str = "") -> Scenario:
    lines = "".join(f"  - {step}\n" for step in steps)
    return parse_scenario(
        f"name: own\ntopic: orders\nactors:\n"
        f"  producers:\n    - {{name: orders, region: us-west, rate_per_second: 50, messages: 100}}\n"
        f"  programs:\n    - {{name: shop, region: us-east, command: {command}{more}}}\n"
        f"steps:\n{lines}",
        TOPOLOGY,
    )


def problems(command: str, *steps: str, more: str = "") -> str:
    with pytest.raises(ConfigurationError) as refused:
        scenario(command, *steps, more=more)
    return str(refused.value)


def test_errors_in_a_program_entry_are_reported() -> None:
    assert "command: []: must not be empty" in problems("[]", "begin: shop")
    assert "shop has not begun here" in problems("[a]", "kill: {program: shop}")
    assert "must be a program of this scenario: shop" in problems(
        "[a]", "move: {program: orders, to: us-west}"
    )
    assert "a program cannot be lost" in problems("[a]", "begin: shop", "lose: {program: shop}")
    did = "wait_until: {program: shop, received: 1, exit_code: 0}"
    assert "exactly one of published, " in problems("[a]", "begin: shop", did)
    ended_there = "wait_until: {program: shop, exit_code: 0, in: us-west}"
    assert "an exit code belongs to no region" in problems("[a]", "begin: shop", ended_there)
    nowhere = "wait_until: {program: shop, received: 1, in: us-wst}"
    assert "did you mean 'us-west'" in problems("[a]", "begin: shop", nowhere)
    twice = "}\n    - {name: orders, region: us-east, command: [b]"
    assert "another actor has this name" in problems("[a]", "begin: shop", more=twice)


def test_the_simulation_refuses_programs_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\ntopic: orders\nactors:\n"
        "  programs: [{name: shop, region: us-east, command: [a]}]\nsteps: [{begin: shop}]\n"
    )
    with pytest.raises(
        ConfigurationError, match=r"shop: a program of your own runs in real time and cannot be"
    ):
        prepare_scenario(file, TOPOLOGY)


@pytest.fixture
def run(tmp_path: Path) -> ProcessRuntime:
    """A run whose regions were never started."""
    return fake_run(tmp_path)


def program(run: ProcessRuntime, code: str, **changes: object) -> ProgramProcess:
    async def regions() -> tuple[RegionStatus, ...]:
        return (await run.status()).regions

    fields = {"command": ("python", "-c", code), "environment": (("ORDERS", "orders"),), **changes}
    return ProgramProcess(program_spec(**fields), run.run_dir, regions)


def printed(actor: ProgramProcess) -> list[str]:
    return actor.log.read_text().splitlines() if actor.log.exists() else []


SAYS_WHERE = (
    "import os, time; print(os.environ['GEOEMU_REGION'], os.environ['ORDERS'], flush=True); time.sleep(60)"
)


@pytest.mark.real
async def test_a_program_gets_its_region_and_is_started_again_in_another_one(run: ProcessRuntime) -> None:
    actor = program(run, SAYS_WHERE)
    await actor.begin("")
    await wait_until(lambda: printed(actor) == ["us-east orders"])
    await actor.move("us-west", "")
    await wait_until(lambda: printed(actor) == ["us-east orders", "us-west orders"])
    assert (actor.counts.region, actor.counts.connected) == ("us-west", True)
    await actor.finish()
    assert (actor.problem, actor.exit_code) == (None, -signal.SIGTERM)


@pytest.mark.real
async def test_the_end_of_a_program_is_noticed(run: ProcessRuntime) -> None:
    actor = program(run, "raise SystemExit(3)")
    await actor.begin("")
    await wait_until(lambda: actor.problem is not None)
    assert f"shop ended by itself with exit code 3; see {actor.log}" == actor.problem
    with pytest.raises(ActorFailure, match="exit code 3"):
        await actor.finish()
    done = program(run, "pass")
    await done.begin("")
    await wait_until(lambda: done.exit_code == 0)
    await done.finish()
    with pytest.raises(ActorFailure, match="is not running"):
        await done.change("pause")
    with pytest.raises(ActorFailure, match="cannot be started"):
        await program(run, "", command=("/no/such/program",)).begin("")


@pytest.mark.real
async def test_a_program_is_started_again_if_it_is_to_be(run: ProcessRuntime) -> None:
    actor = program(run, "print('here'); raise SystemExit(1)", restarts=True)
    await actor.begin("")
    await wait_until(lambda: len(printed(actor)) >= 3)
    assert actor.problem is None
    await actor.leave()


@pytest.mark.real
def test_what_a_program_started_ends_with_it_and_its_history_is_sealed(run: ProcessRuntime) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from emulator.run.history import HistoryWriter\n"
        "history = HistoryWriter.in_run(Path(os.environ['GEOEMU_RUN_DIR']), os.environ['GEOEMU_ACTOR'])\n"
        "history.subscribed('us-east', 'orders', 'billing')\n"
        "history.received('us-east', 'orders', 'billing', '1:0:-1')\n"
        "print(os.fork() or os.getpid(), flush=True)\n"
        "time.sleep(60)"
    )

    async def work() -> None:
        actor = program(run, code, environment=(("PYTHONPATH", str(ROOT)),))
        await actor.begin("")
        await wait_until(lambda: actor.counts.received == 1 and len(printed(actor)) == 2)
        await actor.change("pause")
        await actor.change("resume")
        await actor.change("kill")
        assert actor.exit_code == -signal.SIGKILL
        assert actor.problem is None
        assert actor.consumed_subscriptions() == [
            ("us-east", "persistent://public/default/orders", "billing")
        ]
        for process in map(int, printed(actor)):
            await wait_until(lambda process=process: not lives(process))  # type: ignore[misc]

    asyncio.run(work())
    last = (run.run_dir / "history" / "shop.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["op"] == "seal"


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.real
def test_a_service_that_is_killed_and_moved_is_drained_like_any_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forwards.py").write_text(FORWARDS)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    example = scenario(
        f"[python, {tmp_path}/forwards.py], subscriptions: [billing]",
        "begin: all",
        "wait_until: {program: shop, received: 20}",
        "kill: {program: shop}",
        "start: {program: shop}",
        "wait_until: {program: shop, published_more: 10}",
        "move: {program: shop, to: us-west}",
        "wait_until: {subscription: billing, exists_in: us-west}",
        "drain: 20s",
    )

    async def perform() -> ScenarioResult:
        runtime = ProcessRuntime.create(TOPOLOGY, tmp_path / "run")
        await runtime.up()
        try:
            return await execute_scenario(example, runtime, ScenarioObserver())
        finally:
            await runtime.down()

    try:
        result = asyncio.run(perform())
    finally:
        end_all(tmp_path / "run")
    assert result.completed, result.failure
    history = tmp_path / "run" / "history"
    assert result.counts["shop"].ok >= 100
    assert {event.region for event in read_events(history / "shop.jsonl")} == {"us-east", "us-west"}
    facts = list(read_events(history / "scenario.jsonl"))
    assert "kill shop" in [event.detail for event in facts if event.op == "note"]
    assert sorted(event.file or "" for event in facts if event.op == "hire") == ["orders", "shop"]
    assert set(REGIONS) >= {event.region for event in facts if event.op == "move"}
