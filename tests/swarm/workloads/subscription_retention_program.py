"""Acts of the workload `subscription-retention`: a program whose replicated subscription exists in two regions, and
continues in one of them after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

from emulator.client import Client, ClientError, Consumer, InitialPosition
from emulator.net.http import NoHttpResponse
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)
from tests.swarm.workloads.expiry_policy import MARGIN_SECONDS, RemovalProgram

NAME = "carry"
LOST = "lost: "
STAYS = "stays: "
PASSED = "passed: "
NOBODY_SAYS = "the backlog is unknown"
BACKLOG = "a backlog of "


@dataclass(frozen=True, slots=True)
class ReplicatedSubscriptionProgram(OwnTopicProgram):
    """Base class of programs with a replicated subscription in two regions."""

    onward: str
    """The region in which the subscription continues."""

    workload: ClassVar[str] = NAME

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.reading, self.onward)

    async def perform(self, context: ActContext) -> None:
        context.record.delivered.replicated.add((self.topic(context), SUBSCRIPTION))
        # Both regions have the subscription before the first message is published.
        for region in (self.onward, self.reading):
            async with self._visit(context, region):
                pass
        writer = context.client()
        try:
            await self._play(writer, context)
        finally:
            await writer.close()

    async def _play(self, writer: Client, context: ActContext) -> None:
        raise NotImplementedError

    @asynccontextmanager
    async def _visit(self, context: ActContext, region: str) -> AsyncIterator[Consumer]:
        """Open a consumer in the region as soon as it accepts one; close it afterwards."""
        client = self.client_for(region, context, f"{region} {context.now}")
        try:
            yield await self._subscribed_in(client, context)
        finally:
            await client.close()

    def may_be_passed(self, context: ActContext) -> None:
        """Exempt the subscription from the common checks. The policy may skip messages in any region; this program
        checks which messages are skipped."""
        for region in context.world.regions:
            context.record.windows.begin(region, self.topic(context), SUBSCRIPTION)

    async def _subscribed_in(self, client: Client, context: ActContext) -> Consumer:
        give_up_at = max(context.now, self.faults_end_seconds) + CONVERGENCE_SECONDS
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    return await client.subscribe(
                        self.topic(context),
                        SUBSCRIPTION,
                        initial_position=InitialPosition.EARLIEST,
                        replicated=True,
                    )
            except (ClientError, TimeoutError) as failure:
                if context.now > give_up_at:
                    raise ClientError(f"no consumer was accepted: {failure}", definite=False) from None
                await asyncio.sleep(0.2)

    async def _publish(self, client: Client, context: ActContext, expected: dict[bytes, float]) -> None:
        """Publish all messages, and add those with a receipt to `expected`, with the time of the send."""
        producer = await client.producer(self.topic(context), name=context.name)
        for number in range(self.messages):
            payload, sent = f"{context.name}/{number}".encode(), context.now
            context.note_publish(context.name, number, payload, "asked")
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return  # neither this message nor a later one has a receipt
            context.note_publish(context.name, number, payload, "ok")
            expected[payload] = sent
            await asyncio.sleep(self.pause_seconds)

    async def _take_rest(self, context: ActContext, region: str, missing: set[bytes]) -> set[bytes]:
        """Consume and acknowledge the rest; return the messages that were not delivered."""
        missing = set(missing)
        async with self._visit(context, region) as consumer:
            while True:
                try:
                    async with asyncio.timeout(CONVERGENCE_SECONDS if missing else STEP_SECONDS):
                        message = await self.next_message(consumer, context, region)
                        missing.discard(message.payload)
                        await consumer.acknowledge(message, confirmed=True)
                except TimeoutError:
                    return missing

    async def _given_back(self, context: ActContext, arrived: int) -> None:
        """Wait until no region has a backlog or, without retention, any entry: everything is acknowledged. `arrived`:
        number of expected messages."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while kept := await self._kept(context):
            if context.now > give_up_at:
                self._report(context, f"{STAYS}{kept}")
                return
            await asyncio.sleep(1.0)
        context.note_result(
            "accepted", topic=self.topic(context), detail=f"{type(self).__name__}: {arrived} were expected"
        )

    async def _kept(self, context: ActContext) -> dict[str, str]:
        """Return the remaining backlog or log of each region that still has one, as the regions report."""
        return {
            region: reported
            for region in context.world.regions
            if (reported := await self._kept_in(context, region))
        }

    async def _kept_in(self, context: ActContext, region: str) -> str:
        try:
            stats = await self.stats(context, region)
        except NoHttpResponse:
            return NOBODY_SAYS
        if stats is None:
            return ""
        backlog = sum(one["msgBacklog"] for one in stats["subscriptions"].values())
        if backlog:
            return f"{BACKLOG}{backlog}"
        keeps_nothing = context.world.topology.namespaces[0].retention_minutes == 0
        return f"{stats['storageSize']} bytes" if keeps_nothing and stats["storageSize"] else ""

    def _report(self, context: ActContext, reported: str) -> None:
        context.note_result("refused", topic=self.topic(context), detail=reported)


