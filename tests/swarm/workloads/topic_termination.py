"""Programs whose topics are terminated while they are published to, deleted without force, or deleted because they
are inactive; no client loses messages by it.

Each program has a topic of its own (`topic_termination_acts.py`). What was taken from it, and
when, it knows itself.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from emulator.broker.topic.termination import TopicTermination
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.inactivity import InactivityTracker
from emulator.core.policies.lifetime import DeleteMode, Inactivity
from emulator.model.values import Position
from tests.swarm.mutant import part, topic
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.topic_termination_acts import (
    AFTER,
    BEHIND,
    LOST,
    NAME,
    STAYS,
    TAKEN,
    TerminatingProgram,
    Termination,
    Unforced,
    Unused,
)

WORKLOAD = Workload(NAME)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs, each in one region, where its topic is terminated or deleted."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(2, 4)))))


def _program(random: Random, plan: Plan) -> TerminatingProgram:
    seconds, region, count = plan.break_seconds, random.choice(plan.regions), random.randint(4, 20)
    begin, pause = round(random.uniform(0.2, seconds * 0.4), 3), round(seconds / count * 0.4, 4)
    kind = random.choice((Termination, Termination, Unforced, Unused))
    if kind is Termination:
        ends = round(random.uniform(begin, seconds), 3)
        return Termination(begin, region, region, count, round(pause / 3, 4), seconds + 1.0, ends)
    if kind is Unused:
        return Unused(begin, region, region, count, pause, seconds + 1.0, random.randint(1, 3))
    return Unforced(begin, region, region, count, pause, seconds + 1.0)


# INV-39 and INV-105


def _ending(careless: type[TopicTermination]) -> type[Topic]:
    class EndsCarelessly(Topic):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.termination = careless(self, self.access, self.publishing, self.subscriptions)

    return EndsCarelessly


@WORKLOAD.mutant("termination-not-stored", "INV-39", patch=lambda part: topic(_ending(part)))
class _TerminationNotStored(TopicTermination):
    """The termination of a topic is not stored."""

    async def terminate(self) -> Position:
        self.is_terminated = True
        self._disconnect_producers()
        self._topic.flush()
        await self._topic.issued_so_far()
        return self._topic.reading.last_stored_position


@WORKLOAD.mutant("last-position-returned-too-early", "INV-39", patch=lambda part: topic(_ending(part)))
class _LastPositionReturnedTooEarly(TopicTermination):
    """Termination returns the last position before pending publishes have their outcome."""

    async def terminate(self) -> Position:
        last = self._topic.reading.last_stored_position
        await super().terminate()
        return last


@WORKLOAD.mutant("deletion-ignores-use", "INV-105", patch=topic)
class _DeletionIgnoresUse(Topic):
    """A topic is deleted without force although clients use it."""

    @property
    def is_used(self) -> bool:
        return False


@WORKLOAD.mutant("deletion-ignores-subscriptions", "INV-105", patch=part("inactivity"))
class _DeletionIgnoresSubscriptions(InactivityTracker):
    """A topic with subscriptions counts as unused."""

    def _is_idle(self, mode: DeleteMode) -> bool:
        return not any(one.consumers for one in self._topic.subscriptions.values())


@WORKLOAD.mutant("inactivity-not-detected", "INV-105", patch=part("inactivity"))
class _InactivityNotDetected(InactivityTracker):
    """An inactive topic is never detected as inactive."""

    def check_unused(self, policy: Inactivity, now_ms: int) -> bool:
        return False


WORKLOAD.reports("no-publish-after-termination", "INV-39", AFTER, "published after termination")
WORKLOAD.reports(
    "no-entry-after-last-position", "INV-39", BEHIND, "stored after the position that termination returned"
)
WORKLOAD.reports("topic-in-use-not-deleted", "INV-105", TAKEN, "deleted without force")
WORKLOAD.reports(
    "terminated-topic-complete", "INV-105", LOST, "acknowledged to its producer, and never delivered"
)
WORKLOAD.reports("inactive-topic-deleted", "INV-105", STAYS, "should be deleted, and still exists")
