"""Programs whose topics are terminated while they are published to, deleted without force, or deleted because they
are inactive; no client loses messages by it.

Each program has a topic of its own (`topic_termination_acts.py`). What was taken from it, and
when, it knows itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from emulator.broker.topic.termination import Ending
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.inactivity import InactivityTracker
from emulator.core.policies.inactivity import DeleteMode, Inactivity
from emulator.model.values import Position
from emulator.simulation.checkers import InvariantCheck
from tests.swarm.mutant import Mutant, parts, topic
from tests.swarm.plan import Plan
from tests.swarm.workload import Workload
from tests.swarm.workloads.self_reported import acted, told
from tests.swarm.workloads.topic_termination_acts import (
    AFTER,
    BEHIND,
    LOST,
    NAME,
    STAYS,
    TAKEN,
    Finishing,
    Termination,
    Unforced,
    Unused,
)


def draw(random: Random, plan: Plan) -> Plan:
    """Programs everywhere; each is in one region, where its topic ends."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(2, 4)))))


def _program(random: Random, plan: Plan) -> Finishing:
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


_told, _acted = partial(told, NAME), acted(NAME)


class _EndsInMemory(Ending):
    """A restart takes back that a topic was terminated."""

    async def terminate(self) -> Position:
        self.is_over = True
        self._send_producers_away()
        self._topic.flush()
        await self._topic.issued_so_far()
        return self._topic.last_position


class _EndsAtOnce(Ending):
    """The response to the termination is sent before pending publishes have their outcome."""

    async def terminate(self) -> Position:
        last = self._topic.last_position
        await super().terminate()
        return last


def _ending(careless: type[Ending]) -> type[Topic]:
    class EndsCarelessly(Topic):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.ending = careless(self)

    return EndsCarelessly


class _NobodyUsesIt(Topic):
    """A deletion without force is not rejected while clients use the topic."""

    @property
    def is_used(self) -> bool:
        return False


class _SubscriptionsAreNoUse(InactivityTracker):
    """A topic counts as unused although it has subscriptions."""

    def _is_idle(self, mode: DeleteMode) -> bool:
        return not any(one.consumers for one in self._topic.subscriptions.values())


class _AlwaysInUse(InactivityTracker):
    """No topic ever counts as unused."""

    def is_unused(self, policy: Inactivity, now_ms: int) -> bool:
        return False


WORKLOAD = Workload(
    NAME,
    draw,
    checks=(
        InvariantCheck(
            "no-publish-after-termination",
            "INV-39",
            _told(AFTER, "published after termination"),
            applies=_acted,
        ),
        InvariantCheck(
            "no-entry-after-last-position",
            "INV-39",
            _told(BEHIND, "stored after the position that termination returned"),
            applies=_acted,
        ),
        InvariantCheck(
            "topic-in-use-not-deleted", "INV-105", _told(TAKEN, "deleted without force"), applies=_acted
        ),
        InvariantCheck(
            "terminated-topic-complete",
            "INV-105",
            _told(LOST, "acknowledged to its producer, and never delivered"),
            applies=_acted,
        ),
        InvariantCheck(
            "inactive-topic-deleted",
            "INV-105",
            _told(STAYS, "should be deleted, and still exists"),
            applies=_acted,
        ),
    ),
    mutants=(
        Mutant(
            "termination-not-stored",
            "The termination of a topic is not stored.",
            ("INV-39",),
            topic(_ending(_EndsInMemory)),
            seed_name=NAME,
        ),
        Mutant(
            "last-position-returned-too-early",
            "Termination returns the last position before pending publishes have their outcome.",
            ("INV-39",),
            topic(_ending(_EndsAtOnce)),
            seed_name=NAME,
        ),
        Mutant(
            "deletion-ignores-use",
            "A topic is deleted without force although clients use it.",
            ("INV-105",),
            topic(_NobodyUsesIt),
            seed_name=NAME,
        ),
        Mutant(
            "deletion-ignores-subscriptions",
            "A topic with subscriptions counts as unused.",
            ("INV-105",),
            parts(disuse=_SubscriptionsAreNoUse),
            seed_name=NAME,
        ),
        Mutant(
            "inactivity-not-detected",
            "An inactive topic is never detected as inactive.",
            ("INV-105",),
            parts(disuse=_AlwaysInUse),
            seed_name=NAME,
        ),
    ),
)
