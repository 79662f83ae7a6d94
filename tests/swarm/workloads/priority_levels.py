"""Programs whose consumers have priority levels, join, stop taking messages, and leave: a lower level receives
nothing while a higher one has permits, and the partitions of a topic are spread evenly over the best level.

Each program has a topic of its own. It is checked after the faults end: only then are its records of permits reliable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import Client, ClientError
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import strategy_for
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.single_active import SingleActive
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import ConsumerState, DispatchLimits, SubscriptionType
from tests.swarm.checkers.key_shared_sittings import (
    MARGIN_SECONDS,
    left_waiting,
    passed_over,
    unevenly_spread,
)
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS, OwnTopicProgram
from tests.swarm.workloads.priority_consumers import Place, Publisher, Seat, Taker

NAME = "rank"
WORKLOAD = Workload(NAME)
SETTLES_SECONDS = 2.0
"""Time after which a subscribe or close has taken effect; longer than the failover delay of a region."""
PASSED_OVER, UNEVEN, WAITS = "passed over: ", "uneven: ", "waits: "


@dataclass(frozen=True, slots=True)
class PriorityLevelsProgram(OwnTopicProgram):
    """A program whose consumers run during the faults; new consumers of the same levels are checked afterwards."""

    type: str
    partitions: int
    """Number of partitions; 0: the topic is not partitioned."""
    seats: tuple[Seat, ...]

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        if self.partitions and not await self.retry_until_done(
            context, "PUT", "/partitions", self.partitions, done=(204, 409)
        ):
            return
        client = context.client()
        try:
            await self._live_through(client, context)
            await self.wait_for_repair(context)
            publisher = Publisher(self._place(context), client, context, "calm")
            takers = self._takers(context, "calm")
            try:
                reported = await (self._spread if self.partitions else self._attended)(
                    context, takers, publisher
                )
            finally:
                for taker in takers:
                    await taker.leave()
            context.note_result(
                "refused" if reported else "accepted", topic=self.topic(context), detail=reported
            )
        finally:
            await client.close()

    async def _live_through(self, client: Client, context: ActContext) -> None:
        """Consume during the faults, without checks; unacknowledged messages are redelivered."""
        takers = self._takers(context, "broken")
        tasks = [asyncio.ensure_future(self._trying(one)) for one in takers]
        publisher = Publisher(self._place(context), client, context, "broken")
        while context.now < self.faults_end_seconds - 1.0:
            await publisher.publish()
            await asyncio.sleep(self.pause_seconds)
        for task in tasks:
            task.cancel()
        for taker in takers:
            await taker.leave()

    def _place(self, context: ActContext) -> Place:
        return Place(self.region, self.topic(context), self.type, self.partitions)

    def _takers(self, context: ActContext, incarnation: str) -> list[Taker]:
        place = self._place(context)
        return [Taker(place, context, seat, number, incarnation) for number, seat in enumerate(self.seats)]

    async def _trying(self, taker: Taker) -> None:
        with contextlib.suppress(ClientError):
            await taker.join()

    async def _attended(self, context: ActContext, takers: list[Taker], publisher: Publisher) -> str:
        """Publish while consumers subscribe, stop accepting messages, and close. Return the violation; empty: none."""
        timing = [
            asyncio.ensure_future(self._attend(one, seat))
            for one, seat in zip(takers, self.seats, strict=True)
        ]
        for _ in range(self.messages):
            await publisher.publish()
            await asyncio.sleep(self.pause_seconds)
        await asyncio.gather(*timing)
        missing = await self._missing(context, takers, publisher)
        await asyncio.sleep(2 * MARGIN_SECONDS)  # deliveries in transit count, too
        sittings = [one.sitting for one in takers]
        is_shared = self.type == "SHARED"
        over = next(passed_over(sittings, one_is_active=not is_shared), "")
        waiting = next(left_waiting(sittings, publisher.taken), "") if is_shared else ""
        return missing or (over and f"{PASSED_OVER}{over}") or (waiting and f"{WAITS}{waiting}")

    async def _attend(self, taker: Taker, seat: Seat) -> None:
        events: list[tuple[float, Callable[[], object]]] = [(seat.joins, taker.join)]
        if seat.shut is not None:
            events += [(seat.shut[0], taker.shut), (seat.shut[1], taker.open)]
        if seat.leaves is not None:
            events.append((seat.leaves, taker.leave))
        began = asyncio.get_running_loop().time()
        for at, event in sorted(events, key=lambda one: one[0]):
            await asyncio.sleep(began + at - asyncio.get_running_loop().time())
            outcome = event()
            if asyncio.iscoroutine(outcome):
                await outcome

    async def _missing(self, context: ActContext, takers: list[Taker], publisher: Publisher) -> str:
        """Return a sentence with a published message that no consumer received before the deadline; empty: none."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while missing := publisher.taken.keys() - {what for one in takers for _, what in one.sitting.taken}:
            if context.now > give_up_at:
                return f"{WAITS}for ever: {min(missing)} and {len(missing) - 1} more"
            await asyncio.sleep(0.2)
        return ""

    async def _spread(self, context: ActContext, takers: list[Taker], publisher: Publisher) -> str:
        """Check the distribution of partitions over all consumers, and again after some have closed."""
        for taker in takers:
            await taker.join()
        for present in (
            takers,
            [t for t, seat in zip(takers, self.seats, strict=True) if seat.leaves is None],
        ):
            for taker in takers:
                if taker not in present:
                    await taker.leave()
            await asyncio.sleep(SETTLES_SECONDS)
            since = context.now
            for _ in range(3 * self.partitions):
                await publisher.publish()
            missing = await self._missing(context, takers, publisher)
            taken_by: dict[int, set[str]] = {}
            for taker in present:
                for at, partition, _ in taker.by_partition:
                    if at >= since:
                        taken_by.setdefault(partition, set()).add(taker.sitting.name)
            uneven = unevenly_spread((one.sitting for one in present), taken_by)
            if missing or uneven:
                return missing or f"{UNEVEN}{uneven}"
        return ""


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs with Shared and Failover subscriptions, some of a partitioned topic."""
    return replace(plan, acts=(*plan.acts, *(_rank(random, plan) for _ in range(random.randint(1, 3)))))


def _rank(random: Random, plan: Plan) -> PriorityLevelsProgram:
    region, seconds = random.choice(plan.regions), plan.break_seconds
    type_, partitions = random.choice((("SHARED", 0), ("SHARED", 0), ("FAILOVER", 0), ("FAILOVER", 1)))
    messages = random.randint(30, 120)
    pause = round(random.uniform(0.005, 0.05), 4)
    others = [_seat(random, messages * pause) for _ in range(random.randint(1, 4))]
    return PriorityLevelsProgram(
        round(random.uniform(0.2, seconds * 0.6), 3),
        region,
        region,
        messages,
        pause,
        seconds + 1.0,
        type_,
        partitions and random.randint(2, 6),
        (replace(_seat(random, messages * pause), leaves=None), *others),
    )


def _seat(random: Random, seconds: float) -> Seat:
    """Draw a consumer; some of them are connected and open for the whole period."""
    begin, end = sorted(round(random.uniform(0.0, seconds), 3) for _ in range(2))
    return Seat(
        random.choice((0, 0, 1, 3)),
        random.choice((1, 4, 20, 200)),
        random.choice((0, 0, 5)),
        round(random.choice((0.0, 0.0, random.uniform(0.0, seconds))), 3),
        round(seconds * random.uniform(1.0, 1.2), 3) if random.random() < 0.3 else None,
        (begin, end) if random.random() < 0.5 else None,
    )


# INV-100


def _with(careless: type[DispatchStrategy]) -> object:
    def made(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
        shipped = strategy_for(type_, cursor, limits)
        return careless(cursor, limits) if issubclass(careless, type(shipped)) else shipped

    return made


@WORKLOAD.mutant("priority-levels-ignored", "INV-100", patch=part("strategy_for", _with))
class _PriorityLevelsIgnored(Shared):
    """A Shared subscription dispatches round-robin to all consumers, regardless of their priority levels."""

    def _next_in_turn(self) -> ConsumerState | None:
        able = [consumer for consumer in self.consumers if self.limits.may_serve(consumer)]
        self._turn += 1
        return able[self._turn % len(able)] if able else None


@WORKLOAD.mutant("only-best-level-served", "INV-100", patch=part("strategy_for", _with))
class _OnlyBestLevelServed(Shared):
    """A Shared subscription dispatches only to the best priority level, also when it has no permits."""

    def _next_in_turn(self) -> ConsumerState | None:
        best = min((consumer.priority for consumer in self.consumers), default=0)
        found = super()._next_in_turn()
        return found if found is not None and found.priority == best else None


@WORKLOAD.mutant("failover-ignores-level", "INV-100", patch=part("strategy_for", _with))
class _FailoverIgnoresLevel(SingleActive):
    """The first consumer of a Failover subscription is active, regardless of its priority level."""

    def _select_active(self) -> ConsumerState | None:
        return self.consumers[0] if self.consumers else None


@WORKLOAD.mutant("failover-partitions-not-spread", "INV-100", patch=part("strategy_for", _with))
class _FailoverPartitionsNotSpread(SingleActive):
    """All partitions of a Failover subscription have the same active consumer of the best level."""

    def _select_active(self) -> ConsumerState | None:
        return min(self.consumers, key=lambda one: (one.priority, one.name), default=None)


WORKLOAD.reports("best-level-first", "INV-100", PASSED_OVER, "a better priority level was ignored")
WORKLOAD.reports(
    "partitions-balanced", "INV-100", UNEVEN, "partitions are not spread evenly over the best level"
)
WORKLOAD.reports("lower-levels-used", "INV-100", WAITS, "published, and delivered to no consumer")
