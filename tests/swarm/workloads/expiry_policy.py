"""A policy that expires or evicts messages, set and removed while no consumer reads: a TTL, or a backlog quota."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import Any

from emulator.client import Client, ClientError
from emulator.core.topic.retention import EVICT_TO
from emulator.net.http import NoHttpResponse
from tests.swarm.workload import ActContext
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS, SUBSCRIPTION, OwnTopicProgram

MARGIN_SECONDS = 0.1
"""Tolerance in seconds: clocks count whole milliseconds, and a message's publish time is set before it is sent."""
STORED_SECONDS = 1.0
"""Time in which a region stores the positions that subscriptions skipped under the policy."""
EVICT, SIZE, AGE = "consumer_backlog_eviction", "destination_storage", "message_age"
ENTRY_BYTES_MAX = 300
"""Largest entry of these programs, in bytes."""
Stored = dict[bytes, tuple[float, float]]
"""Payload of each message with a receipt -> (time of the send, time of the receipt)."""
EARLY = "early: "
STAYS = "stays: "


@dataclass(frozen=True, slots=True)
class RemovalProgram(OwnTopicProgram):
    """A program that sets an expiring or evicting policy while no consumer reads, and usually removes it again."""

    set_at_seconds: float
    taken_back_after_seconds: float | None
    """Time from setting to removing the policy; None: it is never removed."""
    limit: int
    """Limit of the policy, in seconds or bytes."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        """Return (path below the topic, request body) to set or to delete the policy."""
        raise NotImplementedError

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """Return the messages that the policy never covered while it was in force, up to `until`."""
        raise NotImplementedError

    def is_due(self, stored: Stored, now: float) -> bool:
        """Whether the policy covers all messages by now, so that the region must remove them."""
        raise NotImplementedError

    async def left(self, context: ActContext) -> str:
        """Return the remaining backlog that the policy must remove; empty: none."""
        raise NotImplementedError

    async def perform(self, context: ActContext) -> None:
        writer, reader = context.client(), self.reader(context)
        try:
            await (await self.subscribed(reader, context, SUBSCRIPTION)).close()
            stored: Stored = {}
            publishing = asyncio.ensure_future(self._publish(writer, context, stored))
            window = context.record.windows.begin(self.reading, self.topic(context), SUBSCRIPTION)
            until = await self._set_and_take_back(context)
            await publishing
            await self.wait_for_repair(context)
            if until is not None:
                await asyncio.sleep(STORED_SECONDS)
                context.record.windows.end(window)
                await self._all_kept(reader, context, stored, until)
            else:
                await self._all_gone(context, stored)
        finally:
            await writer.close()
            await reader.close()

    async def _publish(self, client: Client, context: ActContext, stored: Stored) -> None:
        producer = await client.producer(self.topic(context), name=context.name)
        for number in range(self.messages):
            payload, sent = f"{context.name}/{number}".encode(), context.now
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return
            stored[payload] = (sent, context.now)
            await asyncio.sleep(self.pause_seconds)

    async def _set_and_take_back(self, context: ActContext) -> float | None:
        """Set the policy and remove it. Return the time at which it was certainly removed; None: it may be in force."""
        await asyncio.sleep(max(0.0, self.set_at_seconds - context.now))
        if not await self.retry_until_done(context, "POST", *self.policy(is_set=True), done=(204,)):
            return None
        if self.taken_back_after_seconds is None:
            return None
        await asyncio.sleep(self.taken_back_after_seconds)
        return (
            context.now
            if await self.retry_until_done(context, "DELETE", *self.policy(is_set=False))
            else None
        )

    async def _all_kept(self, reader: Client, context: ActContext, stored: Stored, until: float) -> None:
        kept = self.kept(stored, until)
        missing = kept - await self.everything(
            await self.subscribed(reader, context, SUBSCRIPTION), context, kept
        )
        if missing:
            reported = f"{EARLY}{min(missing).decode()} and {len(missing) - 1} more of {len(kept)}"
            context.note_result("refused", topic=self.topic(context), detail=reported)
        else:
            context.note_result(
                "accepted", topic=self.topic(context), detail=f"{len(kept)} of {len(stored)} were expected"
            )

    async def _all_gone(self, context: ActContext, stored: Stored) -> None:
        """Wait until the region has removed everything that the remaining policy covers."""
        give_up_at = None
        while left := await self.left(context):
            if give_up_at is None and self.is_due(stored, context.now):
                give_up_at = context.now + CONVERGENCE_SECONDS
            if give_up_at is not None and context.now > give_up_at:
                context.note_result("refused", topic=self.topic(context), detail=f"{STAYS}{left}")
                return
            await asyncio.sleep(0.5)
        context.note_result("accepted", topic=self.topic(context))

    async def figures(self, context: ActContext) -> dict[str, Any]:
        """Return the stats of the topic in the reading region; empty: no response."""
        try:
            return await self.stats(context, self.reading) or {}
        except NoHttpResponse:
            return {}


@dataclass(frozen=True, slots=True)
class Expiry(RemovalProgram):
    """A program with expiry by a TTL of `limit` seconds."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        return f"/messageTTL?messageTTL={self.limit}" if is_set else "/messageTTL", None

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """Return the messages that were younger than the TTL when the policy ended."""
        return {one for one, (sent, _) in stored.items() if sent + self.limit > until + MARGIN_SECONDS}

    def is_due(self, stored: Stored, now: float) -> bool:
        newest = max((taken for _, taken in stored.values()), default=now)
        return now > newest + self.limit

    async def left(self, context: ActContext) -> str:
        found = (await self.figures(context)).get("subscriptions", {}).get(SUBSCRIPTION)
        if found is None:
            return "the backlog is unknown"
        return f"{found['msgBacklog']} entries" if found["msgBacklog"] else ""


@dataclass(frozen=True, slots=True)
class EvictionByAge(Expiry):
    """A program with a backlog quota of `limit` seconds: a region skips older messages of the backlog."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        quota = {"limitSize": -1, "limitTime": self.limit, "policy": EVICT}
        return f"/backlogQuota?backlogQuotaType={AGE}", quota if is_set else None


def by_quota(expiry: Expiry) -> EvictionByAge:
    """Return the same act with a backlog quota by age in place of a TTL."""
    return EvictionByAge(**{one.name: getattr(expiry, one.name) for one in fields(expiry)})


@dataclass(frozen=True, slots=True)
class Eviction(RemovalProgram):
    """A program with a backlog quota of `limit` bytes: a region skips the oldest messages beyond it."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        quota = {"limitSize": self.limit, "limit": self.limit, "limitTime": -1, "policy": EVICT}
        return f"/backlogQuota?backlogQuotaType={SIZE}", quota if is_set else None

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """Return the newest messages that together never exceeded the quota."""
        count = max(0, int(self.limit * EVICT_TO) // ENTRY_BYTES_MAX - 1)
        return set(list(stored)[-count:]) if count else set()

    def is_due(self, stored: Stored, now: float) -> bool:
        return True

    async def left(self, context: ActContext) -> str:
        stats = await self.figures(context)
        if "backlogSize" not in stats:
            return "the backlog is unknown"
        return f"{stats['backlogSize']} bytes" if stats["backlogSize"] > self.limit else ""
