"""Programs of the workload `rate-limits` that publish or consume at full speed on a topic with a rate limit."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from emulator.client import Client, ClientError, Consumer, ConsumerType, InitialPosition
from tests.swarm.checkers.limits import Allowance, too_fast
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import STEP_SECONDS, OwnTopicProgram
from tests.swarm.workloads.rate_limits_crowd import NAME, SETTLES_SECONDS

TOO_FAST, STARVED = "too fast: ", "starved: "
PUBLISH, DISPATCH, SUBSCRIPTION_DISPATCH = "publishRate", "dispatchRate", "subscriptionDispatchRate"
LASTS_SECONDS = 6.0
SLOW_READ_SECONDS = 0.25
"""Longest time that a slow disk takes to read one entry."""


@dataclass(frozen=True, slots=True)
class Paced(OwnTopicProgram):
    """Base class of programs whose clients use a rate fully; the rate is checked after the faults."""

    allowance: Allowance
    clients: int
    at_once: int
    """Maximum number of pending publishes of each client."""

    workload: ClassVar[str] = NAME

    @property
    def published_max(self) -> int:
        return 1_000

    async def perform(self, context: ActContext) -> None:
        if not await self.retry_until_done(context, "POST", *self.policy(), done=(204,)):
            return
        await self._run_during_faults(context)
        await self.wait_for_repair(context)
        await asyncio.sleep(SETTLES_SECONDS)
        reported = await self.measured(context)
        context.note_result("refused" if reported else "accepted", topic=self.topic(context), detail=reported)

    def policy(self) -> tuple[str, Any]:
        raise NotImplementedError

    async def measured(self, context: ActContext) -> str:
        """Return the violation; empty: none."""
        raise NotImplementedError

    async def _run_during_faults(self, context: ActContext) -> None:
        """Publish and consume during the faults, without checks."""
        client = self.client_of(context, "broken")
        published: list[float] = []
        consuming = asyncio.ensure_future(self._consume_during_faults(client, context))
        await self.publish(client, context, "broken", self.faults_end_seconds - 1.0, published)
        consuming.cancel()
        await client.close()

    async def _consume_during_faults(self, client: Client, context: ActContext) -> None:
        with contextlib.suppress(ClientError):
            consumer = await self.opened(client, context, 0)
            while True:
                await consumer.acknowledge(await self.next_message(consumer, context))

    def client_of(self, context: ActContext, instance: str) -> Client:
        host = context.world.client_host(context.name, self.region)
        return context.world.client_on(host, (self.region,), instance=instance)

    async def opened(self, client: Client, context: ActContext, number: int) -> Consumer:
        return await client.subscribe(
            self.topic(context),
            f"paced-{number}",
            type_=ConsumerType.SHARED,
            initial_position=InitialPosition.EARLIEST,
        )

    async def publish(
        self, client: Client, context: ActContext, suffix: str, until: float, receipt_times: list[float]
    ) -> None:
        """Publish as fast as receipts arrive, up to `published_max` messages. Append the time of each receipt to
        `receipt_times`."""
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(STEP_SECONDS):
                producer = await client.producer(self.topic(context), name=f"{context.name}-{suffix}")

            async def publish_in_sequence() -> None:
                while context.now < until and len(receipt_times) < self.published_max:
                    await producer.send(b"%d" % len(receipt_times))
                    receipt_times.append(context.now)

            async with asyncio.timeout(max(0.0, until - context.now)):
                await asyncio.gather(*(publish_in_sequence() for _ in range(self.at_once)))


@dataclass(frozen=True, slots=True)
class Publishing(Paced):
    """Several clients that publish to one topic with a publish rate."""

    def policy(self) -> tuple[str, Any]:
        rate = {"publishThrottlingRateInMsg": self.allowance.amount, "publishThrottlingRateInByte": -1}
        return f"/{PUBLISH}", rate

    async def measured(self, context: ActContext) -> str:
        began = context.now
        clients = [self.client_of(context, f"calm-{number}") for number in range(self.clients)]
        taken: list[float] = []
        await asyncio.gather(
            *(
                self.publish(client, context, f"calm-{number}", began + LASTS_SECONDS, taken)
                for number, client in enumerate(clients)
            )
        )
        for client in clients:
            await client.close()
        under_way = self.clients * self.at_once
        over = too_fast(taken, self.allowance, under_way)
        pause = _longest_pause([began, *sorted(taken), began + LASTS_SECONDS])
        if over:
            return f"{TOO_FAST}{over}"
        # The pause includes the time for the messages that the region read before it stopped reading.
        if pause > 2.0 + (under_way + 1) / self.allowance.amount:
            return f"{STARVED}nothing was accepted for {pause:.3f} s, the rate is {self.allowance.amount} per second"
        return ""


def _longest_pause(times: list[float]) -> float:
    return max(after - before for before, after in pairwise(times))


@dataclass(frozen=True, slots=True)
class Draining(Paced):
    """Several subscriptions that consume a backlog, each with its own dispatch rate or all with a common one."""

    of_subscription: bool

    @property
    def published_max(self) -> int:
        """Size of the backlog in messages."""
        return self.messages

    def policy(self) -> tuple[str, Any]:
        rate = {
            "dispatchThrottlingRateInMsg": self.allowance.amount,
            "dispatchThrottlingRateInByte": -1,
            "ratePeriodInSecond": self.allowance.period_seconds,
        }
        return f"/{SUBSCRIPTION_DISPATCH if self.of_subscription else DISPATCH}", rate

    async def measured(self, context: ActContext) -> str:
        writer = self.client_of(context, "writer")
        stored: list[float] = []
        await self.publish(writer, context, "calm", context.now + 1.0, stored)
        await writer.close()
        clients = [self.client_of(context, f"calm-{number}") for number in range(self.clients)]
        arrived: list[list[float]] = [[] for _ in clients]
        since = context.now
        count = min(len(stored), self.messages)
        try:
            tasks = [
                asyncio.ensure_future(self._consume(client, context, number, count, arrived[number]))
                for number, client in enumerate(clients)
            ]
            await asyncio.wait(tasks, timeout=self._timeout_seconds(count))
            for task in tasks:
                task.cancel()
        finally:
            for client in clients:
                await client.close()
        return self._violation(arrived, count, context.now - since)

    def _timeout_seconds(self, count: int) -> float:
        """Return the time limit for `count` messages per subscription: for the rate, and for reads of a slow disk."""
        together = 1 if self.of_subscription else self.clients
        of_rate = together * count * self.allowance.period_seconds / self.allowance.amount
        return 1.5 * of_rate + count * SLOW_READ_SECONDS * self.clients + 5.0

    async def _consume(
        self, client: Client, context: ActContext, number: int, count: int, arrived: list[float]
    ) -> None:
        with contextlib.suppress(ClientError):
            consumer = await self.opened(client, context, number)
            while len(arrived) < count:
                message = await self.next_message(consumer, context)
                arrived.append(context.now)
                await consumer.acknowledge(message)

    def _violation(self, arrived: list[list[float]], count: int, seconds: float) -> str:
        together = arrived if self.of_subscription else [[at for times in arrived for at in times]]
        for times in together:
            over = too_fast(times, self.allowance, 0)
            if over:
                return f"{TOO_FAST}{over}"
        least = min(len(times) for times in arrived)
        if least < count:
            return f"{STARVED}{least} of {count} arrived in {seconds:.3f} s"
        return ""
