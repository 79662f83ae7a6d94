"""Acts of the workload `retention`: a program whose topic has a retention, and the messages that must be retained."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from emulator.client import EARLIEST, Client, ClientError, Consumer
from emulator.core.policies.lifetime import BYTES_PER_MEGABYTE, MS_PER_MINUTE
from emulator.net.http import NoHttpResponse
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)
from tests.swarm.workloads.expiry_policy import MARGIN_SECONDS

NAME = "retain"
SLOW = "slow"
"""A subscription that has no consumer until all other checks are done."""
ARRIVAL_SECONDS = 20.0
"""Deadline for replication of pending messages after the faults; less than one minute, the smallest retention time."""
METADATA_BYTES_MAX = 300
"""Largest metadata of an entry of these programs, in bytes."""
MINUTE_SECONDS = MS_PER_MINUTE / 1000
SHORT, LOST, STAYS = "short: ", "lost: ", "stays: "
Taken = dict[bytes, float]
"""Payload of each message with a receipt -> time of the send."""


@dataclass(frozen=True, slots=True)
class RetentionProgram(OwnTopicProgram):
    """A program that publishes, acknowledges everything, sets a retention, reads the retained messages, and waits until
    the rest is trimmed. Some programs finally set the retention to 0."""

    set_at_seconds: float
    minutes: int
    megabytes: int
    payload_bytes: int
    has_slow: bool
    is_lowered: bool

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        writer, reader = context.client(), self.reader(context)
        try:
            consumer = await self.subscribed(reader, context, SUBSCRIPTION)
            if self.has_slow:
                context.record.windows.begin(self.reading, self.topic(context), SLOW)  # not for common checks
                await (await self.subscribed(reader, context, SLOW)).close()
            taken: Taken = {}
            publishing = asyncio.ensure_future(self._publish(writer, context, taken))
            acknowledging = asyncio.ensure_future(self._acknowledge(consumer, reader, context))
            await asyncio.sleep(max(0.0, self.set_at_seconds - context.now))
            if await self._set(context, self.minutes, self.megabytes):
                await publishing
                await self.wait_for_repair(context)
                await self._check(reader, context, taken)
            acknowledging.cancel()
        finally:
            await writer.close()
            await reader.close()

    async def _set(self, context: ActContext, minutes: int, megabytes: int) -> bool:
        body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
        return await self.retry_until_done(context, "POST", "/retention", body, done=(204,))

    async def _publish(self, client: Client, context: ActContext, taken: Taken) -> None:
        producer = await client.producer(self.topic(context), name=context.name)
        for number in range(self.messages):
            payload, sent = f"{context.name}/{number}/".encode().ljust(self.payload_bytes, b"."), context.now
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return
            taken[payload] = sent
            await asyncio.sleep(self.pause_seconds)

    async def _acknowledge(self, consumer: Consumer, client: Client, context: ActContext) -> None:
        """Acknowledge all messages until the task is cancelled."""
        while True:
            try:
                await consumer.acknowledge(await self.next_message(consumer, context))
            except ClientError:
                await asyncio.sleep(0.2)
                consumer = await self._reconnected(consumer, client, context)

    async def _reconnected(self, consumer: Consumer, client: Client, context: ActContext) -> Consumer:
        """Return a new consumer. The region may have permanently rejected this one while its former connection was
        still open."""
        try:
            await consumer.close()
            return await self.subscribed(client, context, SUBSCRIPTION)
        except ClientError:
            return consumer

    async def _check(self, reader: Client, context: ActContext, taken: Taken) -> None:
        missing = await self._missing(reader, context, taken)
        if missing:
            self._report(context, SHORT, missing, taken)
            return
        if self.is_lowered and not await self._set(context, 0, 0):
            return
        if self.has_slow:
            wanted = set(taken)
            slow = await self.subscribed(reader, context, SLOW)
            missing = wanted - await self.everything(slow, context, wanted)
            if missing:
                self._report(context, LOST, missing, taken)
                return
        stays = await self._stays(context)
        if stays:
            context.note_result("refused", topic=self.topic(context), detail=f"{STAYS}{stays}")
        else:
            context.note_result("accepted", topic=self.topic(context))

    async def _missing(self, reader: Client, context: ActContext, taken: Taken) -> set[bytes]:
        """Return the retained messages that a reader does not receive. Wait for pending replication to the reader's
        region."""
        give_up_at = context.now + ARRIVAL_SECONDS
        while True:
            arrived = await self._read_all(reader, context)
            missing = self._kept(context, taken) - arrived
            if not missing or context.now > give_up_at:
                return missing

    async def _read_all(self, client: Client, context: ActContext) -> set[bytes]:
        reader, arrived = await client.reader(self.topic(context), EARLIEST), set[bytes]()
        try:
            while True:
                async with asyncio.timeout(STEP_SECONDS):
                    arrived.add((await reader.receive()).payload)
        except TimeoutError:
            await reader.close()
            return arrived

    def _kept(self, context: ActContext, taken: Taken) -> set[bytes]:
        """Return the messages that the retention must keep now."""
        kept, room = set[bytes](), self.megabytes * BYTES_PER_MEGABYTE
        copies = 1 if context.world.replication_rules.deduplicates(self.topic(context)) else 2
        for payload, sent in reversed(taken.items()):
            room -= copies * (len(payload) + METADATA_BYTES_MAX)
            is_young = sent + self.minutes * MINUTE_SECONDS > context.now + MARGIN_SECONDS
            if (self.minutes < 0 or is_young) and (self.megabytes < 0 or room >= 0):
                kept.add(payload)
        return kept

    async def _stays(self, context: ActContext) -> str:
        """Return the size of a log that is still too large at the deadline; empty: it was trimmed."""
        limit = BYTES_PER_MEGABYTE * self.megabytes if self.megabytes > 0 and self.minutes < 0 else 0
        limit = 0 if self.is_lowered else limit
        give_up_at = context.now + max(0, self.minutes) * MINUTE_SECONDS + CONVERGENCE_SECONDS
        while True:
            try:
                stats = await self.stats(context, self.reading)
                size = 0 if stats is None else int(stats["storageSize"])
            except NoHttpResponse:
                size = -1
            if 0 <= size <= limit:
                return ""
            if context.now > give_up_at:
                return f"{size} bytes"
            await asyncio.sleep(1.0)

    def _report(self, context: ActContext, what: str, missing: set[bytes], taken: Taken) -> None:
        first = min(missing).rstrip(b".").decode()
        reported = f"{what}{first} and {len(missing) - 1} more of {len(taken)}"
        context.note_result("refused", topic=self.topic(context), detail=reported)
