"""Key_Shared consumers with sticky hash ranges or with out-of-order delivery; other consumers join, take messages and
disappear.

The key of a message is its producer's name, so that the checks can read the keys from the disks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from emulator.client import Consumer, ConsumerType, InitialPosition
from emulator.core.dispatch.consistent_hash import SlotOwners
from emulator.core.dispatch.key_shared import KeyShared
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.model.hashing import murmur3
from emulator.simulation.invariant_check import Found
from tests.swarm.actors.clients import ranges_text
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import dispatching
from tests.swarm.plan import ConsumerPlan, Plan, ProducerPlan
from tests.swarm.record import received_fields
from tests.swarm.workload import Act, ActContext, Workload
from tests.swarm.workloads.key_shared import in_order

NAME = "stick-to-ranges"
WORKLOAD = Workload(NAME)
TOPIC = "sticky"
STICKY, STICKY_LOOSE, ANY_ORDER = "by-range", "by-range-loose", "any-order"
"""Subscriptions: sticky ranges; sticky ranges, out of order; ranges assigned by the region, out of order."""
SLOTS = 65_536
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StickyConsumerAct(Act):
    """A consumer that subscribes, receives messages, acknowledges none, and closes."""

    subscription: str
    key_ranges: Ranges
    stays_seconds: float
    queue: int

    workload: ClassVar[str] = NAME
    is_awaited: ClassVar[bool] = True

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        ranges = {"detail": ranges_text(self.key_ranges)} if self.key_ranges else {}
        wanted = {"replicated": False, "initial": "earliest", **ranges}
        try:
            self._note(context, "subscribe", "asked", **wanted)
            consumer = await client.subscribe(
                TOPIC,
                self.subscription,
                type_=ConsumerType.KEY_SHARED,
                initial_position=InitialPosition.EARLIEST,
                name=context.name,
                receiver_queue_size=self.queue,
                key_ranges=self.key_ranges,
                out_of_order=self.subscription != STICKY,
            )
            self._note(context, "subscribe", "ok", **wanted)
            context.note_result("accepted", topic=TOPIC, detail=self.subscription)
            try:
                async with asyncio.timeout(self.stays_seconds):
                    await self._take(consumer, context)
            except TimeoutError:
                await consumer.close()
        finally:
            await client.close()

    async def _take(self, consumer: Consumer, context: ActContext) -> None:
        while True:
            message = await consumer.receive()
            self._note(context, "receive", "ok", **received_fields(message, self.region))

    def _note(self, context: ActContext, op: str, outcome: Literal["asked", "ok"], **fields: object) -> None:
        context.record.note(
            context.name,
            op,
            outcome,
            region=self.region,
            topic=TOPIC,
            subscription=self.subscription,
            **fields,
        )


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw producers in random regions, and in one region permanent and temporary consumers of each subscription."""
    region = random.choice(plan.regions)
    producers = tuple(_producer(random, plan, number) for number in range(random.randint(4, 8)))
    consumers: list[ConsumerPlan] = []
    visits: list[StickyConsumerAct] = []
    for subscription in (STICKY, STICKY_LOOSE, ANY_ORDER):
        ranges = _divided(random) if subscription != ANY_ORDER else _undivided(random)
        consumers += _consumers(random, region, subscription, ranges)
        visits += [
            _visit(random, plan, region, subscription, random.choice(ranges))
            for _ in range(random.randint(1, 3))
        ]
    return replace(
        plan,
        producers=(*plan.producers, *producers),
        consumers=(*plan.consumers, *consumers),
        acts=(*plan.acts, *visits),
    )


def _producer(random: Random, plan: Plan, number: int) -> ProducerPlan:
    messages = random.randint(8, 25)
    name = f"sticky-{number}-{random.randrange(1000)}"
    return ProducerPlan(
        name,
        random.choice(plan.regions),
        TOPIC,
        messages,
        burst=random.choice((1, 3)),
        pause_seconds=round(plan.break_seconds / messages * random.uniform(0.2, 0.9), 4),
        key=name,
    )


def _divided(random: Random) -> list[Ranges]:
    """Divide all slots among two or three consumers, with one or more ranges each."""
    cuts = sorted(random.sample(range(1, SLOTS), random.randint(1, 7)))
    pieces = list(zip((0, *cuts), (*(cut - 1 for cut in cuts), SLOTS - 1), strict=True))
    random.shuffle(pieces)
    count = random.randint(2, min(3, len(pieces)))
    return [tuple(pieces[number::count]) for number in range(count)]


def _undivided(random: Random) -> list[Ranges]:
    return [()] * random.randint(2, 3)


