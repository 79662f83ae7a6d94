"""Programs whose topic has retention by age or size, or one that changes while clients run: retained messages are
readable although they are acknowledged, messages beyond retention are removed, and no message that a subscription
needs is removed.

Each program has a topic of its own (`retention_program.py`). What was taken from it and when,
it knows itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from emulator.broker.topic.retention import Trimmer
from emulator.broker.topic.topic import Topic
from emulator.core.topic.retention import AgedEntry, Ages, LogHold, Trimming
from tests.swarm.mutant import part, topic
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.retention_program import LOST, NAME, SHORT, STAYS, RetentionProgram

WORKLOAD = Workload(NAME)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in random regions, some with large messages."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _program(random: Random, plan: Plan) -> RetentionProgram:
    seconds, count = plan.break_seconds, random.randint(5, 30)
    minutes, megabytes = random.choice(((1, -1), (-1, 1), (1, 1), (0, 0), (-1, -1)))
    is_large = megabytes == 1 and random.random() < 0.7
    begin = round(random.uniform(0.2, seconds * 0.4), 3)
    return RetentionProgram(
        *(begin, random.choice(plan.regions), random.choice(plan.regions), count),
        round(seconds / count * random.uniform(0.1, 0.6), 4),
        seconds + 1.0,
        round(random.uniform(begin, seconds), 3),
        *(minutes, megabytes),
        random.choice((60_000, 120_000)) if is_large else 100,
        random.random() < 0.3,
        random.random() < 0.4 or minutes == megabytes == -1,
    )


# INV-104


@WORKLOAD.mutant("retention-ignores-age", "INV-104", patch=part("ages"))
class _RetentionIgnoresAge(Ages):
    """Acknowledged messages are removed regardless of their age."""

    def is_older(self, entry: AgedEntry, age_ms: int, now_ms: int) -> bool:
        return True


@WORKLOAD.mutant("retention-never-ends", "INV-104", patch=part("ages"))
class _RetentionNeverEnds(Ages):
    """Acknowledged messages are never removed, regardless of their age."""

    def is_older(self, entry: AgedEntry, age_ms: int, now_ms: int) -> bool:
        return False


@WORKLOAD.mutant("size-never-exceeded", "INV-104", patch=part("trimming"))
class _SizeNeverExceeded(Trimming):
    """A log grows beyond its retention by size."""

    def goes(self, entry: AgedEntry) -> bool:
        self._left_bytes = 0
        return super().goes(entry)


@WORKLOAD.mutant("size-always-exceeded", "INV-104", patch=part("trimming"))
class _SizeAlwaysExceeded(Trimming):
    """A log always counts as larger than its retention allows."""

    def goes(self, entry: AgedEntry) -> bool:
        self._left_bytes = 2**40
        return super().goes(entry)


class _AsksWhoIsThere(Trimmer):
    """A trimmer that keeps no entries for subscriptions without a consumer."""

    def _cursor_holds(self) -> Iterable[LogHold]:
        for name, subscription in self.subscriptions.items():
            if subscription.durable and subscription.consumers:
                yield LogHold(subscription.cursor.mark_delete + 1, f"subscription {name}")

    def _pass_trimmed(self) -> None:
        """Leave cursors behind the trimmed entries."""


@WORKLOAD.mutant("trimming-ignores-slow-subscriptions", "INV-36", patch=topic)
class _TrimmingIgnoresSlowSubscriptions(Topic):
    """Trimming ignores subscriptions without consumers."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.retention.trimmer = _AsksWhoIsThere(self, self.subscriptions, self.replicators)


WORKLOAD.reports("retained-is-readable", "INV-104", SHORT, "within retention, and no reader received it")
WORKLOAD.reports(
    "retention-keeps-backlog", "INV-36", LOST, "needed by a slow subscription, and never delivered to it"
)
WORKLOAD.reports(
    "beyond-retention-removed", "INV-104", STAYS, "acknowledged, beyond retention, and still stored"
)
