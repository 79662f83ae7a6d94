"""Programs of the workload `remote-limits`: one whose regions reach limits during replication, and one whose
partitioned topic grows while regions are down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from emulator.client import Client, ClientError
from emulator.errors import ServerError
from emulator.net.http import NoHttpResponse
from emulator.simulation.stored_messages import LogView
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)
from tests.swarm.workloads.subscription_retention_program import MovingProgram

NAME = "remote-limits"
HELD, UNEXPLAINED, SMALL = "held: ", "unexplained: ", "small: "
PACE = "replicatorDispatchRate"
"""The only policy that may delay replication."""
QUOTA_ERRORS = (
    ServerError.ProducerBlockedQuotaExceededError,
    ServerError.ProducerBlockedQuotaExceededException,
)


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change of one policy of the program's topic in one region."""

    at_seconds: float
    region: str
    policy: str
    """Last part of the admin path, with its query."""
    value: Any
    """JSON body; None: the policy is removed."""


@dataclass(frozen=True, slots=True)
class LimitProgram(MovingProgram):
    """A `MovingProgram` whose topic gets limits in single regions, at, above and below the present use, and loses
    them."""

    changes: tuple[LimitChange, ...]

    workload: ClassVar[str] = NAME

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.reading, self.onward, *(one.region for one in self.changes))

    async def _play(self, writer: Client, context: ActContext) -> None:
        expected: dict[bytes, float] = {}
        touched: set[bytes] = set()
        publishing = asyncio.ensure_future(self._publish(writer, context, expected))
        changing = asyncio.ensure_future(self._change_limits(context))
        here = await self._roam(context, touched)
        await changing
        await self.wait_for_repair(context)
        found = await self._held_back(context, expected) or await self._unexplained(context)
        await self._remove_limits(context)
        await publishing
        if found:
            self._report(context, found)
        else:
            await self._finish(context, here, set(expected) - touched)

    # Limits.

    async def _change_limits(self, context: ActContext) -> None:
        """Apply the changes in order; during the faults a change may fail."""
        for change in self.changes:
            await asyncio.sleep(max(0.0, change.at_seconds - context.now))
            await self._set(context, change)

    async def _set(self, context: ActContext, change: LimitChange) -> int | None:
        there = replace(self, reading=change.region)
        method = "DELETE" if change.value is None else "POST"
        return await there.ask(context, method, f"/{change.policy}", change.value)

    async def _remove_limits(self, context: ActContext, only: str = "") -> None:
        """Remove the policies that may be in force. `only`: the name of one policy; empty: all."""
        for region, policy in dict.fromkeys((one.region, one.policy) for one in self.changes):
            if only in ("", policy):
                there = replace(self, reading=region)
                await there.retry_until_done(context, "DELETE", f"/{policy}")

    # With the last limits in force.

    async def _held_back(self, context: ActContext, expected: dict[bytes, float]) -> str:
        """Return a sentence if a limit of a region keeps a message of another region out; empty: none does."""
        await self._remove_limits(context, only=PACE)
        acknowledged = {payload.decode() for payload in expected}
        give_up_at = context.now + CONVERGENCE_SECONDS
        while missing := self._missing(context, acknowledged):
            if context.now > give_up_at:
                return f"{HELD}{missing}"
            await asyncio.sleep(1.0)
        return ""

    def _missing(self, context: ActContext, acknowledged: set[str]) -> str:
        for region, simulated in context.world.regions.items():
            log = simulated.medium.logs.get(self.topic(context))
            view = LogView(region, self.topic(context), 0 if log is None else log.ledger_id)
            if log is not None:
                view.read_new_entries(log)
            missing = acknowledged - {one.text for one in view.messages}
            if missing:
                return f"{min(missing)} and {len(missing) - 1} more in {region}"
        return ""

    async def _unexplained(self, context: ActContext) -> str:
        """Return a sentence if a region rejects a producer because of a quota, and its explanation of the topic does
        not say so; empty otherwise."""
        for region in self.places:
            if not await self._is_over_quota(context, region):
                continue
            causes = await self._causes(context, region)
            if causes is None or "quota-exceeded" in causes or not await self._is_over_quota(context, region):
                continue
            return f"{UNEXPLAINED}{region} rejects producers for a quota, and gives {causes}"
        return ""

    async def _is_over_quota(self, context: ActContext, region: str) -> bool:
        client = self.client_for(region, context, f"probe {region} {context.now}")
        client.settings = replace(client.settings, operation_timeout_seconds=STEP_SECONDS)
        try:
            await client.producer(self.topic(context), name=f"{context.name}-probe")
        except ClientError as refusal:
            return refusal.code in QUOTA_ERRORS
        finally:
            await client.close()
        return False

    async def _causes(self, context: ActContext, region: str) -> list[str] | None:
        host = context.world.client_host(context.name, self.region)
        target = f"/geoemu/v1/explain/topic/{context.name}"
        try:
            answer = await context.world.ask_admin(region, "GET", target, host=host)
        except NoHttpResponse:
            return None
        return list(answer.json()["causes"]) if answer.status == 200 else None


