"""Steps that wait until a condition holds, and the step `drain`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from emulator.model.values import TopicName
from emulator.runtimes.contract import RegionStatus
from emulator.scenarios.actors.specs import (
    ActorSpec,
    ConsumerSpec,
    Counts,
    HostSpec,
    ProgramSpec,
    TaskSpec,
)
from emulator.scenarios.format.conditions import (
    AdminCondition,
    Barrier,
    CountCondition,
    HostCondition,
    ProgramCondition,
    PublishedCondition,
    ReceivedCondition,
    SubscriptionExists,
    TaskCondition,
)
from emulator.scenarios.region_queries import (
    GRACE_SECONDS,
    ReplicationSurvey,
    StateWait,
    survey,
    unmet_condition,
)
from emulator.scenarios.rehearsal import Step
from emulator.scenarios.run_context import RunContext, StepFailed

if TYPE_CHECKING:
    from emulator.scenarios.actors.program import ProgramProcess

_UNRECORDED = "it has no history: wrap its client in geoemu.recorded(...), or set `tap: true`"


class WaitSteps:
    """The wait steps of one run of a scenario."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    async def wait_for_count(self, condition: PublishedCondition | ReceivedCondition) -> None:
        if isinstance(condition, PublishedCondition):
            await self._until_counted(condition, lambda: self._context.actors[condition.producer].counts.ok)
        else:
            await self._until_counted(
                condition, lambda: self._context.actors[condition.consumer].counts.received
            )

    async def _until_counted(
        self, condition: CountCondition, count: Callable[[], int], remark: Callable[[], str] = str
    ) -> None:
        before = count() if condition.counts_from_now else 0

        async def missing() -> str | None:
            counted = count() - before
            return None if counted >= condition.goal else f"{counted} of {condition.goal}{remark()}"

        await self._context.until(condition.within, missing)

    async def wait_for_program(self, condition: ProgramCondition) -> None:
        program, region = self._context.program(condition.program), condition.region
        if condition.exit_code is not None:
            await self._wait_for_end(condition, program)
            return

        def count() -> int:
            if condition.counter == "published":
                return program.counts.ok if region is None else program.published_in(region)
            return program.counts.received if region is None else program.received_in(region)

        await self._until_counted(
            condition, count, lambda: "" if program.has_history else f" ({_UNRECORDED})"
        )

    async def _wait_for_end(self, condition: ProgramCondition, program: ProgramProcess) -> None:
        async def missing() -> str | None:
            code = program.exit_code
            if code == condition.exit_code:
                return None
            ended = "is still running" if code is None else f"ended with exit code {code}"
            return f"{condition.program} {ended}"

        await self._context.until(condition.within, missing)
        program.accept_exit_code()

    async def wait_for_host(self, condition: HostCondition) -> None:
        async def missing() -> str | None:
            holds = len(self._context.actors[condition.host].counts.holds)
            return None if holds == condition.owns else f"{condition.host} owns {holds}, not {condition.owns}"

        await self._context.until(condition.within, missing)

    async def wait_for_task(self, condition: TaskCondition) -> None:
        def counts() -> Counts:
            return self._context.actors[condition.task].counts

        async def not_fenced() -> str | None:
            return None if counts().fenced else f"{condition.task} is not fenced"

        if condition.fenced:
            await self._context.until(condition.within, not_fenced)
        else:
            counter = condition.counter
            await self._until_counted(
                condition, lambda: counts().processed if counter == "processed" else counts().received
            )

    async def wait_for_owners(self, seconds: float) -> None:
        await self._context.until(seconds, self._unowned)

    async def _unowned(self) -> str | None:
        """Return the number of topics without an owner, and the first of them, as a sentence; None if all have owners.
        Each region has its own owners (X5)."""
        hosts = [actor for actor in self._context.actors.values() if isinstance(actor.part, HostSpec)]
        owned = {(host.part.region, topic) for host in hosts for topic in host.counts.holds}
        declared = dict.fromkeys((host.part.region, topic) for host in hosts for topic in host.part.topics)
        without = [f"{topic} in {region}" for region, topic in declared if (region, topic) not in owned]
        return f"{len(without)} topics have no owner, for example {without[0]}" if without else None

    async def wait_for_subscription(self, condition: SubscriptionExists) -> None:
        region, subscription = condition.exists_in, condition.subscription
        topics = self._context.scenario.topics_of(subscription)

        async def missing() -> str | None:
            found = await survey(
                (await self._context.regions()).values(), self._context.environment.read_topics
            )
            if all(found.has_subscription(region, topic, subscription) for topic in topics):
                return None
            return "; ".join(
                [
                    f"not there yet; {region} does not have it",
                    *found.silent,
                    *found.reasons(subscription),
                ]
            )

        await self._context.until(condition.within, missing)

    async def wait_for_admin_value(self, condition: AdminCondition) -> None:
        async def missing() -> str | None:
            region = (await self._context.regions())[condition.region]
            return await unmet_condition(self._context.environment.call_region, region, condition)

        await self._context.until(condition.within, missing)

    async def wait_for_state(self, step: Step, barrier: Barrier) -> None:
        """Wait until a region has reached the state at which the step begins, and record that."""

        async def get_region() -> RegionStatus:
            return (await self._context.regions())[barrier.region]

        wait = StateWait(self._context.environment.call_region, get_region, barrier.state)

        async def wait_in_time() -> None:
            if not await wait.run(barrier.within):
                raise StepFailed(f"{wait.describe()} within {barrier.within:g} s")

        await self._context.in_time(barrier.within + 3 * GRACE_SECONDS, wait_in_time(), wait.describe)
        detail = f"step {step.number} waited for {barrier.state}: {wait.counted} counted"
        self._context.fact("note", region=barrier.region, topic=barrier.topic, detail=detail)


