"""A world for the runner's tests: virtual time, with a fake runtime and fake actors."""

from __future__ import annotations

import asyncio
import dataclasses
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.errors import RuntimeFailure
from emulator.run.history import HistoryWriter
from emulator.run.record import LinkStatus
from emulator.runtimes.contract import Link, RegionState, RegionStatus, RunStatus
from emulator.scenarios.actors.specs import (
    ActorFailure,
    ActorSpec,
    ConsumerSpec,
    Counts,
    ProducerSpec,
    ProgramSpec,
)
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.region_queries import TopicStatus
from emulator.scenarios.rehearsal import Step
from emulator.scenarios.run_context import (
    ProgressSnapshot,
    ScenarioEnvironment,
    ScenarioObserver,
    ScenarioResult,
)
from emulator.scenarios.runner import execute_scenario
from emulator.scenarios.scenario import parse_scenario

REGIONS = ("us-east", "us-west", "eu-central")
ROUNDING = 1e-6
"""A sum of many short sleeps is a little less than one long one."""
ORDERS = "persistent://public/default/orders"

TOPOLOGY = Topology(
    name="test",
    path=Path("topology.yaml"),
    clusters=(
        ClusterSpec("americas", (RegionSpec("us-east", "americas"), RegionSpec("us-west", "americas"))),
        ClusterSpec("europe", (RegionSpec("eu-central", "europe"),)),
    ),
    links=tuple(LinkSpec(a, b, LinkShape()) for a in REGIONS for b in REGIONS if a != b),
    namespaces=(
        NamespaceConfig("public/default", REGIONS, deduplication=True),
        NamespaceConfig("public/us", REGIONS[:2]),
    ),
)

T = TypeVar("T")
DEADLINE_SECONDS = 20.0
"""Of waiting in real time."""


def producer_spec(**changes: object) -> ProducerSpec:
    fields: dict[str, object] = {
        "name": "orders",
        "region": "us-east",
        "topic": ORDERS,
        "rate_per_second": 400,
        "messages": None,
        "message_bytes": 200,
        "batching": True,
        "batching_delay_ms": 5,
        "send_timeout_ms": 30_000,
        "max_pending": 1000,
    }
    return ProducerSpec(**{**fields, **changes})  # type: ignore[arg-type]


def consumer_spec(**changes: object) -> ConsumerSpec:
    fields: dict[str, object] = {
        "name": "billing",
        "region": "us-east",
        "topic": ORDERS,
        "subscription": "billing",
        "type": "exclusive",
        "replicated": False,
        "acknowledge": "individual",
        "receiver_queue": 1000,
    }
    return ConsumerSpec(**{**fields, **changes})  # type: ignore[arg-type]


def program_spec(**changes: object) -> ProgramSpec:
    fields: dict[str, object] = {
        "name": "shop",
        "region": "us-east",
        "topic": ORDERS,
        "command": ("shop",),
        "environment": (),
        "subscriptions": (),
        "restarts": False,
        "stop_seconds": 5.0,
    }
    return ProgramSpec(**{**fields, **changes})  # type: ignore[arg-type]


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


