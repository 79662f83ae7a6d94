"""Programs whose subscription is replicated in one region and turned off in another: it stays off and keeps its
position, regardless of what the first region sends. One that is turned on in a quiet topic is updated at once. A
reader's subscription cannot be replicated.

Each program has a topic of its own and knows which messages were acknowledged where.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.client import EARLIEST, Client, ClientError
from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.subscription_updates import ReplicatedSubscription
from emulator.model.markers import Snapshot
from emulator.net.http import NoHttpResponse
from tests.swarm.mutant import part, parts
from tests.swarm.plan import Plan, with_programs
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS, STEP_SECONDS, SUBSCRIPTION
from tests.swarm.workloads.subscription_retention_program import ReplicatedSubscriptionProgram

NAME = "replication-status"
WORKLOAD = Workload(NAME)
LATE = "late"
"""A second subscription, whose replication is turned on when the topic is quiet."""
TURNED_ON = "turned on: "
MOVED = "moved: "
BEHIND = "behind: "
FLEETING = "fleeting: "
NOT_ALLOWED = 405


@dataclass(frozen=True, slots=True)
class ReplicationStatusProgram(ReplicatedSubscriptionProgram):
    """A program whose subscription is replicated and consumed in `reading`, and not replicated in `onward`."""

    visits_at_seconds: tuple[float, ...]
    """Times at which a consumer connects to `onward` and requests replication."""
    deleted_at_seconds: float | None
    """Time at which the subscription is deleted in `reading` and created again; None: never."""
    is_turned_on: bool
    """Whether replication is turned on in `onward` at the end."""

    workload: ClassVar[str] = NAME

    async def _play(self, writer: Client, context: ActContext) -> None:
        if not await self._switch(context, self.onward, SUBSCRIPTION, on=False):
            return
        expected: dict[bytes, float] = {}
        publishing = asyncio.ensure_future(self._publish(writer, context, expected))
        consuming = asyncio.ensure_future(self._consume(context))
        for at in self.visits_at_seconds:
            await asyncio.sleep(max(0.0, at - context.now))
            await self._visit_onward(context)
        await publishing
        await consuming
        await self.wait_for_repair(context)
        await self._take_rest(context, self.reading, set(expected))
        for step in (self._stayed_off, self._reader_refused, self._late_one_follows, self._follows_or_stays):
            if problem := await step(context, set(expected)):
                self._report(context, problem)
                return
        context.note_result("accepted", topic=self.topic(context))

    # During the faults.

    async def _switch(self, context: ActContext, region: str, subscription: str, *, on: bool) -> bool:
        there = replace(self, reading=region)
        return await there.retry_until_done(context, "POST", _status(subscription), on, done=(204,))

    async def _consume(self, context: ActContext) -> None:
        """Acknowledge all messages in `reading`, and delete the subscription there at `deleted_at_seconds`."""
        until = self.faults_end_seconds
        if self.deleted_at_seconds is not None:
            await self._acknowledge(context, self.deleted_at_seconds)
            await self._delete(context)
        await self._acknowledge(context, until)

    async def _acknowledge(self, context: ActContext, until: float) -> None:
        try:
            async with asyncio.timeout(until - context.now), self._visit(context, self.reading) as consumer:
                while True:
                    message = await self.next_message(consumer, context, self.reading)
                    await consumer.acknowledge(message, confirmed=True)
        except (TimeoutError, ClientError):
            return

    async def _delete(self, context: ActContext) -> None:
        window = context.record.windows.begin(self.reading, self.topic(context), SUBSCRIPTION)
        try:
            async with asyncio.timeout(STEP_SECONDS), self._visit(context, self.reading) as consumer:
                await consumer.unsubscribe()
        except (TimeoutError, ClientError):
            pass
        context.record.windows.end(window)

    async def _visit_onward(self, context: ActContext) -> None:
        """Connect to `onward` for a moment, like a program that fails over: its consumer requests replication."""
        try:
            async with asyncio.timeout(STEP_SECONDS), self._visit(context, self.onward):
                pass
        except (TimeoutError, ClientError):
            return

    # After the faults. Each step returns a violation; empty: none.

    async def _stayed_off(self, context: ActContext, expected: set[bytes]) -> str:
        one = await self._subscription(context, self.onward, SUBSCRIPTION)
        return f"{TURNED_ON}in {self.onward}" if one is not None and one["isReplicated"] else ""

    async def _reader_refused(self, context: ActContext, expected: set[bytes]) -> str:
        client = self.client_for(self.reading, context, "reader that stays")
        try:
            await client.reader(self.topic(context), EARLIEST)
            stats = await self.stats(context, self.reading)
            subscriptions = {} if stats is None else stats["subscriptions"]
            names = [name for name, one in subscriptions.items() if not one["isDurable"]]
            statuses = {await self.ask(context, "POST", _status(name), True) for name in names}
        except (ClientError, NoHttpResponse):
            return ""
        finally:
            await client.close()
        wrong = statuses - {NOT_ALLOWED, None}
        return f"{FLEETING}{self.reading} answers {wrong}" if wrong else ""

    async def _late_one_follows(self, context: ActContext, expected: set[bytes]) -> str:
        """Consume a second subscription, wait until the topic is quiet, and turn its replication on."""
        context.record.delivered.replicated.add((self.topic(context), LATE))
        client = self.client_for(self.reading, context, "late")
        try:
            consumer = await self.subscribed(client, context, LATE)
            await self.everything(consumer, context, set(expected))
        finally:
            await client.close()
        await asyncio.sleep(STEP_SECONDS)
        if not await self._switch(context, self.reading, LATE, on=True):
            return ""
        return await self._drains(context, LATE)

    async def _follows_or_stays(self, context: ActContext, expected: set[bytes]) -> str:
        if not self.is_turned_on:
            missing = await self._take_rest(context, self.onward, set(expected))
            return f"{MOVED}{_first(missing)} in {self.onward}" if missing else ""
        if not await self._switch(context, self.onward, SUBSCRIPTION, on=True):
            return ""
        return await self._drains(context, SUBSCRIPTION)

    async def _drains(self, context: ActContext, subscription: str) -> str:
        """Wait until the subscription has no backlog in `onward`."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            one = await self._subscription(context, self.onward, subscription)
            if one is not None and not one["msgBacklog"]:
                return ""
            await asyncio.sleep(1.0)
        return f"{BEHIND}{subscription} in {self.onward}"

    async def _subscription(self, context: ActContext, region: str, name: str) -> dict[str, Any] | None:
        """Return the stats of a subscription. None: the region does not respond, or does not have it."""
        try:
            stats = await self.stats(context, region)
        except NoHttpResponse:
            return None
        return None if stats is None else stats["subscriptions"].get(name)


