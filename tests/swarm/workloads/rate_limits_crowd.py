"""A program of the workload `rate-limits`: more clients than a topic's limit, which retry after each rejection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from emulator.client import Client, ClientError, ConsumerType, InitialPosition
from emulator.simulation.world import CLIENT_SETTINGS
from tests.swarm.checkers.limits import Attempt, crowded, kept_out
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import STEP_SECONDS, OwnTopicProgram

NAME = "limit"
PRODUCERS, CONSUMERS = "maxProducers", "maxConsumers"
OF_SUBSCRIPTION, SUBSCRIPTIONS = "maxConsumersPerSubscription", "maxSubscriptionsPerTopic"
LIMITS = (PRODUCERS, CONSUMERS, OF_SUBSCRIPTION, SUBSCRIPTIONS)
CROWDED, KEPT_OUT = "crowded: ", "kept out: "
SETTLES_SECONDS = 5.0
"""Virtual seconds in which a region removes all clients that were connected during the faults."""
LASTS_SECONDS = 6.0
ASKS_AGAIN_SECONDS = 0.2
Leave = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ClientLimitProgram(OwnTopicProgram):
    """A program whose clients open and close around a limit; the limit is checked after the faults."""

    limit: str
    most: int
    stays_seconds: tuple[float, ...]
    """Mean time for which each client stays open before it closes and opens again."""

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        if not await self.retry_until_done(context, "POST", f"/{self.limit}", self.most, done=(204,)):
            return
        if self.limit != SUBSCRIPTIONS:  # a request without a response may leave a subscription behind
            await self._crowd(context, "broken", self.faults_end_seconds - 1.0, [])
        await self.wait_for_repair(context)
        await asyncio.sleep(SETTLES_SECONDS)
        attempts: list[Attempt] = []
        await self._crowd(context, "calm", context.now + LASTS_SECONDS, attempts)
        over, out = crowded(attempts, self.most), kept_out(attempts, self.most)
        reported = (over and f"{CROWDED}{over}") or (out and f"{KEPT_OUT}{out}")
        context.note_result(
            "refused" if reported else "accepted",
            topic=self.topic(context),
            detail=f"{reported or self.limit}",
        )

    async def _crowd(
        self, context: ActContext, incarnation: str, until: float, attempts: list[Attempt]
    ) -> None:
        await asyncio.gather(
            *(
                self._come_and_go(context, f"{incarnation}-{number}", until, attempts)
                for number in range(len(self.stays_seconds))
            )
        )

    async def _come_and_go(
        self, context: ActContext, who: str, until: float, attempts: list[Attempt]
    ) -> None:
        host = context.world.client_host(context.name, self.region)
        settings = replace(CLIENT_SETTINGS, operation_timeout_seconds=0.0)  # records each rejection
        client = context.world.client_on(host, (self.region,), settings, instance=who)
        stays = self.stays_seconds[int(who.rpartition("-")[2])]
        while context.now < until:
            attempt = Attempt(who, context.now)
            attempts.append(attempt)
            leave = await self._enter(client, context, attempt)
            if leave is not None:
                await asyncio.sleep(stays * context.random.uniform(0.5, 1.5))
                attempt.leaving = context.now
                with contextlib.suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(STEP_SECONDS):
                        await leave()
                        attempt.left = context.now
            await asyncio.sleep(ASKS_AGAIN_SECONDS * context.random.uniform(0.5, 1.5))
        await client.close()

    async def _enter(self, client: Client, context: ActContext, attempt: Attempt) -> Leave | None:
        """Open the client and record the outcome. Return the function that closes it; None: it was not admitted."""
        leave: Leave | None = None
        try:
            leave = await self._let_in(client, context, attempt.who)
            attempt.outcome = "in"
        except ClientError as failure:
            attempt.outcome = "refused" if failure.definite and failure.code is not None else "unknown"
        attempt.answered = context.now
        return leave

    async def _let_in(self, client: Client, context: ActContext, who: str) -> Leave:
        topic, number = self.topic(context), int(who.rpartition("-")[2])
        if self.limit == PRODUCERS:
            return (await client.producer(topic, name=f"{context.name}-{who}")).close
        subscription = {
            CONSUMERS: f"crowd-{number % 2}",
            OF_SUBSCRIPTION: "crowd",
            SUBSCRIPTIONS: f"own-{number}",
        }[self.limit]
        consumer = await client.subscribe(
            topic,
            subscription,
            type_=ConsumerType.SHARED,
            initial_position=InitialPosition.EARLIEST,
            name=f"{context.name}-{who}",
        )
        return consumer.unsubscribe if self.limit == SUBSCRIPTIONS else consumer.close
