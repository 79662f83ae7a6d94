"""A program of the workload `rate-limits`: more come to a topic than may use it, and ask again and again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from emulator.client import Client, ClientError, ConsumerType, InitialPosition
from emulator.simulation.world import CLIENT_SETTINGS
from tests.swarm.checkers.limits import Attempt, crowded, kept_out
from tests.swarm.workload import Stage
from tests.swarm.workloads.expiring_program import STEP_SECONDS, Mortal

NAME = "limit"
PRODUCERS, CONSUMERS = "maxProducers", "maxConsumers"
OF_SUBSCRIPTION, SUBSCRIPTIONS = "maxConsumersPerSubscription", "maxSubscriptionsPerTopic"
LIMITS = (PRODUCERS, CONSUMERS, OF_SUBSCRIPTION, SUBSCRIPTIONS)
CROWDED, KEPT_OUT = "crowded: ", "kept out: "
SETTLES_SECONDS = 5.0
"""Until a region has removed all clients that were connected during the faults."""
LASTS_SECONDS = 6.0
ASKS_AGAIN_SECONDS = 0.2
Leave = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Crowd(Mortal):
    """Clients that open and close at a limit; checked after the faults end."""

    limit: str
    most: int
    stays_seconds: tuple[float, ...]
    """For each client, how long it stays open before it closes and opens again."""

    workload: ClassVar[str] = NAME

    async def perform(self, stage: Stage) -> None:
        if not await self.insist(stage, "POST", f"/{self.limit}", self.most, done=(204,)):
            return
        if self.limit != SUBSCRIPTIONS:  # a request without a response may leave a subscription behind
            await self._crowd(stage, "broken", self.breaks_end_seconds - 1.0, [])
        await self.calm(stage)
        await asyncio.sleep(SETTLES_SECONDS)
        attempts: list[Attempt] = []
        await self._crowd(stage, "calm", stage.now + LASTS_SECONDS, attempts)
        over, out = crowded(attempts, self.most), kept_out(attempts, self.most)
        told = (over and f"{CROWDED}{over}") or (out and f"{KEPT_OUT}{out}")
        stage.did("refused" if told else "accepted", topic=self.topic(stage), detail=f"{told or self.limit}")

    async def _crowd(self, stage: Stage, life: str, until: float, attempts: list[Attempt]) -> None:
        await asyncio.gather(
            *(
                self._come_and_go(stage, f"{life}-{number}", until, attempts)
                for number in range(len(self.stays_seconds))
            )
        )

    async def _come_and_go(self, stage: Stage, who: str, until: float, attempts: list[Attempt]) -> None:
        host = stage.world.client_host(stage.name, self.region)
        settings = replace(CLIENT_SETTINGS, operation_timeout_seconds=0.0)  # records each rejection
        client = stage.world.client_on(host, (self.region,), settings, instance=who)
        stays = self.stays_seconds[int(who.rpartition("-")[2])]
        while stage.now < until:
            attempt = Attempt(who, stage.now)
            attempts.append(attempt)
            leave = await self._enter(client, stage, attempt)
            if leave is not None:
                await asyncio.sleep(stays * stage.random.uniform(0.5, 1.5))
                attempt.leaving = stage.now
                with contextlib.suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(STEP_SECONDS):
                        await leave()
                        attempt.left = stage.now
            await asyncio.sleep(ASKS_AGAIN_SECONDS * stage.random.uniform(0.5, 1.5))
        await client.close()

    async def _enter(self, client: Client, stage: Stage, attempt: Attempt) -> Leave | None:
        """How to leave again; None: it was not let in."""
        leave: Leave | None = None
        try:
            leave = await self._let_in(client, stage, attempt.who)
            attempt.outcome = "in"
        except ClientError as failure:
            attempt.outcome = "refused" if failure.definite and failure.code is not None else "unknown"
        attempt.answered = stage.now
        return leave

    async def _let_in(self, client: Client, stage: Stage, who: str) -> Leave:
        topic, number = self.topic(stage), int(who.rpartition("-")[2])
        if self.limit == PRODUCERS:
            return (await client.producer(topic, name=f"{stage.name}-{who}")).close
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
            name=f"{stage.name}-{who}",
        )
        return consumer.unsubscribe if self.limit == SUBSCRIPTIONS else consumer.close