class _JumpingSelector(selectors.SelectSelector):
    """A selector that advances the time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "deadlock: every task waits and no timer is set"
        self._loop.seconds += max(timeout, 0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.seconds


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def now() -> float:
    return asyncio.get_running_loop().time()


class PretendedRuntime:
    """Regions that take every requested state; `requests` lists the requests."""

    def __init__(self, run_dir: Path) -> None:
        self.topology = TOPOLOGY
        self.run_dir = run_dir
        self.requests: list[str] = []
        self.times: list[float] = []
        """When each verb was called."""
        self.states: dict[str, RegionState] = dict.fromkeys(REGIONS, "running")
        self.fails: dict[str, str] = {}
        """Command -> its error."""
        self.hangs: set[str] = set()

    async def skew(self, region: str, ahead_ms: int, drift_ppm: float = 0.0) -> None:
        drift = f" {drift_ppm:+g} ppm" if drift_ppm else ""
        await self._do(f"skew {ahead_ms:+d}{drift}", region)

    async def disk(self, region: str, state: str, delay_ms: float | None = None) -> None:
        await self._do(f"disk {state}" + ("" if delay_ms is None else f" {delay_ms:g}"), region)

    async def power_loss(self, region: str) -> None:
        await self._do("power_loss", region, state="killed")

    async def _do(self, verb: str, *regions: str, state: RegionState | None = None) -> None:
        self.times.append(now())
        await asyncio.sleep(0.5)
        if verb in self.hangs:
            await asyncio.sleep(3600)
        if verb in self.fails:
            raise RuntimeFailure(self.fails[verb])
        self.requests.append(" ".join([verb, *regions]))
        if state is not None:
            self.states[regions[0]] = state

    async def up(self) -> None: ...

    async def down(self) -> None: ...

    async def start(self, region: str) -> None:
        await self._do("start", region, state="running")

    async def stop(self, region: str) -> None:
        await self._do("stop", region, state="stopped")

    async def kill(self, region: str) -> None:
        await self._do("kill", region, state="killed")

    async def lose(self, region: str) -> None:
        await self._do("lose", region, state="lost")

    async def lose_store(self, cluster: str) -> None:
        await self._do("lose_store", cluster)

    async def restart(self, region: str) -> None:
        await self._do("restart", region, state="running")

    async def pause(self, region: str) -> None:
        await self._do("pause", region, state="paused")

    async def resume(self, region: str) -> None:
        await self._do("resume", region, state="running")

    async def change_links(self, links: Sequence[Link], changes: Mapping[str, Any]) -> None:
        values = [f"{name}={value}" for name, value in changes.items()]
        await self._do("change_links", *(f"{a}->{b}" for a, b in links), *values)

    async def break_connections(self, links: Sequence[Link], how: str) -> None:
        await self._do(how, *(f"{a}->{b}" for a, b in links))

    async def heal(self, links: Sequence[Link] | None = None) -> None:
        await self._do("heal", *(f"{a}->{b}" for a, b in links or ()))

    async def status(self) -> RunStatus:
        regions = (
            RegionStatus(name, "", state, f"pulsar://{name}", f"http://{name}", 1)
            for name, state in self.states.items()
        )
        return RunStatus(self.run_dir, "pretended", tuple(regions), tuple[LinkStatus, ...]())

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        return
        yield


class PretendedActor:
    """Publishes or receives exactly at its rate (consumers: 100 a second) while virtual time passes."""

    def __init__(self, part: ActorSpec) -> None:
        self.part = part
        self.requests: list[str] = []
        self.problem: str | None = None
        self.ignores: set[str] = set()
        """Commands that it never answers."""
        self.refuses: set[str] = set()
        self.rate = (part.rate_per_second or 0) if isinstance(part, ProducerSpec) else 100.0
        self.answered = True
        """Whether publishes get their outcome."""
        self._region = part.region
        self._since: float | None = None
        self._until: float | None = None

    @property
    def counts(self) -> Counts:
        if self._since is None:
            return Counts(region=self._region)
        done = int(((self._until or now()) - self._since) * self.rate + ROUNDING)
        if not isinstance(self.part, ProducerSpec):
            return Counts(region=self._region, connected=True, received=done)
        done = min(done, self.part.messages or done)
        publishing = self._until is None and done != self.part.messages
        return Counts(
            region=self._region,
            connected=True,
            asked=done,
            ok=done if self.answered else done // 2,
            publishing=publishing,
        )

    async def _do(self, command: str) -> None:
        await asyncio.sleep(0.1)
        verb = command.split()[0]
        if verb in self.ignores:
            await asyncio.sleep(3600)
        if verb in self.refuses:
            raise ActorFailure(f"{self.part.name} does not {verb}")
        self.requests.append(command)

    async def begin(self, service_url: str) -> None:
        await self._do(f"begin {service_url}")
        self._since = now()

    async def move(self, region: str, service_url: str) -> None:
        await self._do(f"move {service_url}")
        self._region = region

    async def finish(self) -> None:
        await self._do("finish")
        self._until = now()

    async def leave(self) -> None:
        if "leave" not in self.requests:
            self.requests.append("leave")


class Watcher(ScenarioObserver):
    """Records the progress output of a run."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.snapshots: list[ProgressSnapshot] = []

    def step_ended(self, step: Step, seconds: float, failure: str | None) -> None:
        self.steps.append(f"{step.verb} {seconds:.2f}" if failure is None else f"{step.verb} failed")

    def snapshot_taken(self, snapshot: ProgressSnapshot) -> None:
        self.snapshots.append(snapshot)


