"""Programs whose replicated subscription continues in another region, and perhaps returns, while acknowledged
messages are trimmed or while messages expire in one region only: every unacknowledged message is delivered wherever
the subscription continues, expiry in one region has no effect elsewhere, and finally no region stores an acknowledged
message.

Each program has a topic of its own (`subscription_retention_program.py`), and records its publishes, deliveries and
acknowledgements itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from emulator.broker.topic.retention import Trimmer
from emulator.broker.topic.topic import Topic
from emulator.core.cursor.cursor import Cursor
from emulator.core.topic.retention import LogHold
from tests.swarm.mutant import part, topic
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.expiry_policy import Eviction, Expiry, RemovalProgram
from tests.swarm.workloads.subscription_retention_program import (
    LOST,
    NAME,
    PASSED,
    STAYS,
    ExpiringProgram,
    MovingProgram,
    ReplicatedSubscriptionProgram,
    UnusedSubscriptionProgram,
)

WORKLOAD = Workload(NAME)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs, each with two regions for its subscription."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(2, 4)))))


def _program(random: Random, plan: Plan) -> ReplicatedSubscriptionProgram:
    seconds, count = plan.break_seconds, random.randint(4, 40)
    begin = round(random.uniform(0.2, seconds * 0.3), 3)
    reading, onward = random.sample(plan.regions, 2)
    pause = round(seconds / count * random.uniform(0.1, 0.7), 4)
    common = (begin, random.choice(plan.regions), reading, count, pause, seconds + 1.0, onward)
    cluster_of = {region.name: region.cluster for region in plan.topology.regions}
    if cluster_of[reading] != cluster_of[onward] and random.random() < 0.4:
        return UnusedSubscriptionProgram(
            *common, round(random.uniform(begin, seconds), 3), _policy(random, common)
        )
    moves = tuple(sorted(round(random.uniform(begin, seconds), 3) for _ in range(random.randint(1, 3))))
    acknowledged = tuple(random.random() < 0.7 for _ in range(count))
    if random.random() < 0.3:
        lasts = round(random.uniform(0.0, seconds * 0.5), 3)
        return ExpiringProgram(*common, acknowledged, moves, begin, lasts, random.randint(1, 3))
    return MovingProgram(*common, acknowledged, moves)


def _policy(random: Random, common: tuple[Any, ...]) -> RemovalProgram:
    """Draw a policy that expires or evicts messages, by time or by size."""
    begin, region, reading, count, pause, end, _ = common
    kind, limit = (Expiry, (1, 3)) if random.random() < 0.6 else (Eviction, (600, 3_000))
    return kind(begin, region, reading, count, pause, end, 0.0, None, random.randint(*limit))


# INV-102 and INV-37


class _HoldsNoGaps(Trimmer):
    """A trimmer that removes everything before the last acknowledged message, including unacknowledged messages."""

    def _cursor_holds(self) -> Iterable[LogHold]:
        for name, subscription in self.subscriptions.items():
            cursor = subscription.cursor
            if subscription.durable:
                yield LogHold(max(cursor.highest_acked, cursor.mark_delete) + 1, f"subscription {name}")


@WORKLOAD.mutant("unacknowledged-gaps-trimmed", "INV-102", patch=topic)
class _UnacknowledgedGapsTrimmed(Topic):
    """A log is trimmed up to the last acknowledgement, also over messages that are not acknowledged."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.retention.trimmer = _HoldsNoGaps(self, self.subscriptions, self.replicators)


@WORKLOAD.mutant("expired-counts-as-acknowledged", "INV-37", patch=part("cursor"))
class _ExpiredCountsAsAcknowledged(Cursor):
    """Expired messages count as acknowledged and are included in updates to other regions."""

    def ack_range(self, first: int, last: int) -> bool:
        changed = super().ack_range(first, last)
        self.ahead_of_peers = self.ahead_of_peers or changed
        return changed


@WORKLOAD.mutant("expiry-stops-updates", "INV-102", patch=part("cursor"))
class _ExpiryStopsUpdates(Cursor):
    """A subscription that skipped expired messages sends no more updates to other regions."""

    def ack_range(self, first: int, last: int) -> bool:
        changed = super().ack_range(first, last)
        if changed:
            self.ahead_of_peers = False
        return changed


WORKLOAD.reports(
    "continues-in-other-region",
    "INV-102",
    LOST,
    "published, not acknowledged by its subscription, and never delivered where that continued",
)
WORKLOAD.reports(
    "acknowledged-is-trimmed", "INV-102", STAYS, "acknowledged by its only subscription, and still stored"
)
WORKLOAD.reports(
    "expiry-is-local", "INV-37", PASSED, "expired in one region, and skipped in another one as well"
)
