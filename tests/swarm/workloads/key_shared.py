"""Consumers of a Key_Shared subscription that join, die, freeze and return while keys move between them.

The key of a message is its producer's name, so that the checks can read the keys from the disks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch.key_shared import KeyShared
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.faults import Fault, KillClient, PauseClient, Reset
from tests.swarm.mutant import dispatching
from tests.swarm.plan import ConsumerPlan, Plan, ProducerPlan
from tests.swarm.workload import Workload

TOPIC = "keyed"
SUBSCRIPTION = "by-key"
COMMON_NAME = "sharer"


WORKLOAD = Workload("share-keys", acts=False, runs_in="swarm")


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if random.random() >= 0.15:
        return plan
    region, seconds = random.choice(plan.regions), plan.break_seconds
    producers = tuple(_producer(random, plan, number) for number in range(random.randint(3, 6)))
    consumers = tuple(_consumer(random, region, number) for number in range(random.randint(2, 4)))
    consumers = _named(plan, consumers)
    faults = [
        _trouble(random, region, [one.name for one in consumers], seconds)
        for _ in range(random.randint(2, 6))
    ]
    return replace(
        plan,
        producers=(*plan.producers, *producers),
        consumers=(*plan.consumers, *consumers),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda one: one.at_seconds)),
    )


def _producer(random: Random, plan: Plan, number: int) -> ProducerPlan:
    messages = random.randint(8, 25)
    name = f"keyed-{number}"
    return ProducerPlan(
        name,
        random.choice(plan.regions),
        TOPIC,
        messages,
        burst=random.choice((1, 3)),
        pause_seconds=round(plan.break_seconds / messages * random.uniform(0.2, 0.9), 4),
        key=name,
    )


def _consumer(random: Random, region: str, number: int) -> ConsumerPlan:
    return ConsumerPlan(
        f"sharer-{number}",
        SUBSCRIPTION,
        TOPIC,
        region,
        "KEY_SHARED",
        refuses=random.choice((0.0, 0.0, 0.2)),
        holds=random.choice((0, 3, 8)),
        think_seconds=random.choice((0.01, 0.2)),
        queue=random.choice((1, 5, 20)),
    )


def _named(plan: Plan, consumers: tuple[ConsumerPlan, ...]) -> tuple[ConsumerPlan, ...]:
    """Give all consumers the same name in half of the plans. A separate random source keeps all other draws."""
    if Random(f"{plan.seed}/names").random() < 0.5:
        return consumers
    return tuple(replace(one, consumer_name=COMMON_NAME) for one in consumers)


def _trouble(random: Random, region: str, clients: list[str], seconds: float) -> Fault:
    at = round(random.uniform(0.3, seconds), 3)
    lasts = round(min(random.expovariate(1.0) * random.choice((0.3, 2.0)), seconds), 3)
    client = random.choice(clients)
    kinds: tuple[Fault, ...] = (
        KillClient(at, lasts, client, random.random() < 0.5),
        KillClient(at, lasts, client, random.random() < 0.5),
        PauseClient(at, lasts, client),
        Reset(at, lasts, region, region),
    )
    return random.choice(kinds)


# INV-69


@WORKLOAD.checker("keys-in-order", "INV-69")
def keys_in_order(evidence: Evidence) -> Found:
    return in_order(evidence, TOPIC, SUBSCRIPTION)


def in_order(evidence: Evidence, topic: str, subscription: str) -> Found:
    """When a consumer receives a message, every earlier message of its key is acknowledged or was delivered to the
    same consumer."""
    for region in evidence.subscribed.get((full(topic), subscription), ()):
        earlier = _earlier_of_its_key(evidence, region, topic)
        acknowledged: set[str] = set()
        next_message: dict[str, set[str]] = defaultdict(set)
        for event in _of_sharers(evidence.events, region, subscription):
            place = event.message_id or ""
            if event.op == "subscribe":
                next_message[event.actor].clear()
            elif event.op == "acknowledge":
                acknowledged.add(place)
            elif event.op == "receive":
                next_message[event.actor].add(place)
                passed_over = earlier.get(place, frozenset()) - acknowledged - next_message[event.actor]
                if passed_over:
                    yield (
                        f"{event.actor} received {place} of {event.producer} in {region} before {min(passed_over)} of "
                        "the same key was acknowledged",
                        {"given": place, "before": min(passed_over), "key": event.producer or ""},
                    )


def _of_sharers(events: Iterable[HistoryEvent], region: str, subscription: str) -> Iterable[HistoryEvent]:
    return (one for one in events if one.subscription == subscription and one.region == region)


def _earlier_of_its_key(evidence: Evidence, region: str, topic: str) -> dict[str, frozenset[str]]:
    """Return the position of each message -> positions of the earlier messages of its key."""
    found: dict[str, frozenset[str]] = {}
    before: dict[str, frozenset[str]] = defaultdict(frozenset)
    for one in evidence.log(region, full(topic)).messages:
        found[one.message_id] = before[one.origin.producer]
        before[one.origin.producer] |= {one.message_id}
    return found


@WORKLOAD.mutant("keys-move-immediately", "INV-69", patch=dispatching(SubscriptionType.KEY_SHARED))
class _KeysMoveImmediately(KeyShared):
    """A key moves to its new consumer while the former one has unacknowledged messages of it."""

    def _is_held_by_another(self, slot: int, consumer: ConsumerState) -> bool:
        return False


@WORKLOAD.mutant("equal-consumer-names-merged", "INV-69", patch=dispatching(SubscriptionType.KEY_SHARED))
class _EqualConsumerNamesMerged(KeyShared):
    """Consumers with equal names count as one: a key moves to one of them while another has unacknowledged messages
    of it."""

    def _is_held_by_another(self, slot: int, consumer: ConsumerState) -> bool:
        hold = self._holder_of_slot.get(slot)
        return hold is not None and hold.consumer.name != consumer.name


@WORKLOAD.mutant("key-order-ignored", "INV-69", patch=dispatching(SubscriptionType.KEY_SHARED))
class _KeyOrderIgnored(KeyShared):
    """A message of a key is dispatched although an earlier one of the same key waits."""

    def _is_behind(self, waiting: IdSet, entry_id: int) -> bool:
        return False
