"""Inject the faults of a plan into a run at their times, and repair everything at the end.

A fault that fails is reported, and the others go on. In every case, also after a cancellation, regions and links are
repaired before `run_chaos` returns: regions run, links and clocks are as declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.errors import Refused, RuntimeFailure
from emulator.runtimes.contract import Runtime
from emulator.scenarios.chaos.control import ChaosObserver
from emulator.scenarios.chaos.plan import PROFILES, ChaosPlan, PlannedFault
from emulator.scenarios.rehearsal import step_text
from emulator.scenarios.run_context import StepFailed, now

FAILURES = (RuntimeFailure, StepFailed, Refused)
"""Errors of a single fault, which do not end the others."""
ApplyStep = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Applies a step of a scenario file to the run, and records it as a fact."""


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """What a plan did."""

    begun: int
    """Number of faults that were begun."""
    failures: tuple[str, ...]
    """A sentence for each beginning, end or repair that failed."""


async def run_chaos(
    plan: ChaosPlan, runtime: Runtime, apply: ApplyStep, stop: asyncio.Event, observe: ChaosObserver
) -> ChaosResult:
    """Inject the faults of a plan, repair the run, and return the result. A cancellation is raised after the repair."""
    return await FaultSchedule(plan, runtime, apply, stop, observe).perform()


class FaultSchedule:
    def __init__(
        self,
        plan: ChaosPlan,
        runtime: Runtime,
        apply: ApplyStep,
        stop: asyncio.Event,
        observe: ChaosObserver,
    ) -> None:
        self._plan = plan
        self._runtime = runtime
        self._apply = apply
        self._stop = stop
        self._observe = observe
        self._done = [asyncio.Event() for _ in plan.faults]
        self._begun = 0
        self._unended: dict[int, Mapping[str, Any]] = {}
        """Ends of faults that were begun, and whose end has not succeeded."""
        self._failures: list[str] = []
        self._began = now()

    async def perform(self) -> ChaosResult:
        try:
            async with asyncio.TaskGroup() as group:
                for index in range(len(self._plan.faults)):
                    group.create_task(self._inject(index))
            await self._wait_until(self._plan.seconds)
        finally:
            await self._repair()
        return ChaosResult(self._begun, tuple(self._failures))

    async def _inject(self, index: int) -> None:
        planned = self._plan.faults[index]
        try:
            await self._wait_until(planned.begins)
            for earlier in self._predecessors(index):
                await self._done[earlier].wait()
            if self._stop.is_set():
                return
            if planned.fault.end is not None and self._seconds() >= planned.ends:
                self._report(
                    f"skipped, because faults before it took too long: {step_text(planned.fault.begin)}"
                )
                return
            self._begun += 1
            if planned.fault.end is not None:
                self._unended[index] = planned.fault.end
            await self._attempt(planned.fault.begin)
            if planned.fault.end is not None:
                await self._wait_until(planned.ends)
                if await self._attempt(planned.fault.end):
                    del self._unended[index]
        finally:
            self._done[index].set()

    def _predecessors(self, index: int) -> list[int]:
        """Return the earlier faults that must have ended before this one begins."""
        alone = PROFILES[self._plan.profile].lanes == 1
        faults = self._plan.faults
        return [one for one in range(index) if alone or _share_a_claim(faults[one], faults[index])]

    async def _attempt(self, step: Mapping[str, Any]) -> bool:
        began = self._seconds()
        text = step_text(step)
        try:
            await self._apply(step)
        except FAILURES as failure:
            self._fail(text, str(failure))
            return False
        took = self._seconds() - began
        self._report(f"{text}  ({took:.1f} s)" if took >= 0.1 else text)
        return True

    async def _repair(self) -> None:
        """Start, resume and heal what is down or cut off, and end what has not ended: after failed ends, and after an
        interruption."""
        status = await self._runtime.status()
        for region in status.regions:
            if region.state in ("killed", "stopped"):
                await self._attempt({"start": region.name})
            elif region.state == "paused":
                await self._attempt({"resume": region.name})
        for end in self._unended.values():
            if not {"start", "resume"} & end.keys():
                await self._attempt(end)
        links = (await self._runtime.status()).links
        if any(link.state != "up" or not link.has_declared_speed for link in links):
            await self._attempt({"heal": "all"})

    async def _wait_until(self, seconds: float) -> None:
        """Wait until this time of the plan, or until `stop` is set."""
        remaining = self._began + seconds - now()
        if remaining > 0:
            try:
                await asyncio.wait_for(self._stop.wait(), remaining)
            except TimeoutError:
                return

    def _seconds(self) -> float:
        return now() - self._began

    def _report(self, text: str) -> None:
        self._observe(self._seconds(), text, None)

    def _fail(self, text: str, failure: str) -> None:
        self._failures.append(f"{text}: {failure}")
        self._observe(self._seconds(), text, failure)


def _share_a_claim(one: PlannedFault, other: PlannedFault) -> bool:
    return not one.fault.claims.isdisjoint(other.fault.claims)