QUIET_POLLS = 2
"""Number of consecutive polls without a backlog after which a drain completes. One is not enough, because the regions
respond at different times."""


class DrainStep:
    """The drain step of one run of a scenario."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    async def drain(self, seconds: float) -> None:
        quiet_polls = 0

        async def missing() -> str | None:
            nonlocal quiet_polls
            reason = await self._first_undrained()
            quiet_polls = 0 if reason else quiet_polls + 1
            return reason or (
                "replication caught up only in the last look" if quiet_polls < QUIET_POLLS else None
            )

        await self._context.until(seconds, missing)

    async def _first_undrained(self) -> str | None:
        """Return the first reason why the drain is incomplete; None when it is complete."""
        for name, actor in self._context.actors.items():
            if actor.counts.publishing or actor.counts.pending:
                return f"{name} still publishes, {actor.counts.pending} publishes pending"
        regions = (await self._context.regions()).values()
        lost = {region.name for region in regions if region.state == "lost"}
        remaining = [region for region in regions if region.name not in lost]
        found = await survey(remaining, self._context.environment.read_topics)
        return next(chain(found.silent, self._undelivered(found, lost), self._unacknowledged(found)), None)

    def _undelivered(self, found: ReplicationSurvey, lost: Collection[str]) -> Iterator[str]:
        """Yield why messages are undelivered. Ignores replication to lost regions, and messages that only a lost region
        stores."""
        for topic in sorted(
            {
                topic
                for one in self._context.actors.values()
                if one.counts.ok
                for topic in _published_topics(one.part)
            }
        ):
            namespace = TopicName.parse(topic).full_namespace
            replicating_regions = (
                each.regions for each in self._context.runtime.topology.namespaces if each.name == namespace
            )
            yield from found.missing_topics(
                topic, [name for name in next(replicating_regions, ()) if name not in lost]
            )
            yield from found.unreplicated(topic, except_to=lost)

    def _unacknowledged(self, found: ReplicationSurvey) -> Iterator[str]:
        for name, actor in self._context.actors.items():
            part = actor.part
            if isinstance(part, ConsumerSpec | TaskSpec) and name not in self._context.finished:
                for topic in part.read:
                    yield from found.unacknowledged_in(actor.counts.region, topic, part.subscription)
            if isinstance(part, ProgramSpec) and name not in self._context.finished:
                for region, topic, subscription in self._context.program(name).consumed_subscriptions():
                    yield from found.unacknowledged_in(region, topic, subscription)


def _published_topics(part: ActorSpec) -> tuple[str, ...]:
    """Return the topics that an actor may publish to: its topics, and the topic that a host reports to."""
    reports = part.reports_to if isinstance(part, HostSpec) else None
    return part.topics if reports is None else (*part.topics, reports)
