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
"""Timeout of operations that may be impossible during faults: the program repeats them or records no result."""
CONVERGENCE_SECONDS = 60.0
"""Deadline for convergence after healing, in virtual seconds."""
DONE = (204, 404)
"""Statuses of a successful call: done, or the topic no longer exists."""


@dataclass(frozen=True, slots=True)
class OwnTopicProgram(OwnTopic):
    """Base class of the programs of `expiry`, each with its own topic."""

    messages: int
    pause_seconds: float
    """Pause between two messages."""
    faults_end_seconds: float
    """Time at which the faults end."""

    workload: ClassVar[str] = NAME

    async def ask(self, context: ActContext, method: str, what: str, body: Any = None) -> int | None:
        """Send an admin request to the program's reading region. Return the HTTP status; None: no response."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}{what}"
        try:
            return (await context.world.ask_admin(self.reading, method, target, body, host=host)).status
        except NoHttpResponse:
            return None

    async def retry_until_done(
        self, context: ActContext, method: str, what: str, body: Any = None, done: tuple[int, ...] = DONE
    ) -> bool:
        """Repeat the call until its status is in `done`. Return False at the deadline."""
        give_up_at = max(context.now, self.faults_end_seconds) + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            if await self.ask(context, method, what, body) in done:
                return True
            await asyncio.sleep(0.2)
        return False

    async def everything(self, consumer: Consumer, context: ActContext, wanted: set[bytes]) -> set[bytes]:
        """Receive until no wanted payload is missing and no more arrive, or until the deadline. Return all payloads."""
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