@dataclass(frozen=True, slots=True)
class GrowthProgram(OwnTopicProgram):
    """A program whose partitioned topic grows in `region` while other regions may be down or cut off. No client
    publishes to the new partitions."""

    partitions: int
    grown_to: int
    grows_at_seconds: float

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        if not await self._is_ready(context):
            return
        await asyncio.sleep(max(0.0, self.grows_at_seconds - context.now))
        here = replace(self, reading=self.region)
        while await self._count_in(context, self.region) < self.grown_to:
            await here.ask(context, "POST", "/partitions", self.grown_to)
            await asyncio.sleep(0.2)
        await here.retry_until_done(context, "POST", "/createMissedPartitions", done=(204,))
        await self.wait_for_repair(context)
        lacking = await self._lacking(context)
        context.note_result(
            "refused" if lacking else "accepted",
            topic=self.topic(context),
            detail=f"{SMALL}{lacking}" if lacking else f"{self.grown_to} partitions",
        )

    async def _is_ready(self, context: ActContext) -> bool:
        """Create the topic, and the subscription in `reading`. Return False if not all regions know it in time."""
        here = replace(self, reading=self.region)
        if not await here.retry_until_done(context, "PUT", "/partitions", self.partitions, done=(204, 409)):
            return False
        if not await here.retry_until_done(context, "POST", "/createMissedPartitions", done=(204,)):
            return False
        give_up_at = context.now + CONVERGENCE_SECONDS
        while await self._lacking_now(context, self.partitions, subscribed=False):
            if context.now > give_up_at:
                return False
            await asyncio.sleep(0.2)
        for index in range(self.partitions):
            where = f"-partition-{index}/subscription/{SUBSCRIPTION}"
            if not await self.retry_until_done(context, "PUT", where, "earliest", done=(204, 409)):
                return False
        return True

    async def _lacking(self, context: ActContext) -> str:
        """Return what a region lacks at the deadline; empty: nothing."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while lacking := await self._lacking_now(context, self.grown_to, subscribed=True):
            if context.now > give_up_at:
                return lacking
            await asyncio.sleep(0.5)
        return ""

    async def _lacking_now(self, context: ActContext, count: int, *, subscribed: bool) -> str:
        for region in context.world.regions:
            if (reported := await self._count_in(context, region)) < count:
                return f"{region} reports {reported} partitions, and {self.region} created {count}"
            for index in range(count):
                name = f"{self.topic(context)}-partition-{index}"
                medium = context.world.regions[region].medium
                if name not in medium.logs:
                    return f"{region} does not have partition {index}"
                cursor = f"cursor/{name.replace('/', '%2F')}/{SUBSCRIPTION}"
                if subscribed and region == self.reading and cursor not in medium.values:
                    return f"{region} does not have the subscription of partition {index}"
        return ""

    async def _count_in(self, context: ActContext, region: str) -> int:
        """Return the number of partitions that a region reports; -1: no response."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}/partitions"
        try:
            answer = await context.world.ask_admin(region, "GET", target, host=host)
        except NoHttpResponse:
            return -1
        return int(answer.json()["partitions"]) if answer.status == 200 else -1
