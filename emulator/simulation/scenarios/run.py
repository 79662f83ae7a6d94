"""Run one seed of one scenario: start the regions, run the steps, repair, compute the verdict.

The seed decides what topology and scenario leave open: delays within the declared jitter, the duration of disk writes,
the order of simultaneous events. The files determine everything else.

A run ends when every step is complete, or when one fails. Then the safety invariants are checked. If every step is
complete and none is violated, links and regions are repaired, the regions get time to converge, and all invariants are
checked. A region that the scenario lost is not repaired; the messages lost with it are measured, not violations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from emulator.broker.admin.stats import topic_row
from emulator.config.region import NamespaceConfig
from emulator.config.topology import Topology
from emulator.errors import ConfigurationError, Problem
from emulator.model.values import TopicName
from emulator.net.http import NoHttpResponse, call
from emulator.scenarios.actors.specs import ConsumerSpec, ProgramSpec, TaskSpec
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.format.steps import Drain, Phase
from emulator.scenarios.region_queries import TopicStatus, topic_status
from emulator.scenarios.run_context import ScenarioEnvironment, ScenarioObserver, ScenarioResult
from emulator.scenarios.runner import execute_scenario
from emulator.scenarios.scenario import Scenario, load_scenario
from emulator.simulation.checkers import CHECKS
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.evidence import RunEvidence, full
from emulator.simulation.history import SimulatedHistory, note_repair
from emulator.simulation.invariant_check import InvariantResult, Violation, first_violation, run_checks
from emulator.simulation.outcome import (
    SimulationOutcome,
    run_to_the_end,
    stored_state,
    without_gc_and_logging,
)
from emulator.simulation.parallel_runner import SeedResult
from emulator.simulation.region import AS_SHIPPED, Overrides
from emulator.simulation.remote_log import RemoteFaults
from emulator.simulation.scenarios.actors import simulated_actors
from emulator.simulation.scenarios.figures import (
    loss_figures,
    ownership_figures,
    processing_figures,
    regions_lost,
    subscription_figures,
)
from emulator.simulation.scenarios.runtime import SimulatedRuntime
from emulator.simulation.simulation import Simulation
from emulator.simulation.stored_messages import Disks, LogView, have_converged
from emulator.simulation.trace import Listener
from emulator.simulation.virtual_time import EPOCH_MS
from emulator.simulation.watch import CursorWatch
from emulator.simulation.world import ADMIN_PORT, SERVICE_PORT, World

PLAY_SECONDS_MAX = 3600.0
CONVERGE_SECONDS = 60.0
"""Virtual time that regions may take to converge after the repair."""
CONVERGENCE_POLL_SECONDS = 0.5
COMMIT_SECONDS = ((0.0002, 0.002), (0.002, 0.02))
"""Durations of a commit on a fast and on a slow medium; the seed decides which region has which."""


@dataclass(frozen=True, slots=True)
class SimulatedScenario:
    """A scenario and the topology that it runs on."""

    scenario: Scenario
    topology: Topology
    """The topology of its file, with the settings of the scenario."""
    namespace: NamespaceConfig
    """The namespace of all topics of the scenario."""


def prepare_scenario(scenario_path: Path, topology: Topology) -> SimulatedScenario:
    """Read and check a scenario for the simulation. Raises ConfigurationError."""
    return prepare(load_scenario(scenario_path, topology), topology, str(scenario_path))


def prepare(scenario: Scenario, topology: Topology, name: str) -> SimulatedScenario:
    """Check a scenario for the simulation. Messages contain `name` as the file name. Raises ConfigurationError."""
    programs = ", ".join(part.name for part in scenario.parts if isinstance(part, ProgramSpec))
    if programs:
        rule = "a program of your own runs in real time and cannot be simulated; use `geoemu run`"
        raise ConfigurationError([Problem(name, None, "actors.programs", programs, rule)])
    names = sorted({TopicName.parse(part.topic).full_namespace for part in scenario.parts})
    if len(names) != 1:
        rule = "a scenario is simulated in one namespace; give all actors topics of the same one"
        raise ConfigurationError([Problem(name, None, "topic", ", ".join(names), rule)])
    namespace = next(one for one in topology.namespaces if one.name == names[0])
    return SimulatedScenario(scenario, scenario.settings.obeyed_by(topology), namespace)


def run_scenario(
    simulated: SimulatedScenario,
    seed: int,
    *,
    overrides: Overrides = AS_SHIPPED,
    listener: Listener | None = None,
) -> SimulationOutcome:
    """Run one seed of the scenario in a new simulation. Failures are part of the outcome."""
    with without_gc_and_logging():
        return _run_in_new_world(simulated, seed, overrides, listener)


def _run_in_new_world(
    simulated: SimulatedScenario, seed: int, overrides: Overrides, listener: Listener | None
) -> SimulationOutcome:
    simulation = Simulation(f"{simulated.scenario.name}/{seed}", listener=listener)
    topology = _on_hosts(simulated.topology)
    disks = _disks(topology, simulation)
    with World(topology, disks=disks, simulation=simulation, overrides=overrides) as world:
        run = _Run(simulated, world, seed)
        program_failure = run_to_the_end(world, run.perform(), within_seconds=PLAY_SECONDS_MAX)
        return SimulationOutcome(
            name=simulated.scenario.name,
            seed=seed,
            topology=topology,
            violation=program_failure or first_violation(run.check_results) or run.failed_step(),
            check_results=run.check_results,
            virtual_seconds=simulation.now,
            digest=simulation.trace.hexdigest(),
            events=run.history.events,
            stored=stored_state(world),
            figures={
                **subscription_figures(run.history.events),
                **processing_figures(run.history.events),
                **loss_figures(run.history.events, run.stored()),
                **ownership_figures(run.history.events),
            },
        )


def run_scenario_seed(simulated: SimulatedScenario, seed: int) -> SeedResult:
    """Run one seed and return the part of its outcome that is reported."""
    outcome = run_scenario(simulated, seed)
    return SeedResult(seed, outcome.violation, outcome.virtual_seconds, outcome.digest, outcome.figures)


def _on_hosts(topology: Topology) -> Topology:
    """Return the topology with each region on a simulated host of its name."""
    return topology.with_regions(
        lambda region: replace(region, host=region.name, service_port=SERVICE_PORT, admin_port=ADMIN_PORT)
    )


def _disks(topology: Topology, simulation: Simulation) -> dict[str, DiskFaults]:
    """Return the faults of each region's medium: RemoteFaults for a remote log (Kafka), DiskFaults for a disk."""
    random: Random = simulation.random("disks")
    return {
        region.name: (RemoteFaults if region.log.backend == "kafka" else DiskFaults)(
            commit_seconds=random.choice(COMMIT_SECONDS)
        )
        for region in topology.regions
    }


