"""Steps that act on regions, on the links between them, on their clocks, and through their admin API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

from emulator.model.failover_plans import FailoverPlan
from emulator.model.values import TopicName
from emulator.runtimes.faults import (
    ClockFault,
    DiskFault,
    Fault,
    LinkFault,
    RegionFault,
    link_fault,
    link_pairs,
)
from emulator.scenarios.failover_plans import plan_failover, record_plan
from emulator.scenarios.format.link_steps import Heal, OnFrames, OnLink
from emulator.scenarios.format.machine_steps import Disk, PowerLoss, Skew
from emulator.scenarios.format.steps import AdminCall, Lose, OnRegion, PlanFailover
from emulator.scenarios.region_queries import unexpected_responses
from emulator.scenarios.run_context import POLL_SECONDS, RunContext, StepFailed


class RegionSteps:
    """The steps that act on regions, in one run of a scenario."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    async def apply(
        self, verb: str, action: OnRegion | OnLink | OnFrames | Heal | Skew | Disk | PowerLoss
    ) -> None:
        """Apply a step whose `OnRegion` names regions or a cluster."""
        match action:
            case OnRegion():
                await self.change_region(verb, action)
            case OnLink() | OnFrames():
                await self.change_link(verb, action)
            case Heal():
                await self.heal(action)
            case Skew(region=region, by=ahead_ms, drift=drift):
                await self._begin(ClockFault(region, ahead_ms, drift or 0.0), action.within)
            case Disk():
                await self._begin(DiskFault(action.region, action.condition), action.within)
            case PowerLoss(region=regions):
                losses = (self._begin(RegionFault(verb, region), action.within) for region in regions)
                await asyncio.gather(*losses)

    async def change_region(self, verb: str, change: OnRegion) -> None:
        verbs = {
            "kill": self._context.runtime.kill,
            "lose": self._context.runtime.lose,
            "stop": self._context.runtime.stop,
            "start": self._context.runtime.start,
            "restart": self._context.runtime.restart,
            "pause": self._context.runtime.pause,
            "resume": self._context.runtime.resume,
        }
        regions = change.region or tuple(
            region.name
            for region in self._context.runtime.topology.regions
            if region.cluster == change.cluster
        )
        done: list[str] = []

        async def one(region: str) -> None:
            await verbs[verb](region)
            done.append(region)
            self._context.fact(verb, region=region)

        async def run_all() -> None:
            await asyncio.gather(*map(one, regions))

        await self._context.in_time(
            change.within,
            run_all(),
            lambda: f"not completed for {', '.join(region for region in regions if region not in done)}",
        )
        if isinstance(change, Lose) and change.with_store and change.cluster is not None:
            await self._lose_store(change.cluster, change.within)

    async def _lose_store(self, cluster: str, seconds: float) -> None:
        await self._context.in_time(
            seconds, self._context.runtime.lose_store(cluster), lambda: "the store still exists"
        )
        self._context.fact("note", detail=f"the configuration store of {cluster} is lost")

    async def change_link(self, verb: str, change: OnLink | OnFrames) -> None:
        regions = self._context.runtime.topology.region_names
        source, target = change.ends
        fault = link_fault(verb, regions, source, target, one_way=change.one_way, **change.values())
        await self._begin(fault, change.within)

    async def _begin(self, fault: Fault, seconds: float) -> None:
        await self._context.in_time(seconds, fault.begin(self._context.runtime), lambda: "not completed")
        for fact in fault.facts():
            self._context.fact(fact.op, **fact.fields())

    async def heal(self, heal: Heal) -> None:
        runtime = self._context.runtime
        if not heal.between:
            await self._context.in_time(heal.within, runtime.heal(), lambda: "not completed")
            self._context.fact("heal", detail="everything")
            return
        pairs = link_pairs(runtime.topology.region_names, *heal.between)
        await self._begin(LinkFault("heal", pairs), heal.within)

    async def call(self, calls: tuple[AdminCall, ...]) -> None:
        regions = await self._context.regions()

        async def run_all() -> None:
            unexpected = await unexpected_responses(self._context.environment.call_region, regions, calls)
            if unexpected:
                raise StepFailed("; ".join(unexpected))

        for one in calls:
            self._context.fact("note", region=one.region, detail=f"{one.method} {one.path}")
        seconds = max(one.within for one in calls)
        await self._context.in_time(seconds, run_all(), lambda: "not every region has responded")

    async def plan(self, step: PlanFailover) -> None:
        """Plan a fail-over of a subscription, once per topic or partition, and record the plans."""
        topics = sorted(self._context.scenario.topics_of(step.subscription))
        pending = dict.fromkeys(topics, "no region has responded")

        async def one(topic: str) -> None:
            while not (plan := await self._plan_of(step, topic)).quiet and step.quiet:
                pending[topic] = f"not quiet: {'; '.join(plan.why) or 'something is under way'}"
                await asyncio.sleep(POLL_SECONDS)
            record_plan(self._context.history, plan)
            del pending[topic]

        async def run_all() -> None:
            await asyncio.gather(*map(one, topics))

        await self._context.in_time(
            step.within, run_all(), lambda: "; ".join(f"{topic}: {why}" for topic, why in pending.items())
        )

    async def _plan_of(self, step: PlanFailover, topic: str) -> FailoverPlan:
        environment = self._context.environment
        return await plan_failover(
            await self._context.regions(),
            topic,
            step.subscription,
            step.source,
            step.target,
            environment.call_region,
            environment.now_ms,
        )


CREATED = (204, 409)
"""Statuses of a topic that was created, or that existed, for example as applied metadata of another cluster."""
CREATE_SECONDS = 30.0


async def create_partitions(context: RunContext) -> None:
    """Create the scenario's partitioned topics in each cluster that has a region of the topic, because clusters need
    not synchronise metadata. Raises StepFailed if that fails."""
    for topic, count in context.scenario.partitions.items():
        namespace = TopicName.parse(topic).full_namespace
        for region in _one_of_each_cluster(context, namespace):
            sentence = f"{topic} does not have {count} partitions in {region}"
            await context.in_time(CREATE_SECONDS, _create(context, region, topic, count), sentence.__str__)


def _one_of_each_cluster(context: RunContext, namespace: str) -> Iterator[str]:
    sharers = next(one.regions for one in context.runtime.topology.namespaces if one.name == namespace)
    for cluster in context.runtime.topology.clusters:
        members = [region.name for region in cluster.regions if region.name in sharers]
        if members:
            yield members[0]


async def _create(context: RunContext, region: str, topic: str, count: int) -> None:
    """Create the topic, and check its number of partitions, because it may have existed with another number."""
    path = f"/admin/v2/{topic.replace('://', '/', 1)}/partitions"
    status = (await context.regions())[region]
    try:
        code, body = await context.environment.call_region(status, "PUT", path, count)
        if code in CREATED:
            code, body = await context.environment.call_region(status, "GET", path, None)
    except OSError as error:
        raise StepFailed(f"{region} does not respond: {error}") from None
    if code != 200 or json.loads(body).get("partitions") != count:
        response = f"{code} {body.decode(errors='replace')}"
        raise StepFailed(f"{topic} does not have {count} partitions in {region}: {response}")