class ScenarioHarness:
    """Runs one scenario in virtual time. Change `runtime`, `actors` or `topics` before `execute_scenario`."""

    def __init__(self, run_dir: Path) -> None:
        self.runtime = PretendedRuntime(run_dir)
        self.actors: dict[str, PretendedActor] = {}
        self.prepare: Callable[[PretendedActor], None] = lambda actor: None
        """Called with each actor before it begins."""
        self.topics: Callable[[str], TopicStatus | OSError] = lambda region: topic_status()
        """The regions' current response."""
        self.watcher = Watcher()
        self.requests: list[tuple[float, str]] = []
        """Requests to admin ports, with their times."""
        self.answers: Callable[[str, str], tuple[int, bytes]] = lambda region, method: (204, b"")
        """(region, method) -> status and body."""

    def create_actor(self, part: ActorSpec) -> PretendedActor:
        actor = self.actors[part.name] = PretendedActor(part)
        self.prepare(actor)
        return actor

    async def read_topics(self, region: RegionStatus) -> list[TopicStatus]:
        answer = self.topics(region.name)
        if isinstance(answer, OSError):
            raise answer
        return [answer]

    async def call_region(self, region: RegionStatus, method: str, path: str, body: Any) -> tuple[int, bytes]:
        self.requests.append((now(), f"{region.name} {method} {path} {body}"))
        return self.answers(region.name, method)

    def run(self, steps: str, *, partitions: str = "{}", chaos: ChaosControl | None = None) -> ScenarioResult:
        text = scenario_text(steps).replace("topic: orders\n", f"topic: orders\npartitions: {partitions}\n")
        scenario = parse_scenario(text, TOPOLOGY)
        wall_clock_ms = iter(range(1, 10_000)).__next__
        environment = ScenarioEnvironment(
            create_actor=self.create_actor,
            read_topics=self.read_topics,
            call_region=self.call_region,
            open_history=lambda run_dir: HistoryWriter(
                run_dir / "history" / "scenario.jsonl", "scenario", wall_clock_ms
            ),
            chaos=chaos or ChaosControl(),
        )
        return in_virtual_time(execute_scenario(scenario, self.runtime, self.watcher, environment))


def topic_status(**changes: Any) -> TopicStatus:
    """A topic with nothing left to do."""
    calm = TopicStatus(ORDERS, backlogs={}, unacknowledged={"billing": 0}, why_not_replicated={})
    return dataclasses.replace(calm, **changes)


def scenario_text(steps: str) -> str:
    """Two producers (100 and 50 messages a second), one consumer, and these steps, one per line. A line that begins
    with `when` belongs to the step before it."""
    lines = [line.strip() for line in steps.strip().splitlines()]
    return _CAST + "".join(f"  {' ' if line.startswith('when') else '-'} {line}\n" for line in lines)


_CAST = """\
name: example
topic: orders
actors:
  producers:
    - {name: fast, region: us-east, rate_per_second: 100}
    - {name: slow, region: eu-central, rate_per_second: 50}
    - {name: short, region: us-west, rate_per_second: 100, messages: 20}
  consumers:
    - {name: billing, region: us-east, subscription: billing, replicated: true}
steps:
"""