class _ScenarioHistory:
    """Writes the scenario's own history events into the history of the world."""

    def __init__(self, history: SimulatedHistory) -> None:
        self._history = history

    def write(self, op: str, outcome: Any, **fields: Any) -> None:
        self._history.note("scenario", op, outcome, **fields)

    def close(self) -> None: ...


class _Run:
    """The run of one seed."""

    def __init__(self, simulated: SimulatedScenario, world: World, seed: int) -> None:
        self.simulated = simulated
        self.seed = seed
        self.world = world
        self.history = SimulatedHistory(lambda: world.simulation.now)
        self.disks = Disks({name: region.medium for name, region in world.regions.items()})
        self.watch = CursorWatch(self.disks, self.history)
        self.check_results: list[InvariantResult] = []
        self.result: ScenarioResult | None = None
        self._calls = 0
        self.history.delivered.replicated.update(
            (full(topic), part.subscription)
            for part in simulated.scenario.parts
            if isinstance(part, ConsumerSpec | TaskSpec) and part.replicated
            for topic in part.read
        )
        for name, region in world.regions.items():
            self.watch.attach(name, region.medium)

    async def perform(self) -> None:
        runtime = SimulatedRuntime(self.world, Path(self.simulated.scenario.name))
        await runtime.up()
        environment = ScenarioEnvironment(
            create_actor=simulated_actors(self.world, self.history),
            read_topics=self._read_topics,
            call_region=self._call_region,
            now_ms=lambda: EPOCH_MS + self.world.simulation.now * 1_000,
            open_history=lambda _: _ScenarioHistory(self.history),
            chaos=ChaosControl(seed=self.seed),
        )
        self.result = await execute_scenario(
            self.simulated.scenario, runtime, ScenarioObserver(), environment
        )
        self._run_checks(healed=False)
        if self.result.completed and first_violation(self.check_results) is None:
            await self._converge()
            self._run_checks(healed=True)

    def stored(self) -> Mapping[tuple[str, str], LogView]:
        """Return the current content of the logs, by (region, topic)."""
        self.disks.read_new_entries()
        return self.disks.logs

    def failed_step(self) -> Violation | None:
        """Return the failure of a step as a violation; None if no step failed."""
        if self.result is None or self.result.failure is None:
            return None
        steps = f"{self.result.steps_done} of {len(self.simulated.scenario.steps)}"
        return Violation("story", "every-step-comes-true", self.result.failure, {"steps done": steps})

    async def _read_topics(self, region: Any) -> list[TopicStatus]:
        broker = self.world.regions[region.name].broker
        if broker is None:
            raise ConnectionRefusedError("it does not listen")
        return [topic_status(topic_row(topic)) for topic in await broker.every_topic()]

    async def _call_region(self, region: Any, method: str, path: str, body: Any) -> tuple[int, bytes]:
        """Call the region's admin port from a new host at its location. Raises ConnectionRefusedError without a
        response."""
        self._calls += 1
        host = self.world.client_host(f"admin-{self._calls}", region.name)
        host.network.loop = self.world.simulation.driver.loop
        try:
            response = await call(host.network, region.name, ADMIN_PORT, method, path, body)
        except NoHttpResponse as error:
            raise ConnectionRefusedError(str(error)) from None
        return response.status, response.body

    async def _converge(self) -> None:
        self.history.fact("phase", detail="everything is repaired")
        self.world.heal()
        lost = regions_lost(self.history.events)
        note_repair(self.history, (region for name, region in self.world.regions.items() if name not in lost))
        for name in self.world.regions:
            if name not in lost:
                self.world.resume(name)
                self.world.start(name)
        deadline = self.world.simulation.now + CONVERGE_SECONDS
        while self.world.simulation.now < deadline:
            self.disks.read_new_entries()
            if self.world.is_ready(without=lost) and have_converged(
                self.disks, self.world.replication_rules, lost
            ):
                return
            await asyncio.sleep(CONVERGENCE_POLL_SECONDS)

    def _run_checks(self, *, healed: bool) -> None:
        self.disks.read_new_entries()
        self.check_results = run_checks(
            RunEvidence(
                replication_rules=self.world.replication_rules,
                events=self.history.events,
                delivered=self.history.delivered,
                published=self.history.published,
                logs=self.disks.logs,
                cursors=self.disks.cursors(),
                mark_delete_regressions=self.watch.mark_delete_regressions,
                acknowledged_unreceived=self.watch.acknowledged_unreceived,
                fencing_violations=self.disks.fencing_violations(),
                healed=healed,
                subscribed=self._subscribed() if healed else {},
                lost=regions_lost(self.history.events),
            ),
            CHECKS,
        )

    def _subscribed(self) -> dict[tuple[str, str], list[str]]:
        """Return, for each subscription, the regions in which it must have received all messages: those of its
        unfinished consumers after the last step, a drain. Empty if the last step is no drain."""
        actions = [
            step.action for step in self.simulated.scenario.steps if not isinstance(step.action, Phase)
        ]
        found: dict[tuple[str, str], list[str]] = {}
        if self.result is None or not actions or not isinstance(actions[-1], Drain):
            return found
        finished = {
            name for step in self.simulated.scenario.steps if step.verb == "finish" for name in step.actors
        }
        for part in self.simulated.scenario.parts:
            if (
                isinstance(part, ConsumerSpec | TaskSpec)
                and part.name in self.result.counts.keys() - finished
            ):
                for topic in part.read:
                    key = (full(topic), part.subscription)
                    found.setdefault(key, []).append(self.result.counts[part.name].region)
        return found
