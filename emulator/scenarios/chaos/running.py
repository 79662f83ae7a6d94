"""Random faults on a run that is up, whose clients are the user's own programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from emulator.errors import Refused
from emulator.run.history import HistoryWriter
from emulator.runtimes.contract import RunStatus, Runtime
from emulator.scenarios.actors.specs import ActorSpec
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.chaos.execution import ChaosResult
from emulator.scenarios.chaos.plan import ChaosPlan
from emulator.scenarios.chaos.step import ChaosStep
from emulator.scenarios.region_queries import ReadTopics, ReplicationSurvey, read_topics_over_http, survey
from emulator.scenarios.run_context import RunContext, ScenarioEnvironment, StepFailed
from emulator.scenarios.scenario import Scenario

HISTORY = "chaos"
"""Name of the history file of the faults."""


async def disturb_run(
    runtime: Runtime,
    plan: ChaosPlan,
    control: ChaosControl,
    catch_up_seconds: float,
    read_topics: ReadTopics = read_topics_over_http,
) -> ChaosResult:
    """Inject the faults of a plan into a run, repair it, and wait until what was stored before the end of the faults is
    replicated. Raises Refused if a region does not run."""
    _refuse_unhealthy(await runtime.status())
    environment = ScenarioEnvironment(
        _create_no_actor, read_topics, open_history=_open_history, chaos=control
    )
    context = RunContext(Scenario("chaos", "", "", (), ()), runtime, environment)
    with closing(context.history):
        result = await ChaosStep(context).run(plan)
        late = await _catch_up(context, catch_up_seconds)
        failures = (*result.failures, *([] if late is None else [late]))
        if failures:
            context.fact("step", detail="random faults and their repair", error="; ".join(failures))
    return replace(result, failures=failures)


def _refuse_unhealthy(status: RunStatus) -> None:
    if status.ended:
        raise Refused(f"the run in {status.run_dir} has ended: start a new one with `geoemu up`")
    for region in status.regions:
        if region.state != "running":
            verb = "resume" if region.state == "paused" else "start"
            raise Refused(
                f"{region.name} is {region.state}: random faults begin when every region runs; "
                f"`geoemu {verb} {region.name}`"
            )


def _create_no_actor(part: ActorSpec) -> NoReturn:
    raise AssertionError(f"a run of user programs has no actor {part.name}")


def _open_history(run_dir: Path) -> HistoryWriter:
    try:
        return HistoryWriter(run_dir / "history" / f"{HISTORY}.jsonl", HISTORY, program="geoemu chaos")
    except BlockingIOError:
        raise Refused(f"another `geoemu chaos` injects faults into the run in {run_dir}") from None


async def _catch_up(context: RunContext, seconds: float) -> str | None:
    """Wait until every entry that is stored now is replicated to all regions that are not lost; clients may go on
    publishing. Return what is missing after `seconds`; None if nothing is."""

    async def look() -> ReplicationSurvey:
        regions = [one for one in (await context.regions()).values() if one.state != "lost"]
        return await survey(regions, context.environment.read_topics)

    before = await look()

    async def missing() -> str | None:
        return next(_missing(before, await look()), None)

    try:
        await context.until(seconds, missing)
    except StepFailed as late:
        return str(late)
    return None


def _missing(before: ReplicationSurvey, now: ReplicationSurvey) -> Iterator[str]:
    """Yield a sentence for each backlog that includes entries from before."""
    yield from now.silent
    for region, topics in now.topics.items():
        for name, status in topics.items():
            earlier = before.topics.get(region, {}).get(name)
            appended = 0 if earlier is None else status.last_entry - earlier.last_entry
            for remote, backlog in status.backlogs.items():
                if remote in now.topics and earlier is not None and backlog > appended:
                    yield f"{backlog} entries of {name} not replicated from {region} to {remote}"
