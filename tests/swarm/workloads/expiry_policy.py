"""A policy that expires or evicts messages, set and removed while no consumer reads: a TTL, or a backlog quota."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import Any

from emulator.client import Client, ClientError
from emulator.core.topic.retention import EVICT_TO
from emulator.net.http import NoAnswer
from tests.swarm.workload import Stage
from tests.swarm.workloads.expiring_program import PATIENCE_SECONDS, SUBSCRIPTION, Mortal

MARGIN_SECONDS = 0.1
"""Clocks tell whole milliseconds, and a message is stamped a moment before it is sent."""
STORED_SECONDS = 1.0
"""What was passed when the policy ended is stored a little later."""
EVICT, SIZE, AGE = "consumer_backlog_eviction", "destination_storage", "message_age"
ENTRY_BYTES_MAX = 300
"""Of these programs' entries."""
Stored = dict[bytes, tuple[float, float]]
"""By payload, of what a region took: when it was sent, and when it was taken."""
EARLY = "early: "
STAYS = "stays: "


@dataclass(frozen=True, slots=True)
class LettingGo(Mortal):
    """A policy that expires or evicts messages is set while no consumer reads, and, mostly, removed again."""

    set_at_seconds: float
    taken_back_after_seconds: float | None
    """None: it stays."""
    limit: int
    """Of the policy."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        """(where it is set or deleted, what is said)."""
        raise NotImplementedError

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """Return the messages that the policy, in force until then, never covered."""
        raise NotImplementedError

    def is_due(self, stored: Stored, now: float) -> bool:
        """Whether the policy must have removed its messages by now, given enough time in force."""
        raise NotImplementedError

    async def left(self, stage: Stage) -> str:
        """What is there that must not; empty: nothing."""
        raise NotImplementedError

    async def perform(self, stage: Stage) -> None:
        writer, reader = stage.client(), self.reader(stage)
        try:
            await (await self.subscribed(reader, stage, SUBSCRIPTION)).close()
            stored: Stored = {}
            publishing = asyncio.ensure_future(self._publish(writer, stage, stored))
            window = stage.record.windows.begin(self.reading, self.topic(stage), SUBSCRIPTION)
            until = await self._set_and_take_back(stage)
            await publishing
            await self.calm(stage)
            if until is not None:
                await asyncio.sleep(STORED_SECONDS)
                stage.record.windows.end(window)
                await self._all_kept(reader, stage, stored, until)
            else:
                await self._all_gone(stage, stored)
        finally:
            await writer.close()
            await reader.close()

    async def _publish(self, client: Client, stage: Stage, stored: Stored) -> None:
        producer = await client.producer(self.topic(stage), name=stage.name)
        for number in range(self.messages):
            payload, sent = f"{stage.name}/{number}".encode(), stage.now
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return
            stored[payload] = (sent, stage.now)
            await asyncio.sleep(self.pause_seconds)

    async def _set_and_take_back(self, stage: Stage) -> float | None:
        """When the policy certainly counted no more; None: it may still."""
        await asyncio.sleep(max(0.0, self.set_at_seconds - stage.now))
        if not await self.insist(stage, "POST", *self.policy(is_set=True), done=(204,)):
            return None
        if self.taken_back_after_seconds is None:
            return None
        await asyncio.sleep(self.taken_back_after_seconds)
        return stage.now if await self.insist(stage, "DELETE", *self.policy(is_set=False)) else None

    async def _all_kept(self, reader: Client, stage: Stage, stored: Stored, until: float) -> None:
        kept = self.kept(stored, until)
        missing = kept - await self.everything(
            await self.subscribed(reader, stage, SUBSCRIPTION), stage, kept
        )
        if missing:
            told = f"{EARLY}{min(missing).decode()} and {len(missing) - 1} more of {len(kept)}"
            stage.did("refused", topic=self.topic(stage), detail=told)
        else:
            stage.did(
                "accepted", topic=self.topic(stage), detail=f"{len(kept)} of {len(stored)} were expected"
            )

    async def _all_gone(self, stage: Stage, stored: Stored) -> None:
        """The policy stays: wait until the region has removed everything that the policy covers."""
        give_up_at = None
        while left := await self.left(stage):
            if give_up_at is None and self.is_due(stored, stage.now):
                give_up_at = stage.now + PATIENCE_SECONDS
            if give_up_at is not None and stage.now > give_up_at:
                stage.did("refused", topic=self.topic(stage), detail=f"{STAYS}{left}")
                return
            await asyncio.sleep(0.5)
        stage.did("accepted", topic=self.topic(stage))

    async def figures(self, stage: Stage) -> dict[str, Any]:
        """Return the stats of its topic in the region where it reads. Empty: no response."""
        try:
            return await self.stats(stage, self.reading) or {}
        except NoAnswer:
            return {}


@dataclass(frozen=True, slots=True)
class Expiry(LettingGo):
    """Expiry by a TTL of `limit` seconds."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        return f"/messageTTL?messageTTL={self.limit}" if is_set else "/messageTTL", None

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """Return the messages that were younger than the TTL when the policy ended."""
        return {one for one, (sent, _) in stored.items() if sent + self.limit > until + MARGIN_SECONDS}

    def is_due(self, stored: Stored, now: float) -> bool:
        newest = max((taken for _, taken in stored.values()), default=now)
        return now > newest + self.limit

    async def left(self, stage: Stage) -> str:
        found = (await self.figures(stage)).get("subscriptions", {}).get(SUBSCRIPTION)
        if found is None:
            return "the backlog is unknown"
        return f"{found['msgBacklog']} entries" if found["msgBacklog"] else ""


@dataclass(frozen=True, slots=True)
class EvictionByAge(Expiry):
    """Eviction by a quota of `limit` seconds: a region skips the oldest messages beyond it."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        quota = {"limitSize": -1, "limitTime": self.limit, "policy": EVICT}
        return f"/backlogQuota?backlogQuotaType={AGE}", quota if is_set else None


def by_quota(expiry: Expiry) -> EvictionByAge:
    """Return the same act with a quota in place of a TTL."""
    return EvictionByAge(**{one.name: getattr(expiry, one.name) for one in fields(expiry)})


@dataclass(frozen=True, slots=True)
class Eviction(LettingGo):
    """Eviction by a quota of `limit` bytes: a region skips the oldest messages beyond it."""

    def policy(self, *, is_set: bool) -> tuple[str, Any]:
        quota = {"limitSize": self.limit, "limit": self.limit, "limitTime": -1, "policy": EVICT}
        return f"/backlogQuota?backlogQuotaType={SIZE}", quota if is_set else None

    def kept(self, stored: Stored, until: float) -> set[bytes]:
        """Return the newest messages that together never exceeded the quota."""
        count = max(0, int(self.limit * EVICT_TO) // ENTRY_BYTES_MAX - 1)
        return set(list(stored)[-count:]) if count else set()

    def is_due(self, stored: Stored, now: float) -> bool:
        return True

    async def left(self, stage: Stage) -> str:
        stats = await self.figures(stage)
        if "backlogSize" not in stats:
            return "the backlog is unknown"
        return f"{stats['backlogSize']} bytes" if stats["backlogSize"] > self.limit else ""
