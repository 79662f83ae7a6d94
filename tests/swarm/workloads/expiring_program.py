"""Acts of the workload `expiry`: a program, the topic of its own that does not live for ever, and its patience."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

from emulator.client import Consumer
from emulator.net.http import NoHttpResponse
from tests.swarm.workload import ActContext
from tests.swarm.workloads.own_topic import OwnTopic

NAME = "expire"
SUBSCRIPTION = "sleeper"
STEP_SECONDS = 3.0
"""For what may be impossible while things go wrong: then it is tried again, or the program knows less."""
CONVERGENCE_SECONDS = 60.0
"""Deadline for convergence after the repair."""
DONE = (204, 404)
"""It is so now, or there is nothing any more."""


@dataclass(frozen=True, slots=True)
class OwnTopicProgram(OwnTopic):
    """What all of them have in common."""

    messages: int
    pause_seconds: float
    """Between two messages."""
    faults_end_seconds: float
    """When the faults end."""

    workload: ClassVar[str] = NAME

    async def ask(self, context: ActContext, method: str, what: str, body: Any = None) -> int | None:
        """The status that the region in which it reads answers with; None: it does not."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}{what}"
        try:
            return (await context.world.ask_admin(self.reading, method, target, body, host=host)).status
        except NoHttpResponse:
            return None

    async def retry_until_done(
        self, context: ActContext, method: str, what: str, body: Any = None, done: tuple[int, ...] = DONE
    ) -> bool:
        """Repeat the call until the region confirms it; return False when it never did."""
        give_up_at = max(context.now, self.faults_end_seconds) + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            if await self.ask(context, method, what, body) in done:
                return True
            await asyncio.sleep(0.2)
        return False

    async def everything(self, consumer: Consumer, context: ActContext, wanted: set[bytes]) -> set[bytes]:
        """All that comes, until nothing of what is wanted is missing any more, or for long enough."""
        arrived: set[bytes] = set()
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS if wanted <= arrived else CONVERGENCE_SECONDS):
                    message = await self.next_message(consumer, context)
                    arrived.add(message.payload)
                    await consumer.acknowledge(message)
            except TimeoutError:
                return arrived

    async def wait_for_repair(self, context: ActContext) -> None:
        await asyncio.sleep(max(0.0, self.faults_end_seconds - context.now))