def _status(subscription: str) -> str:
    return f"/subscription/{subscription}/replicatedSubscriptionStatus"


def _first(missing: set[bytes]) -> str:
    return f"{min(missing).decode()} and {len(missing) - 1} more"


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return with_programs(random, plan, _program)


def _program(random: Random, plan: Plan) -> ReplicationStatusProgram:
    seconds, count = plan.break_seconds, random.randint(4, 30)
    here, there = random.sample(plan.regions, 2)
    visits = sorted(round(random.uniform(0.3, seconds), 3) for _ in range(random.randint(0, 2)))
    deleted = round(random.uniform(0.5, seconds), 3) if random.random() < 0.3 else None
    return ReplicationStatusProgram(
        round(random.uniform(0.1, 1.0), 3),
        random.choice(plan.regions),
        here,
        count,
        round(seconds / count * random.uniform(0.1, 0.7), 4),
        seconds + 1.0,
        there,
        tuple(visits),
        deleted,
        random.random() < 0.5,
    )


# INV-119 and INV-120


@WORKLOAD.mutant("update-enables-replication", "INV-119", patch=part("takes_updates"))
def _update_enables_replication(cursor: Cursor, is_durable: bool, follows_upstream: bool) -> bool:
    """An update of another region turns replication of a subscription on."""
    if is_durable:
        cursor.set_replicated(True)
    return is_durable


@WORKLOAD.mutant("subscribe-overrides-administrator", "INV-119", patch=part("cursor"))
class _SubscribeOverridesAdministrator(Cursor):
    """A consumer that requests replication turns it on although an administrator turned it off."""

    def disable_replication(self) -> None:
        self.set_replicated(False)


@WORKLOAD.mutant("unapplied-position-forgotten", "INV-120", patch=part("cursor"))
class _UnappliedPositionForgotten(Cursor):
    """A position that was not applied is forgotten when the subscription is turned on."""

    def note_unapplied(self, source: str, entry_id: int, named: Iterable[str]) -> None:
        pass


@WORKLOAD.mutant("enabled-without-snapshots", "INV-120", patch=part("replicated_subscription"))
class _EnabledWithoutSnapshots(ReplicatedSubscription):
    """A subscription that is turned on has none of the earlier snapshots."""

    def remember(self, snapshots: Iterable[Snapshot]) -> None:
        pass


WORKLOAD.reports(
    "disabled-stays-disabled", "INV-119", TURNED_ON, "turned off by an administrator, and replicated again"
)
WORKLOAD.reports(
    "unreplicated-position-kept", "INV-119", MOVED, "not replicated, and moved by another region"
)
WORKLOAD.reports(
    "readers-are-not-replicated", "INV-119", FLEETING, "a reader's subscription can be set to replicated"
)
WORKLOAD.reports("enabled-is-updated", "INV-120", BEHIND, "turned on in a quiet topic, and not updated")
WORKLOAD.mutant(
    "update-moves-unreplicated",
    "INV-119",
    safeguard="An update of another region moves a subscription that is not replicated.",
)(parts(takes_updates=lambda cursor, is_durable, follows_upstream: is_durable))
WORKLOAD.mutant(
    "reader-subscription-replicated",
    "INV-119",
    safeguard="A subscription that is not durable can be replicated.",
)(parts(check_replicable=lambda name, durable: None))
