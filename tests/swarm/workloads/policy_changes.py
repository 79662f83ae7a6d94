"""Change policies while clients run: a region is removed from a namespace and added again, and invalid region lists
are rejected.

A region that is added again receives what it missed, so in the end all regions hold everything. Replicated
subscriptions continue among the other regions meanwhile: messages that the removed region had sent to only some of them
are not consumed there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.core.cursor.id_set import IdSet
from emulator.core.topic.state import TopicState
from emulator.net.http import NoHttpResponse
from emulator.simulation.host import Host
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Act, ActContext, Workload

PATH = "/admin/v2/namespaces/public/default/replication"
DONE = 204
AGAIN_SECONDS = 1.0


WORKLOAD = Workload("administer", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class RegionRemovalAct(Act):
    """Removes the region `other` from the namespace by an admin request to `region`, and adds it again."""

    other: str
    seconds: float
    """Time from the removal until the region is added again."""

    workload: ClassVar[str] = "administer"

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.other)

    async def perform(self, context: ActContext) -> None:
        host = context.world.client_host(context.name, self.region)
        everybody = list(context.world.regions)
        for wrong in ([], ["nowhere", self.region], [name for name in everybody if name != self.region]):
            if await self._set(context, host, wrong) == DONE:
                raise AssertionError(f"{self.region} accepted {wrong}")
        without = [name for name in everybody if name != self.other]
        context.random.shuffle(without)
        status = await self._set(context, host, without)
        await asyncio.sleep(self.seconds)
        while await self._set(context, host, everybody) != DONE:
            await asyncio.sleep(AGAIN_SECONDS)
        context.note_result("accepted" if status == DONE else "nothing", detail=self.other)

    async def _set(self, context: ActContext, host: Host, regions: list[str]) -> int:
        """Set the namespace's regions. Return the HTTP status; 0: no response."""
        try:
            return (await context.world.ask_admin(self.region, "POST", PATH, regions, host=host)).status
        except NoHttpResponse:
            return 0


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if len(plan.regions) < 2 or random.random() >= 0.08:
        return plan
    region, other = random.sample(plan.regions, 2)
    at = round(random.uniform(0.5, plan.break_seconds * 0.7), 3)
    act = RegionRemovalAct(at, region, other, round(random.uniform(0.2, plan.break_seconds * 0.5), 3))
    return replace(plan, acts=(*plan.acts, act))


@WORKLOAD.mutant("absent-region-acknowledged", "INV-5", patch=part("topic_state"))
class _AbsentRegionAcknowledged(TopicState):
    """An update acknowledges messages of a region that was not in the namespace when its snapshot was taken."""

    def possibly_unseen(self, first: int, own_entry_id: int, named: Collection[str]) -> IdSet:
        return IdSet()
