"""How programs end, in virtual time: the supervisor waits only for their processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.run.history import HistoryWriter, is_closed
from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.actors.program import ProcessGroup, ProgramProcess
from emulator.scenarios.actors.specs import Actor, ActorSpec, ProgramSpec
from emulator.scenarios.region_queries import TopicStatus
from emulator.scenarios.run_context import ScenarioEnvironment, ScenarioObserver, ScenarioResult
from emulator.scenarios.runner import execute_scenario
from emulator.scenarios.scenario import parse_scenario

from .virtual import (
    REGIONS,
    TOPOLOGY,
    PretendedActor,
    PretendedRuntime,
    in_virtual_time,
    now,
    program_spec,
    topic_status,
)

TERM_SECONDS = 0.3
KILL_SECONDS = 0.05
STOP_SECONDS = 5.0


@pytest.fixture
def runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    return in_virtual_time


class PretendedGroup(ProcessGroup):
    """A process group that ends by itself after `lives` seconds, or after a signal as the constants say."""

    returncode: int | None = None  # type: ignore[assignment]
    has_members = True  # type: ignore[assignment]

    def __init__(self, lives: float = 3600.0, code: int = 0, *, obeys: bool = True) -> None:
        self.ended_at = 0.0
        self._obeys = obeys
        self._ended = asyncio.get_running_loop().create_future()
        self._end_in(lives, code)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            self._end_in(KILL_SECONDS, -number)
        elif number == signal.SIGTERM and self._obeys:
            self._end_in(TERM_SECONDS, -number)

    def _end_in(self, seconds: float, code: int) -> None:
        asyncio.get_running_loop().call_later(seconds, self._end, code)

    def _end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode, self.has_members, self.ended_at = code, False, now()
            self._ended.set_result(code)


class Programs:
    """Starts fake processes, and keeps them."""

    def __init__(self, make: Callable[[], PretendedGroup] = PretendedGroup) -> None:
        self.started: list[PretendedGroup] = []
        self._make = make

    async def start(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> PretendedGroup:
        self.started.append(self._make())
        return self.started[-1]


async def regions() -> list[RegionStatus]:
    """Regions that do not listen."""
    return [
        RegionStatus(name, "", "running", f"pulsar://127.0.0.1:{9 + index}", "", 1)
        for index, name in enumerate(REGIONS)
    ]


@asynccontextmanager
async def at_work(run: Path, programs: Programs, **changes: object) -> AsyncIterator[ProgramProcess]:
    actor = ProgramProcess(program_spec(**changes), run, regions, programs.start)
    await actor.begin("")
    try:
        yield actor
    finally:
        await actor.leave()


async def seconds_of(work: Awaitable[None]) -> float:
    began = now()
    await work
    return round(now() - began, 6)


@pytest.mark.parametrize("tapped", [False, True])
@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        (lambda actor: actor.change("kill"), KILL_SECONDS),
        (lambda actor: actor.change("stop"), TERM_SECONDS),
        (lambda actor: actor.change("restart"), TERM_SECONDS),
        (lambda actor: actor.move("us-west", ""), TERM_SECONDS),
        (lambda actor: actor.finish(), TERM_SECONDS),
        (lambda actor: actor.leave(), TERM_SECONDS),
    ],
)
async def test_the_end_of_a_program_takes_as_long_as_its_processes_take(
    tmp_path: Path, tapped: bool, end: Callable[[ProgramProcess], Awaitable[None]], seconds: float
) -> None:
    async with at_work(tmp_path, Programs(), tapped=tapped) as actor:
        assert await seconds_of(end(actor)) == seconds


@pytest.mark.parametrize("tapped", [False, True])
async def test_a_program_that_ignores_the_request_to_stop_is_killed(tmp_path: Path, tapped: bool) -> None:
    programs = Programs(lambda: PretendedGroup(obeys=False))
    async with at_work(tmp_path, programs, tapped=tapped) as actor:
        assert await seconds_of(actor.change("stop")) == STOP_SECONDS + KILL_SECONDS
        assert actor.problem is None


@pytest.mark.parametrize("tapped", [False, True])
async def test_an_exit_code_is_known_at_once(tmp_path: Path, tapped: bool) -> None:
    programs = Programs(lambda: PretendedGroup(lives=1.0, code=3))
    async with at_work(tmp_path, programs, tapped=tapped) as actor:
        await asyncio.sleep(1.0 + 1e-6)
        assert (actor.exit_code, "exit code 3" in (actor.problem or "")) == (3, True)
        actor.accept_exit_code()


async def test_a_history_held_by_a_process_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "history" / "shop.jsonl"

    async with at_work(tmp_path, Programs()) as actor:
        stray = HistoryWriter(path, "shop")
        assert await seconds_of(actor.change("kill")) == KILL_SECONDS
        stray.abandon()
    assert is_closed(path), "it is closed at the end of the run, when no process holds it any more"


async def test_a_history_is_closed_when_the_last_process_of_the_group_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "history" / "shop.jsonl"

    programs = Programs()
    async with at_work(tmp_path, programs) as actor:
        child = HistoryWriter(path, "shop")
        killing = asyncio.create_task(actor.change("kill"))
        await programs.started[0].wait()
        programs.started[0].has_members = True
        asyncio.get_running_loop().call_later(0.2, child.abandon)
        await killing
        assert now() < KILL_SECONDS + 0.2 + 0.02
        assert is_closed(path)


@pytest.mark.parametrize(
    ("how", "code", "is_problem"),
    [
        ("kill", -signal.SIGKILL, False),
        ("stop", -signal.SIGTERM, False),
        ("stop", 128 + signal.SIGTERM, False),
        ("stop", 0, False),
        ("stop", 3, True),
        ("restart", 3, True),
        ("kill", 3, True),
    ],
)
async def test_an_exit_code_that_the_step_does_not_explain_is_a_problem(
    tmp_path: Path, how: str, code: int, is_problem: bool
) -> None:
    class Group(PretendedGroup):
        def signal(self, number: signal.Signals) -> None:
            self._end_in(0.0, code)

    async with at_work(tmp_path, Programs(Group)) as actor:
        await actor.change(how)  # type: ignore[arg-type]
        assert (actor.problem is not None) == is_problem, actor.problem


async def test_a_program_that_is_to_be_restarted_is_not_after_it_was_killed(tmp_path: Path) -> None:
    programs = Programs(lambda: PretendedGroup(lives=1.0, code=3))
    async with at_work(tmp_path, programs, restarts=True) as actor:
        await asyncio.sleep(1.1)
        await actor.change("kill")  # it has ended and would restart in 0.1 s
        await asyncio.sleep(5.0)
        assert (len(programs.started), actor.problem) == (1, None)


class TermsWith(PretendedGroup):
    """Ends with exit code 5 when it has to stop."""

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGTERM:
            self._end_in(TERM_SECONDS, 5)
        else:
            super().signal(number)


def run_of(
    run: Path, make: Callable[[], PretendedGroup], *steps: str, tapped: bool = False
) -> ScenarioResult:
    lines = "".join(f"  - {step}\n" for step in steps)
    scenario = parse_scenario(
        f"name: own\ntopic: orders\nactors:\n"
        f"  producers: [{{name: orders, region: us-west, messages: 100}}]\n"
        f"  programs: [{{name: shop, region: us-east, command: [shop], tap: {str(tapped).lower()}}}]\n"
        f"steps:\n{lines}",
        TOPOLOGY,
    )

    def create_actor(part: ActorSpec) -> Actor:
        if isinstance(part, ProgramSpec):
            return ProgramProcess(part, run, regions, Programs(make).start)
        return PretendedActor(part)

    async def read_topics(region: RegionStatus) -> list[TopicStatus]:
        return [topic_status()]

    environment = ScenarioEnvironment(create_actor=create_actor, read_topics=read_topics)
    return in_virtual_time(execute_scenario(scenario, PretendedRuntime(run), ScenarioObserver(), environment))


FAILED_BY_ITSELF = "shop ended by itself with exit code 3; see "


@pytest.mark.parametrize("tapped", [False, True])
@pytest.mark.parametrize("lives", [0.0, 0.01, 1.0])
@pytest.mark.parametrize(
    "steps",
    [
        ("begin: all", "wait: 2s"),
        ("begin: all", "wait: 2s", "finish: producers"),
        ("begin: all", "wait: 2s", "finish: shop"),
        ("begin: all", "finish: producers", "wait: 2s", "start: {program: shop}"),
        ("begin: all", "wait: 2s", "kill: {program: shop}"),
        ("begin: all", "wait_until: {program: shop, exit_code: 4, within: 9s}"),
        (
            "begin: all",
            "kill: us-east",
            "kill: us-west",
            "move: {program: shop, to: us-west}",
            "wait: 2s",
        ),
    ],
)
def test_a_run_fails_when_a_program_fails_whatever_the_steps_do(
    tmp_path: Path, steps: Sequence[str], lives: float, tapped: bool
) -> None:
    result = run_of(tmp_path, lambda: PretendedGroup(lives, 3), *steps, tapped=tapped)
    assert FAILED_BY_ITSELF in (result.failure or "no failure")


@pytest.mark.parametrize("lives", [0.0, 0.01])
def test_a_run_that_ends_at_once_notices_a_program_that_fails_at_once(tmp_path: Path, lives: float) -> None:
    result = run_of(tmp_path, lambda: PretendedGroup(lives, 3), "begin: all")
    assert "with exit code 3; see " in (result.failure or "no failure")


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda: PretendedGroup(0.5, 0), ("wait: 1s",)),
        (
            lambda: PretendedGroup(0.5, 3),
            ("wait: 1s", "wait_until: {program: shop, exit_code: 3}", "wait: 1s"),
        ),
        (
            lambda: PretendedGroup(0.5, 3),
            ("wait_until: {program: shop, exit_code: 3}", "start: {program: shop}", "kill: {program: shop}"),
        ),
        (lambda: PretendedGroup(), ("kill: {program: shop}", "wait: 1s", "start: {program: shop}")),
        (lambda: PretendedGroup(), ("finish: all",)),
        (lambda: PretendedGroup(obeys=False), ("stop: {program: shop, within: 9s}",)),
    ],
)
def test_a_run_does_not_fail_when_a_step_ends_a_program(
    tmp_path: Path, make: Callable[[], PretendedGroup], steps: Sequence[str]
) -> None:
    result = run_of(tmp_path, make, "begin: all", *steps)
    assert result.completed, result.failure


@pytest.mark.parametrize(
    "steps",
    [
        ("wait: 1s",),
        ("stop: {program: shop}",),
        ("restart: {program: shop}",),
        ("move: {program: shop, to: us-west}",),
        ("finish: shop",),
    ],
)
def test_a_run_fails_when_a_program_fails_as_it_stops(tmp_path: Path, steps: Sequence[str]) -> None:
    result = run_of(tmp_path, TermsWith, "begin: all", *steps)
    assert "with exit code 5; see " in (result.failure or "no failure")


def test_a_step_that_requires_an_exit_code_accepts_it_once(tmp_path: Path) -> None:
    steps = (
        "begin: all",
        "wait_until: {program: shop, exit_code: 3}",
        "start: {program: shop}",
        "wait: 2s",
    )
    result = run_of(tmp_path, lambda: PretendedGroup(0.5, 3), *steps)
    assert FAILED_BY_ITSELF in (result.failure or "no failure")


def test_a_program_without_a_history_is_no_program_that_received_nothing(tmp_path: Path) -> None:
    steps = ("begin: all", "wait_until: {program: shop, received: 300, within: 10s}")
    sentence = "it has no history: wrap its client in geoemu.recorded(...), or set `tap: true`"
    for tapped in (False, True):
        failure = run_of(tmp_path, PretendedGroup, *steps, tapped=tapped).failure or ""
        assert failure.endswith(
            "): 0 of 300 within 10 s" if tapped else f"): 0 of 300 ({sentence}) within 10 s"
        )