@dataclass(frozen=True, slots=True)
class MovingProgram(ReplicatedSubscriptionProgram):
    """A program that consumes in two regions in turn, acknowledges a part, and consumes the rest in one of them."""

    acknowledged: tuple[bool, ...]
    """For each message, whether a consumer acknowledges it during the faults."""
    moves_at_seconds: tuple[float, ...]

    async def _play(self, writer: Client, context: ActContext) -> None:
        expected: dict[bytes, float] = {}
        touched: set[bytes] = set()
        publishing = asyncio.ensure_future(self._publish(writer, context, expected))
        here = await self._roam(context, touched)
        await publishing
        await self.wait_for_repair(context)
        await self._finish(context, here, set(expected) - touched)

    async def _roam(self, context: ActContext, touched: set[bytes]) -> str:
        """Consume in the two regions in turn. Return the region in which the subscription continues."""
        here, there = self.reading, self.onward
        for until in self.moves_at_seconds:
            await self._take_some(context, here, until, touched)
            here, there = there, here
        return here

    async def _finish(self, context: ActContext, here: str, wanted: set[bytes]) -> None:
        missing = await self._take_rest(context, here, wanted)
        if missing:
            count = f"{len(missing) - 1} more of {len(wanted)}"
            self._report(context, f"{LOST}{min(missing).decode()} and {count} in {here}")
            return
        for region in self.visited_at_last(context):
            await self._take_rest(context, region, set())
        await self._given_back(context, len(wanted))

    def visited_at_last(self, context: ActContext) -> tuple[str, ...]:
        """Return the regions in which the program has to acknowledge the rest once more, because no update replicates
        its acknowledgements there."""
        return ()

    async def _take_some(self, context: ActContext, region: str, until: float, touched: set[bytes]) -> None:
        """Consume until the given time; add messages that are or may be acknowledged to `touched`."""
        try:
            async with asyncio.timeout(until - context.now), self._visit(context, region) as consumer:
                while True:
                    message = await self.next_message(consumer, context, region)
                    if self.acknowledged[int(message.payload.rpartition(b"/")[2])]:
                        touched.add(message.payload)
                        await consumer.acknowledge(message, confirmed=True)
        except (TimeoutError, ClientError):
            return


@dataclass(frozen=True, slots=True)
class ExpiringProgram(MovingProgram):
    """A `MovingProgram` with a temporary TTL in the first region: messages that never expired are delivered."""

    set_at_seconds: float
    lasts_seconds: float
    limit_seconds: int

    async def _play(self, writer: Client, context: ActContext) -> None:
        self.may_be_passed(context)
        expected: dict[bytes, float] = {}
        touched: set[bytes] = set()
        publishing = asyncio.ensure_future(self._publish(writer, context, expected))
        expiring = asyncio.ensure_future(self._expire(context))
        here = await self._roam(context, touched)
        await publishing
        until = await expiring
        await self.wait_for_repair(context)
        if until is not None:
            kept = {
                one for one, sent in expected.items() if sent + self.limit_seconds > until + MARGIN_SECONDS
            }
            await self._finish(context, here, kept - touched)

    def visited_at_last(self, context: ActContext) -> tuple[str, ...]:
        """Return all regions: messages that expired in one region remain unacknowledged in others (decision 0023)."""
        return tuple(context.world.regions)

    async def _expire(self, context: ActContext) -> float | None:
        """Set the TTL and remove it. Return the time at which it was certainly removed; None: it may be in force."""
        await asyncio.sleep(max(0.0, self.set_at_seconds - context.now))
        await self.retry_until_done(
            context, "POST", f"/messageTTL?messageTTL={self.limit_seconds}", done=(204,)
        )
        await asyncio.sleep(self.lasts_seconds)
        return context.now if await self.retry_until_done(context, "DELETE", "/messageTTL") else None


@dataclass(frozen=True, slots=True)
class UnusedSubscriptionProgram(ReplicatedSubscriptionProgram):
    """A program without a consumer while messages expire or are evicted in the first region. A consumer in another
    region, which does not have the policy, receives everything."""

    set_at_seconds: float
    policy: RemovalProgram
    """The policy that expires or evicts messages, and is never removed."""

    async def _play(self, writer: Client, context: ActContext) -> None:
        self.may_be_passed(context)
        expected: dict[bytes, float] = {}
        publishing = asyncio.ensure_future(self._publish(writer, context, expected))
        await asyncio.sleep(max(0.0, self.set_at_seconds - context.now))
        if not await self.retry_until_done(context, "POST", *self.policy.policy(is_set=True), done=(204,)):
            return
        await publishing
        await self.wait_for_repair(context)
        if not await self._all_passed(context):
            self._report(context, f"{STAYS}in {self.reading}, beyond its policy")
            return
        missing = await self._take_rest(context, self.onward, set(expected))
        if missing:
            count = f"{len(missing) - 1} more of {len(expected)}"
            self._report(context, f"{PASSED}{min(missing).decode()} and {count} in {self.onward}")
        else:
            await self._given_back(context, len(expected))

    async def _all_passed(self, context: ActContext) -> bool:
        give_up_at = context.now + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            if not await self.policy.left(context):
                return True
            await asyncio.sleep(0.5)
        return False
