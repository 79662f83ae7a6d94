"""Acts of the workload `subscription-retention`: a program whose replicated subscription is known in two regions,
and goes on in one of them after it was in the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

from emulator.client import Client, ClientError, Consumer, InitialPosition
from emulator.net.http import NoAnswer
from tests.swarm.workload import Stage
from tests.swarm.workloads.expiring_program import PATIENCE_SECONDS, STEP_SECONDS, SUBSCRIPTION, Mortal
from tests.swarm.workloads.expiry_policy import MARGIN_SECONDS, LettingGo

NAME = "carry"
LOST = "lost: "
STAYS = "stays: "
PASSED = "passed: "
NOBODY_SAYS = "the backlog is unknown"
BACKLOG = "a backlog of "


@dataclass(frozen=True, slots=True)
class Carried(Mortal):
    """What both kinds have in common."""

    onward: str
    """The region where it goes on."""

    workload: ClassVar[str] = NAME

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.reading, self.onward)

    async def perform(self, stage: Stage) -> None:
        stage.record.delivered.replicated.add((self.topic(stage), SUBSCRIPTION))
        # Both regions know it before there is anything to keep for it.
        for region in (self.onward, self.reading):
            async with self._visit(stage, region):
                pass
        writer = stage.client()
        try:
            await self._play(writer, stage)
        finally:
            await writer.close()

    async def _play(self, writer: Client, stage: Stage) -> None:
        raise NotImplementedError

    @asynccontextmanager
    async def _visit(self, stage: Stage, region: str) -> AsyncIterator[Consumer]:
        """Open a consumer in the region as soon as it accepts one; close it afterwards."""
        client = self.client_for(region, stage, f"{region} {stage.now}")
        try:
            yield await self._subscribed_in(client, stage)
        finally:
            await client.close()

    def may_be_passed(self, stage: Stage) -> None:
        """Exempt the subscription from other checks: a policy may skip messages in any region, and this program checks
        which."""
        for region in stage.world.regions:
            stage.record.windows.begin(region, self.topic(stage), SUBSCRIPTION)

    async def _subscribed_in(self, client: Client, stage: Stage) -> Consumer:
        give_up_at = max(stage.now, self.breaks_end_seconds) + PATIENCE_SECONDS
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    return await client.subscribe(
                        self.topic(stage),
                        SUBSCRIPTION,
                        initial_position=InitialPosition.EARLIEST,
                        replicated=True,
                    )
            except (ClientError, TimeoutError) as failure:
                if stage.now > give_up_at:
                    raise ClientError(f"no consumer was accepted: {failure}", definite=False) from None
                await asyncio.sleep(0.2)

    async def _publish(self, client: Client, stage: Stage, owed: dict[bytes, float]) -> None:
        """Publish all messages; acknowledged ones go into `owed`, with the time at which they were sent."""
        producer = await client.producer(self.topic(stage), name=stage.name)
        for number in range(self.messages):
            payload, sent = f"{stage.name}/{number}".encode(), stage.now
            stage.note_publish(stage.name, number, payload, "asked")
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return  # no client received an acknowledgement of it or of anything after it
            stage.note_publish(stage.name, number, payload, "ok")
            owed[payload] = sent
            await asyncio.sleep(self.pause_seconds)

    async def _take_rest(self, stage: Stage, region: str, missing: set[bytes]) -> set[bytes]:
        """Consume and acknowledge the rest; return the messages that were not delivered."""
        missing = set(missing)
        async with self._visit(stage, region) as consumer:
            while True:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS if missing else STEP_SECONDS):
                        message = await self.given(consumer, stage, region)
                        missing.discard(message.payload)
                        await consumer.acknowledge(message, confirmed=True)
                except TimeoutError:
                    return missing

    async def _given_back(self, stage: Stage, came: int) -> None:
        """Everything is acknowledged: wait until no region has anything left of it. `came`: what had to."""
        give_up_at = stage.now + PATIENCE_SECONDS
        while kept := await self._kept(stage):
            if stage.now > give_up_at:
                self._tell(stage, f"{STAYS}{kept}")
                return
            await asyncio.sleep(1.0)
        stage.did("accepted", topic=self.topic(stage), detail=f"{type(self).__name__}: {came} were expected")

    async def _kept(self, stage: Stage) -> dict[str, str]:
        """By region, what is there that must not be, as far as regions say."""
        return {
            region: told for region in stage.world.regions if (told := await self._kept_in(stage, region))
        }

    async def _kept_in(self, stage: Stage, region: str) -> str:
        try:
            stats = await self.stats(stage, region)
        except NoAnswer:
            return NOBODY_SAYS
        if stats is None:
            return ""
        backlog = sum(one["msgBacklog"] for one in stats["subscriptions"].values())
        if backlog:
            return f"{BACKLOG}{backlog}"
        keeps_nothing = stage.world.topology.namespaces[0].retention_minutes == 0
        return f"{stats['storageSize']} bytes" if keeps_nothing and stats["storageSize"] else ""

    def _tell(self, stage: Stage, told: str) -> None:
        stage.did("refused", topic=self.topic(stage), detail=told)


@dataclass(frozen=True, slots=True)
class Roaming(Carried):
    """Reads in two regions in turn, acknowledges a part, and consumes the rest in the region that was not the last."""

    acknowledged: tuple[bool, ...]
    """For each message whether a consumer that receives it during the faults acknowledges it."""
    moves_at_seconds: tuple[float, ...]

    async def _play(self, writer: Client, stage: Stage) -> None:
        owed: dict[bytes, float] = {}
        touched: set[bytes] = set()
        publishing = asyncio.ensure_future(self._publish(writer, stage, owed))
        here = await self._roam(stage, touched)
        await publishing
        await self.calm(stage)
        await self._finish(stage, here, set(owed) - touched)

    async def _roam(self, stage: Stage, touched: set[bytes]) -> str:
        """Move between the regions; return the one in which it continues."""
        here, there = self.reading, self.onward
        for until in self.moves_at_seconds:
            await self._take_some(stage, here, until, touched)
            here, there = there, here
        return here

    async def _finish(self, stage: Stage, here: str, wanted: set[bytes]) -> None:
        missing = await self._take_rest(stage, here, wanted)
        if missing:
            count = f"{len(missing) - 1} more of {len(wanted)}"
            self._tell(stage, f"{LOST}{min(missing).decode()} and {count} in {here}")
            return
        for region in self.visited_at_last(stage):
            await self._take_rest(stage, region, set())
        await self._given_back(stage, len(wanted))

    def visited_at_last(self, stage: Stage) -> tuple[str, ...]:
        """The regions in which it has to acknowledge the rest again, because they do not learn of the
        acknowledgements."""
        return ()

    async def _take_some(self, stage: Stage, region: str, until: float, touched: set[bytes]) -> None:
        """Consume for a while; messages that it acknowledged, or may have acknowledged, go into `touched`."""
        try:
            async with asyncio.timeout(until - stage.now), self._visit(stage, region) as consumer:
                while True:
                    message = await self.given(consumer, stage, region)
                    if self.acknowledged[int(message.payload.rpartition(b"/")[2])]:
                        touched.add(message.payload)
                        await consumer.acknowledge(message, confirmed=True)
        except (TimeoutError, ClientError):
            return


@dataclass(frozen=True, slots=True)
class Ageing(Roaming):
    """The same, while a TTL is set for a time in the first region: messages that never expired are delivered."""

    set_at_seconds: float
    lasts_seconds: float
    limit_seconds: int

    async def _play(self, writer: Client, stage: Stage) -> None:
        self.may_be_passed(stage)
        owed: dict[bytes, float] = {}
        touched: set[bytes] = set()
        publishing = asyncio.ensure_future(self._publish(writer, stage, owed))
        expiring = asyncio.ensure_future(self._expire(stage))
        here = await self._roam(stage, touched)
        await publishing
        until = await expiring
        await self.calm(stage)
        if until is not None:
            kept = {one for one, sent in owed.items() if sent + self.limit_seconds > until + MARGIN_SECONDS}
            await self._finish(stage, here, kept - touched)

    def visited_at_last(self, stage: Stage) -> tuple[str, ...]:
        """Messages that expired in one region only are left in others (decision 0023)."""
        return tuple(stage.world.regions)

    async def _expire(self, stage: Stage) -> float | None:
        """Set the TTL for a time. Return when expiry had certainly ended; None: it may go on."""
        await asyncio.sleep(max(0.0, self.set_at_seconds - stage.now))
        await self.insist(stage, "POST", f"/messageTTL?messageTTL={self.limit_seconds}", done=(204,))
        await asyncio.sleep(self.lasts_seconds)
        return stage.now if await self.insist(stage, "DELETE", "/messageTTL") else None


@dataclass(frozen=True, slots=True)
class LeftAlone(Carried):
    """No consumer reads while messages expire, or are evicted, in the first region. A consumer in another region, which
    has no such policy, receives everything."""

    set_at_seconds: float
    policy: LettingGo
    """The policy that expires or evicts them, and is never removed."""

    async def _play(self, writer: Client, stage: Stage) -> None:
        self.may_be_passed(stage)
        owed: dict[bytes, float] = {}
        publishing = asyncio.ensure_future(self._publish(writer, stage, owed))
        await asyncio.sleep(max(0.0, self.set_at_seconds - stage.now))
        if not await self.insist(stage, "POST", *self.policy.policy(is_set=True), done=(204,)):
            return
        await publishing
        await self.calm(stage)
        if not await self._all_passed(stage):
            self._tell(stage, f"{STAYS}in {self.reading}, beyond its policy")
            return
        missing = await self._take_rest(stage, self.onward, set(owed))
        if missing:
            count = f"{len(missing) - 1} more of {len(owed)}"
            self._tell(stage, f"{PASSED}{min(missing).decode()} and {count} in {self.onward}")
        else:
            await self._given_back(stage, len(owed))

    async def _all_passed(self, stage: Stage) -> bool:
        give_up_at = stage.now + PATIENCE_SECONDS
        while stage.now < give_up_at:
            if not await self.policy.left(stage):
                return True
            await asyncio.sleep(0.5)
        return False