def _consumers(random: Random, region: str, subscription: str, ranges: list[Ranges]) -> list[ConsumerPlan]:
    """Return one consumer for each set of ranges, and perhaps a standby with the first set, which is admitted once the
    first consumer has closed."""
    wanted = [*ranges, ranges[0]] if random.random() < 0.5 else ranges
    return [
        ConsumerPlan(
            f"{subscription}-{number}",
            subscription,
            TOPIC,
            region,
            "KEY_SHARED",
            refuses=random.choice((0.0, 0.0, 0.2)),
            holds=random.choice((0, 3, 8)),
            think_seconds=random.choice((0.01, 0.2)),
            queue=random.choice((1, 5, 20)),
            key_ranges=mine,
            out_of_order=subscription != STICKY,
        )
        for number, mine in enumerate(wanted)
    ]


def _visit(random: Random, plan: Plan, region: str, subscription: str, ranges: Ranges) -> StickyConsumerAct:
    return StickyConsumerAct(
        round(random.uniform(0.3, plan.break_seconds), 3),
        region,
        subscription,
        ranges[: random.randint(1, len(ranges))] if ranges else (),
        round(random.uniform(0.1, 2.0), 3),
        random.choice((1, 20)),
    )


# INV-99


@WORKLOAD.checker("range-owners-only", "INV-99", applies=WORKLOAD.acted)
def owners_only(evidence: Evidence) -> Found:
    """A consumer with sticky ranges receives no message of a key outside its ranges."""
    ranges: dict[tuple[str, str], Ranges] = {}
    for event in evidence.events:
        if event.subscription not in (STICKY, STICKY_LOOSE):
            continue
        who = event.actor, event.subscription
        if event.op == "subscribe" and event.detail:
            ranges[who] = _ranges_in(event.detail)
        elif event.op == "receive":
            slot = (murmur3((event.producer or "").encode()) & 0x7FFF_FFFF) % SLOTS or 1
            if not any(first <= slot <= last for first, last in ranges[who]):
                yield (
                    f"{event.actor} received {event.message_id} of {event.producer} in {event.region}: its slot "
                    f"{slot} is not in {ranges_text(ranges[who])}",
                    {"given": event.message_id or "", "key": event.producer or "", "slot": str(slot)},
                )


def _ranges_in(reported: str) -> Ranges:
    pairs = (one.split("..") for one in reported.split(","))
    return tuple((int(first), int(last)) for first, last in pairs)


@WORKLOAD.checker("sticky-in-order", "INV-69", applies=WORKLOAD.acted)
def sticky_in_order(evidence: Evidence) -> Found:
    """Consumers with sticky ranges and in-order delivery receive the messages of each key in order."""
    return in_order(evidence, TOPIC, STICKY)


def _acted(evidence: Evidence) -> bool:
    return any(one.subscription in (STICKY, STICKY_LOOSE) for one in evidence.events)


class _GivesToAnybody(SlotOwners):
    """Assigns slots to consumers regardless of their ranges."""

    def _find(self, slot: int) -> ConsumerState | None:
        return self._ranges[slot % len(self._ranges)][2] if self._ranges else super()._find(slot)


class _FindsANeighbour(SlotOwners):
    """Assigns slots outside all ranges to the first consumer."""

    def _find(self, slot: int) -> ConsumerState | None:
        found = super()._find(slot)
        return self._ranges[0][2] if found is None and self._ranges else found


@WORKLOAD.mutant("sticky-ranges-ignored", "INV-99", patch=dispatching(SubscriptionType.KEY_SHARED))
class _StickyRangesIgnored(KeyShared):
    """A message is dispatched to any consumer, regardless of sticky ranges."""

    def __init__(self, *of: object) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.slot_owners = _GivesToAnybody()


@WORKLOAD.mutant("unowned-keys-delivered", "INV-99", patch=dispatching(SubscriptionType.KEY_SHARED))
class _UnownedKeysDelivered(KeyShared):
    """Keys outside all sticky ranges are dispatched to a consumer."""

    def __init__(self, *of: object) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.slot_owners = _FindsANeighbour()


@WORKLOAD.mutant("moved-keys-not-delivered", "INV-5", patch=dispatching(SubscriptionType.KEY_SHARED))
class _MovedKeysNotDelivered(KeyShared):
    """With out-of-order delivery, messages that wait for the owner of a key are lost when the key moves."""

    def _replay_aside(self) -> None:
        if not self.slot_owners.may_reorder:
            super()._replay_aside()
            return
        self._aside_for_consumer.clear()
        self._aside_for_slot.clear()
        self._aside_count = 0
