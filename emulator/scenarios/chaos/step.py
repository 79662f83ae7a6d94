"""The step `chaos` of a scenario: draw the plan of its seed, and inject the faults as the steps of a scenario do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from emulator.config.topology import Topology
from emulator.runtimes.contract import Runtime
from emulator.scenarios.chaos.execution import ApplyStep, ChaosResult, run_chaos
from emulator.scenarios.chaos.memory import MemoryCurves
from emulator.scenarios.chaos.plan import ChaosPlan, plan_chaos
from emulator.scenarios.format.steps import Chaos, StepEntry
from emulator.scenarios.format.types import KnownNames
from emulator.scenarios.region_steps import RegionSteps
from emulator.scenarios.run_context import RunContext

STEP_SECONDS = 60.0
"""Time for the beginning or the end of a fault, because other faults may delay it, such as the start of a region."""
OVERTIME_SECONDS = 300.0
"""Time that ends of faults and repairs may take after the planned end."""


class ChaosStep:
    """The random faults of one run of a scenario."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._apply = step_applier(RegionSteps(context.without_actors()), context.runtime.topology)

    async def inject(self, chaos: Chaos) -> None:
        """Inject the faults of the step's seed. Failed faults are recorded and end nothing. Raises StepFailed when an
        actor ends unexpectedly."""
        control = self._context.environment.chaos
        seed = control.seed if chaos.seed is None else chaos.seed
        plan = plan_chaos(
            self._context.runtime.topology, seed, chaos.profile, chaos.duration, lose=chaos.lose
        )
        await self._context.in_time(
            chaos.duration + OVERTIME_SECONDS, self.run(plan), lambda: "the faults have not ended"
        )

    async def run(self, plan: ChaosPlan) -> ChaosResult:
        """Inject the faults of a plan, and return the result."""
        control = self._context.environment.chaos

        def observe(seconds: float, text: str, failure: str | None) -> None:
            if failure is not None:
                self._context.failed_faults.append(f"{text}: {failure}")
                self._context.fact("note", detail=f"a random fault failed: {text}", error=failure)
            control.observe(seconds, text, failure)

        runtime = self._context.runtime
        async with _sampled(control.memory, runtime):
            return await run_chaos(plan, runtime, self._apply, control.stop, observe)


@asynccontextmanager
async def _sampled(memory: MemoryCurves | None, runtime: Runtime) -> AsyncIterator[None]:
    """Sample the memory of regions within the `async with` block."""
    if memory is None:
        yield
        return
    sampling = asyncio.create_task(memory.follow(runtime))
    try:
        yield
    finally:
        sampling.cancel()
        await asyncio.wait({sampling})


def step_applier(regions: RegionSteps, topology: Topology) -> ApplyStep:
    """Return a function that applies a step, given as in a scenario file, to the regions of a run."""
    known = KnownNames(topology.region_names, [cluster.name for cluster in topology.clusters])

    async def apply(step: Mapping[str, Any]) -> None:
        entry = StepEntry.model_validate(dict(step), context=known)
        action: Any = entry.action
        patient = action.model_copy(update={"within": max(action.within, STEP_SECONDS)})
        await regions.apply(entry.verb, patient)

    return apply
