"""Programs whose subscription is replicated while a region is absent: it dies after it sent messages to only one other
region. They are not skipped there, and positions are complete again once the region is back.

Each program publishes in the region that dies and in the one where its subscription continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

from emulator.client import Client, ClientError
from emulator.core.cursor.id_set import IdSet
from emulator.core.replication.absence import RegionAbsence
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.topic.entry_origins import EntryOrigins
from emulator.core.topic.state import TopicState
from emulator.run.history_events import payload_digest
from tests.swarm.faults import Cut, Fault, Kill, PowerOff
from tests.swarm.mutant import part
from tests.swarm.plan import Plan, with_settings
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.subscription_retention_program import LOST, STAYS, MovingProgram

NAME = "partial-snapshots"
WORKLOAD = Workload(NAME)


@dataclass(frozen=True, slots=True)
class AbsentRegionProgram(MovingProgram):
    """A program that publishes in `region`, which dies, and in `onward`. It consumes in `reading` and `onward`."""

    workload: ClassVar[str] = NAME

    async def _play(self, writer: Client, context: ActContext) -> None:
        expected: dict[bytes, float] = {}
        touched: set[bytes] = set()
        onward = self.client_for(self.onward, context, "second writer")
        publishing = asyncio.gather(
            self._publish(writer, context, expected), self._publish_onward(onward, context, expected)
        )
        here = await self._roam(context, touched)
        await publishing
        await onward.close()
        await self.wait_for_repair(context)
        await self._finish(context, here, set(expected) - touched)

    async def _publish_onward(
        self, client: Client, context: ActContext, expected: dict[bytes, float]
    ) -> None:
        """Publish as many messages in `onward`, as another producer."""
        name = f"{context.name}-onward"
        try:
            producer = await client.producer(self.topic(context), name=name)
            for number in range(self.messages):
                payload = f"{name}/{number}".encode()
                self._note(context, name, number, payload, "asked")
                await producer.send(payload, sequence_id=number)
                self._note(context, name, number, payload, "ok")
                expected[payload] = context.now
                await asyncio.sleep(self.pause_seconds)
        except ClientError:
            return

    def _note(
        self, context: ActContext, name: str, number: int, payload: bytes, outcome: Literal["asked", "ok"]
    ) -> None:
        context.record.note(
            context.name,
            "publish",
            outcome,
            region=self.onward,
            topic=context.name,
            origin_region=self.onward,
            producer=name,
            sequence_id=number,
            session=f"{name}#1",
            payload_digest=payload_digest(payload),
            detail=payload.decode(),
        )


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs and the faults that make their first region absent; none with fewer than three regions."""
    if len(plan.regions) < 3:
        return plan
    topology = with_settings(
        plan.topology,
        partial_snapshots_after=random.choice(("100ms", "500ms", "1s")),
        snapshot_interval_ms=random.choice((50, 100, 300)),
    )
    absent = random.choice(plan.regions)
    others = random.sample([one for one in plan.regions if one != absent], 2)
    acts = tuple(_program(random, plan, absent, *others) for _ in range(random.randint(1, 2)))
    faults = (*plan.faults, *_absence(random, plan, absent, others[0]))
    return replace(
        plan,
        topology=topology,
        acts=(*plan.acts, *acts),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_seconds)),
    )


def _program(random: Random, plan: Plan, absent: str, reading: str, onward: str) -> AbsentRegionProgram:
    seconds, count = plan.break_seconds, random.randint(5, 40)
    begin = round(random.uniform(0.1, 0.5), 3)
    moves = tuple(
        sorted(round(random.uniform(seconds * 0.6, seconds), 3) for _ in range(random.randint(1, 3)))
    )
    pause = round(seconds / count * random.uniform(0.2, 0.7), 4)
    acknowledged = tuple(random.random() < 0.95 for _ in range(count))
    common = (begin, absent, reading, count, pause, seconds + 1.0, onward)
    return AbsentRegionProgram(*common, acknowledged, moves)


def _absence(random: Random, plan: Plan, absent: str, reading: str) -> Iterable[Fault]:
    """Cut the link from the region to `reading`; then kill the region, until later or until the world heals."""
    seconds = plan.break_seconds
    cut_at = round(random.uniform(0.3, seconds * 0.3), 3)
    dies_at = round(cut_at + random.uniform(0.2, seconds * 0.3), 3)
    lasts = round(seconds * random.choice((0.3, 0.5, 1.0)), 3)
    yield Cut(cut_at, seconds, absent, reading)
    yield random.choice((Kill, PowerOff))(dies_at, lasts, absent)


# INV-5 and INV-12


@WORKLOAD.mutant("partial-snapshot-complete", "INV-5", patch=part("topic_state"))
class _PartialSnapshotComplete(TopicState):
    """An update made from a partial snapshot acknowledges messages of the absent region, like a complete one."""

    def possibly_unseen(self, first: int, own_entry_id: int, named: Iterable[str]) -> IdSet:
        return IdSet()


class _OnlyKnownOrigins(EntryOrigins):
    def add_possibly_of(self, found: IdSet, region: str, first: int, last: int) -> None:
        found.unite(self._of.get(region, IdSet()))


@WORKLOAD.mutant("unread-origins-acknowledged", "INV-5", patch=part("topic_state"))
class _UnreadOriginsAcknowledged(TopicState):
    """Entries whose origin was not read yet are acknowledged by an update that does not name their region."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._origins = _OnlyKnownOrigins()


class _EndlessAbsence(RegionAbsence):
    def update_left_out(self, now_ms: int) -> frozenset[str]:
        before = self.left_out
        super().update_left_out(now_ms)
        self.left_out |= before
        return frozenset()


@WORKLOAD.mutant("absence-never-ends", "INV-12", patch=part("snapshots"))
class _AbsenceNeverEnds(SnapshotController):
    """Snapshots continue without a region after it has returned."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.absence = _EndlessAbsence(self.absence.partial_after_ms)


WORKLOAD.reports(
    "absent-region-not-skipped",
    "INV-5",
    LOST,
    "published, not acknowledged by its subscription, and never delivered where that continued",
)
WORKLOAD.reports(
    "complete-after-return", "INV-12", STAYS, "acknowledged, and still backlog after every region is back"
)
