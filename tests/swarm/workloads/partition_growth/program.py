"""The program of the workload `partition-growth`: its growing partitioned topic, its other topics, producers and
consumers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from tests.swarm.names import public_name
from tests.swarm.workload import Act, ActContext
from tests.swarm.workloads.partition_growth.consumers import Follower, Table
from tests.swarm.workloads.partition_growth.environment import (
    AGAIN_SECONDS,
    Growth,
    Life,
    Reading,
    Remaking,
    Scene,
)
from tests.swarm.workloads.partition_growth.producers import Writer, remake

NAME = "spread"
LOST, STRANGE, DISORDER, ASTRAY, EARLY = "lost: ", "strange: ", "disorder: ", "astray: ", "early: "
TABLE, SMALL, STUCK = "table: ", "small: ", "stuck: "


@dataclass(frozen=True, slots=True)
class PartitionGrowthProgram(Act):
    reading: str
    """The region in which the program reads."""
    partitions: int
    """Initial number of partitions."""
    growth: tuple[Growth, ...]
    writers: tuple[tuple[Life, ...], ...]
    readings: tuple[Reading, ...]
    remakings: tuple[Remaking, ...]
    keeps_table: bool
    faults_end_seconds: float
    """Time at which the faults end."""

    workload: ClassVar[str] = NAME
    is_awaited: ClassVar[bool] = True

    @property
    def places(self) -> tuple[str, ...]:
        writing = (life.place for lives in self.writers for life in lives)
        return (self.region, self.reading, *writing, *(one.region for one in self.growth))

    async def perform(self, context: ActContext) -> None:
        await Program(self, context).run()

    def __str__(self) -> str:
        grows = (f"{one.partitions} in {one.region} at {one.at_seconds:.2f} s" for one in self.growth)
        return (
            f"{self.at_seconds:.2f} s: {public_name(self.workload)} in {self.region}, read in {self.reading}: "
            f"{self.partitions} partitions, {', '.join(grows)}"
        )


class Program:
    """The execution of one `PartitionGrowthProgram`."""

    def __init__(self, act: PartitionGrowthProgram, context: ActContext) -> None:
        self.act = act
        self.context = context
        self.scene = Scene(context, act.region, act.reading, act.faults_end_seconds)
        self._table = Table(self.scene) if act.keeps_table else None

    async def run(self) -> None:
        if not await self._has_partitions():
            self._report(f"{STUCK}{self.scene.base} has no partitions in all regions")
            return
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(one.follow()) for one in self._followers()]
            if self._table is not None:
                reading.append(group.create_task(self._table.keep()))
            await asyncio.wait(self._doings(group))
            sizes = await self._sizes_in_the_end()
            await self._comes_about()
            for task in reading:
                task.cancel()
        found = self._found(sizes)
        self._report(found[0] if found else "")

    def _followers(self) -> list[Follower]:
        return [
            Follower(self.scene, reading, number)
            for reading in self.act.readings
            for number in range(reading.consumers)
        ]

    def _doings(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the tasks that end by themselves: growth, producers and deletions."""
        name = self.context.name
        writing = [
            Writer(self.scene, f"{name}-w{number}").live(lives)
            for number, lives in enumerate(self.act.writers)
        ]
        remaking = [remake(self.scene, one, number) for number, one in enumerate(self.act.remakings)]
        return [group.create_task(one) for one in (self._grow(), *writing, *remaking)]

    # Admin requests.

    async def _has_partitions(self) -> bool:
        """Create the partitions before any client uses the topic: otherwise a region could create it without
        partitions."""
        region, wanted = self.act.region, self.act.partitions
        base, retry_until_done = self.scene.base, self.scene.retry_until_done
        if not await retry_until_done("PUT", region, base, "/partitions", wanted, done=(204, 409)):
            return False
        return await self._complete(region) and await self._have(wanted)

    async def _complete(self, region: str) -> bool:
        """Create missing partitions: a call without a response may have created none, and other clusters detect a
        growth only by the new partitions."""
        base = self.scene.base
        return await self.scene.retry_until_done(
            "POST", region, base, "/createMissedPartitions", None, done=(204,)
        )

    async def _have(self, wanted: int) -> bool:
        """Whether all regions report at least `wanted` partitions before the deadline."""
        give_up_at = self.scene.give_up_at
        while self.context.now < give_up_at:
            if all(size >= wanted for size in (await self._sizes()).values()):
                return True
            await asyncio.sleep(AGAIN_SECONDS)
        return False

    async def _sizes(self) -> dict[str, int]:
        return {place: await self._size(place) for place in dict.fromkeys(self.act.places)}

    async def _size(self, region: str) -> int:
        """Return the number of partitions that the region reports; -1: no response."""
        answer = await self.scene.call("GET", region, self.scene.base, "/partitions")
        return -1 if answer is None or answer.status != 200 else int(answer.json()["partitions"])

    async def _grow(self) -> None:
        """Apply the growths in order. The call is repeated while the region reports fewer partitions."""
        for growth in self.act.growth:
            await self.scene.sleep_until(growth.at_seconds)
            region, wanted, give_up_at = growth.region, growth.partitions, self.scene.give_up_at
            while self.context.now < give_up_at and await self._size(region) < wanted:
                await self.scene.call("POST", region, self.scene.base, "/partitions", wanted)
                await asyncio.sleep(AGAIN_SECONDS)
            await self._complete(region)

    async def _sizes_in_the_end(self) -> str:
        """Return a sentence if some region does not report all partitions before the deadline; empty: all do."""
        wanted = max([self.act.partitions, *(one.partitions for one in self.act.growth)])
        if await self._have(wanted):
            return ""
        return f"{self.scene.base} has {wanted} partitions, and regions report {await self._sizes()}"

    # After the faults.

    async def _comes_about(self) -> None:
        """Wait until every message is delivered and the table view is current, or until the deadline."""
        give_up_at = self.scene.give_up_at
        while self.context.now < give_up_at and not (self.scene.ledger.is_given and not self._disagreement):
            await asyncio.sleep(AGAIN_SECONDS)

    @property
    def _disagreement(self) -> str:
        return "" if self._table is None else self._table.disagreement

    def _found(self, sizes: str) -> list[str]:
        """Return a sentence for each violation."""
        ledger = self.scene.ledger
        return [
            *(f"{STRANGE}{sentence}" for sentence in ledger.strangers()),
            *(f"{DISORDER}{sentence}" for sentence in ledger.disorder()),
            *(f"{ASTRAY}{sentence}" for sentence in ledger.astray),
            *(f"{EARLY}{sentence}" for sentence in ledger.early),
            *([f"{SMALL}{sizes}"] if sizes else []),
            *(f"{LOST}{sentence}" for sentence in ledger.lost()),
            *([f"{TABLE}{self._disagreement}"] if self._disagreement else []),
        ]

    def _report(self, found: str) -> None:
        ledger = self.scene.ledger
        reported = found or f"{len(ledger.taken)} of {len(ledger.sent)} messages"
        self.context.note_result("refused" if found else "accepted", topic=self.scene.base, detail=reported)
