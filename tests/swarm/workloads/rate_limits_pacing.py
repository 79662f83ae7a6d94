"""Programs of the workload `rate-limits` that publish and consume as fast as they can, where a rate is set."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from emulator.client import Client, ClientError, Consumer, ConsumerType, InitialPosition
from tests.swarm.checkers.limits import Allowance, too_fast
from tests.swarm.workload import Stage
from tests.swarm.workloads.expiring_program import STEP_SECONDS, Mortal
from tests.swarm.workloads.rate_limits_crowd import NAME, SETTLES_SECONDS

TOO_FAST, STARVED = "too fast: ", "starved: "
PUBLISH, DISPATCH, OF_SUBSCRIPTION = "publishRate", "dispatchRate", "subscriptionDispatchRate"
LASTS_SECONDS = 6.0
SLOW_READ_SECONDS = 0.25
"""What a slow disk may take for one entry."""


@dataclass(frozen=True, slots=True)
class Paced(Mortal):
    """Clients at a rate limit; checked after the faults end."""

    allowance: Allowance
    clients: int
    at_once: int
    """So many messages each has under way when it publishes."""

    workload: ClassVar[str] = NAME

    @property
    def published_max(self) -> int:
        return 1_000

    async def perform(self, stage: Stage) -> None:
        if not await self.insist(stage, "POST", *self.policy(), done=(204,)):
            return
        await self._live_through(stage)
        await self.calm(stage)
        await asyncio.sleep(SETTLES_SECONDS)
        told = await self.measured(stage)
        stage.did("refused" if told else "accepted", topic=self.topic(stage), detail=told)

    def policy(self) -> tuple[str, Any]:
        raise NotImplementedError

    async def measured(self, stage: Stage) -> str:
        """Return what is wrong; empty: nothing."""
        raise NotImplementedError

    async def _live_through(self, stage: Stage) -> None:
        """Publish and consume during the faults, without checks."""
        client = self.client_of(stage, "broken")
        published: list[float] = []
        taking = asyncio.ensure_future(self._take_some(client, stage))
        await self.publish(client, stage, "broken", self.breaks_end_seconds - 1.0, published)
        taking.cancel()
        await client.close()

    async def _take_some(self, client: Client, stage: Stage) -> None:
        with contextlib.suppress(ClientError):
            consumer = await self.opened(client, stage, 0)
            while True:
                await consumer.acknowledge(await self.given(consumer, stage))

    def client_of(self, stage: Stage, instance: str) -> Client:
        host = stage.world.client_host(stage.name, self.region)
        return stage.world.client_on(host, (self.region,), instance=instance)

    async def opened(self, client: Client, stage: Stage, number: int) -> Consumer:
        return await client.subscribe(
            self.topic(stage),
            f"paced-{number}",
            type_=ConsumerType.SHARED,
            initial_position=InitialPosition.EARLIEST,
        )

    async def publish(self, client: Client, stage: Stage, life: str, until: float, at: list[float]) -> None:
        """As fast as receipts come, no more than there is use for. `at`: when they came."""
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(STEP_SECONDS):
                producer = await client.producer(self.topic(stage), name=f"{stage.name}-{life}")

            async def send_on() -> None:
                while stage.now < until and len(at) < self.published_max:
                    await producer.send(b"%d" % len(at))
                    at.append(stage.now)

            async with asyncio.timeout(max(0.0, until - stage.now)):
                await asyncio.gather(*(send_on() for _ in range(self.at_once)))


@dataclass(frozen=True, slots=True)
class Publishing(Paced):
    """Several clients publish to one topic, which has one rate."""

    def policy(self) -> tuple[str, Any]:
        rate = {"publishThrottlingRateInMsg": self.allowance.amount, "publishThrottlingRateInByte": -1}
        return f"/{PUBLISH}", rate

    async def measured(self, stage: Stage) -> str:
        began = stage.now
        clients = [self.client_of(stage, f"calm-{number}") for number in range(self.clients)]
        taken: list[float] = []
        await asyncio.gather(
            *(
                self.publish(client, stage, f"calm-{number}", began + LASTS_SECONDS, taken)
                for number, client in enumerate(clients)
            )
        )
        for client in clients:
            await client.close()
        under_way = self.clients * self.at_once
        over = too_fast(taken, self.allowance, under_way)
        quiet = _longest_pause([began, *sorted(taken), began + LASTS_SECONDS])
        if over:
            return f"{TOO_FAST}{over}"
        # What was read before a region said stop is waited for.
        if quiet > 2.0 + (under_way + 1) / self.allowance.amount:
            return f"{STARVED}nothing was accepted for {quiet:.3f} s, the rate is {self.allowance.amount} per second"
        return ""


def _longest_pause(times: list[float]) -> float:
    return max(after - before for before, after in pairwise(times))


@dataclass(frozen=True, slots=True)
class Draining(Paced):
    """Several subscriptions have a backlog, and a rate of their own or one together."""

    of_subscription: bool

    @property
    def published_max(self) -> int:
        """A backlog."""
        return self.messages

    def policy(self) -> tuple[str, Any]:
        rate = {
            "dispatchThrottlingRateInMsg": self.allowance.amount,
            "dispatchThrottlingRateInByte": -1,
            "ratePeriodInSecond": self.allowance.period_seconds,
        }
        return f"/{OF_SUBSCRIPTION if self.of_subscription else DISPATCH}", rate

    async def measured(self, stage: Stage) -> str:
        writer = self.client_of(stage, "writer")
        stored: list[float] = []
        await self.publish(writer, stage, "calm", stage.now + 1.0, stored)
        await writer.close()
        clients = [self.client_of(stage, f"calm-{number}") for number in range(self.clients)]
        came: list[list[float]] = [[] for _ in clients]
        since = stage.now
        count = min(len(stored), self.messages)
        try:
            tasks = [
                asyncio.ensure_future(self._take(client, stage, number, count, came[number]))
                for number, client in enumerate(clients)
            ]
            await asyncio.wait(tasks, timeout=self._patience_seconds(count))
            for task in tasks:
                task.cancel()
        finally:
            for client in clients:
                await client.close()
        return self._wrong(came, count, stage.now - since)

    def _patience_seconds(self, count: int) -> float:
        """Return the time limit for `count` messages of each subscription: the rate, and the reads of a slow disk."""
        together = 1 if self.of_subscription else self.clients
        of_rate = together * count * self.allowance.period_seconds / self.allowance.amount
        return 1.5 * of_rate + count * SLOW_READ_SECONDS * self.clients + 5.0

    async def _take(self, client: Client, stage: Stage, number: int, count: int, came: list[float]) -> None:
        with contextlib.suppress(ClientError):
            consumer = await self.opened(client, stage, number)
            while len(came) < count:
                message = await self.given(consumer, stage)
                came.append(stage.now)
                await consumer.acknowledge(message)

    def _wrong(self, came: list[list[float]], count: int, seconds: float) -> str:
        together = came if self.of_subscription else [[at for times in came for at in times]]
        for times in together:
            over = too_fast(times, self.allowance, 0)
            if over:
                return f"{TOO_FAST}{over}"
        least = min(len(times) for times in came)
        if least < count:
            return f"{STARVED}{least} of {count} arrived in {seconds:.3f} s"
        return ""
