"""Run a scenario on any runtime, and record each event with its time.

    result = await execute_scenario(scenario, runtime, observer)

The runner uses regions only through the runtime contract, actors through `scenarios/actors/specs.py` (and programs,
which are never simulated, directly), and the time of the event loop. So the same scenario runs with processes and real
clients, or in a simulation.

A run ends when every step is complete, or when one fails; then later steps are skipped. In both cases the actors leave,
and the run directory contains their histories for the verdict. Facts about the scenario itself (steps, faults,
phases) are written to `history/scenario.jsonl`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import assert_never

from emulator.errors import RuntimeFailure
from emulator.runtimes.contract import Runtime
from emulator.scenarios.actor_steps import ActorSteps
from emulator.scenarios.actors.specs import ActorFailure
from emulator.scenarios.chaos.step import ChaosStep
from emulator.scenarios.format.conditions import (
    AdminCondition,
    HostCondition,
    ProgramCondition,
    PublishedCondition,
    ReceivedCondition,
    SubscriptionExists,
    TaskCondition,
    TopicsOwnedCondition,
)
from emulator.scenarios.format.link_steps import Heal, OnFrames, OnLink
from emulator.scenarios.format.machine_steps import Disk, PowerLoss, Skew
from emulator.scenarios.format.steps import (
    AdminCalls,
    Begin,
    Chaos,
    Drain,
    Finish,
    Move,
    OnRegion,
    Phase,
    PlanFailover,
    Wait,
)
from emulator.scenarios.region_steps import RegionSteps, create_partitions
from emulator.scenarios.rehearsal import Step
from emulator.scenarios.run_context import (
    AFTER_LAST_STEP,
    ProgressSnapshot,
    RunContext,
    ScenarioEnvironment,
    ScenarioObserver,
    ScenarioResult,
    StepFailed,
    now,
    real_environment,
)
from emulator.scenarios.scenario import Scenario
from emulator.scenarios.wait_steps import DrainStep, WaitSteps

SNAPSHOT_SECONDS = 0.25
"""Interval at which the observer receives a snapshot."""


async def execute_scenario(
    scenario: Scenario,
    runtime: Runtime,
    observer: ScenarioObserver,
    environment: ScenarioEnvironment | None = None,
) -> ScenarioResult:
    """Run a scenario on regions that are up, and return its result. When it is cancelled, the actors leave first."""
    return await _Execution(
        RunContext(scenario, runtime, environment or real_environment(runtime)), observer
    ).perform()


class _Execution:
    def __init__(self, context: RunContext, observer: ScenarioObserver) -> None:
        self._context = context
        self._observer = observer
        self._actors = ActorSteps(context)
        self._regions = RegionSteps(context)
        self._conditions = WaitSteps(context)
        self._drain_step = DrainStep(context)
        self._chaos = ChaosStep(context)
        self._steps_done = 0

    async def perform(self) -> ScenarioResult:
        began = now()
        self._observer.run_began(self._context.scenario)
        self._context.fact("phase", detail=f"play of {self._context.scenario.name} begins")
        ending = "interrupted"
        try:
            async with self._observed(began):
                failure = await self._run_steps()
                ending = failure or "every step completed"
                await self._actors.close_actors()
                failure = failure or self._failure_at_the_end()
                ending = failure or ending
        finally:
            await self._actors.close_actors()
            self._actors.record_programs()
            self._context.fact("phase", detail=f"play of {self._context.scenario.name} ends: {ending}")
            self._context.history.close()
        result = ScenarioResult(
            scenario=self._context.scenario,
            run_dir=self._context.runtime.run_dir,
            seconds=now() - began,
            steps_done=self._steps_done,
            failure=failure,
            counts={name: actor.counts for name, actor in self._context.actors.items()},
        )
        self._observer.run_ended(result)
        return result

    async def _run_steps(self) -> str | None:
        """Run the steps up to the first that fails. Return its failure as a sentence; None if all completed."""
        try:
            await create_partitions(self._context)
        except StepFailed as reason:
            return f"before the first step: {reason}"
        for index, step in enumerate(self._context.scenario.steps):
            self._context.remaining_steps = self._context.scenario.steps[index:]
            began = now()
            self._observer.step_began(step)
            self._context.fact("step", detail=f"step {step.number} begins: {step.text}")
            failure = await self._attempt(step)
            self._observer.step_ended(step, now() - began, failure)
            if failure is not None:
                self._context.fact("step", detail=f"step {step.number} failed: {step.text}", error=failure)
                return failure
            self._context.fact("step", detail=f"step {step.number} done: {step.text}")
            self._steps_done += 1
        return None

    def _failure_at_the_end(self) -> str | None:
        """Return the failure of an actor or of random faults after every step completed, as a sentence, and record it
        as a fact; None if there is none."""
        self._context.remaining_steps = ()
        problem = self._context.problem() or self._failed_faults()
        if problem is None:
            return None
        failure = f"{AFTER_LAST_STEP}: {problem}"
        self._context.fact("step", detail=AFTER_LAST_STEP, error=failure)
        return failure

    def _failed_faults(self) -> str | None:
        failed = self._context.failed_faults
        return f"{len(failed)} random faults failed, the first: {failed[0]}" if failed else None

    async def _attempt(self, step: Step) -> str | None:
        try:
            if step.when is not None:
                await self._conditions.wait_for_state(step, step.when)
            await self._execute_step(step)
            if (problem := self._context.problem()) is not None:
                raise StepFailed(problem)
        except (StepFailed, ActorFailure, RuntimeFailure) as reason:
            return f"{step}: {reason}"
        return None

    async def _execute_step(self, step: Step) -> None:
        match step.action:
            case Phase(text=text):
                self._context.fact("phase", detail=text)
            case Wait(time=seconds):
                await self._context.wait(seconds)
            case Begin(within=seconds):
                await self._actors.begin(step.actors, seconds)
            case Finish(within=seconds):
                await self._actors.finish(step.actors, seconds)
            case Move() as move:
                await self._actors.move(move)
            case OnRegion(program=str(program)) as change:
                await self._actors.change_program(step.verb, program, change.within)
            case OnRegion(host=tuple(names)) | OnRegion(task=tuple(names)) as change:
                await self._actors.change_actors(step.verb, names, change.within)
            case OnRegion() | OnLink() | OnFrames() | Heal() | Skew() | Disk() | PowerLoss() as change:
                await self._regions.apply(step.verb, change)
            case PublishedCondition() | ReceivedCondition() as condition:
                await self._conditions.wait_for_count(condition)
            case ProgramCondition() as condition:
                await self._conditions.wait_for_program(condition)
            case SubscriptionExists() as condition:
                await self._conditions.wait_for_subscription(condition)
            case HostCondition() as condition:
                await self._conditions.wait_for_host(condition)
            case TaskCondition() as condition:
                await self._conditions.wait_for_task(condition)
            case TopicsOwnedCondition(within=seconds):
                await self._conditions.wait_for_owners(seconds)
            case PlanFailover() as plan:
                await self._regions.plan(plan)
            case AdminCalls(calls=calls):
                await self._regions.call(calls)
            case AdminCondition() as condition:
                await self._conditions.wait_for_admin_value(condition)
            case Chaos() as chaos:
                await self._chaos.inject(chaos)
            case Drain(within=seconds):
                await self._drain_step.drain(seconds)
            case unknown:
                assert_never(unknown)

    @asynccontextmanager
    async def _observed(self, began: float) -> AsyncIterator[None]:
        """Send snapshots to the observer within the `async with` block."""

        async def send_regularly() -> None:
            while True:
                await self._send_snapshot(began)
                await asyncio.sleep(SNAPSHOT_SECONDS)

        sending = asyncio.create_task(send_regularly())
        try:
            yield
        finally:
            sending.cancel()
            await asyncio.wait({sending})
        if not sending.cancelled():
            sending.result()
        await self._send_snapshot(began)

    async def _send_snapshot(self, began: float) -> None:
        regions = tuple((await self._context.regions()).values())
        actors = tuple((actor.part, actor.counts) for actor in self._context.actors.values())
        self._observer.snapshot_taken(ProgressSnapshot(now() - began, actors, regions))
