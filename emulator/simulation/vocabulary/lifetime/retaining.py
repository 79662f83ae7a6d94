"""Programs whose topic has a retention by age or size, or one that is changed while clients run: what it keeps can be
read although it is acknowledged, what it lets go goes, and nothing goes that a subscription still needs.

Each program has a topic of its own (`retained.py`). What was taken from it and when, it knows itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from emulator.broker.topic.topic import Topic
from emulator.broker.topic.trimming import Trimmer
from emulator.core.needs import Need
from emulator.core.retention import Ages, Seen, Trimming
from emulator.simulation.ablation import Ablation, parts, topic
from emulator.simulation.checkers import Check
from emulator.simulation.plan import Plan
from emulator.simulation.vocabulary.lifetime.retained import LOST, NAME, SHORT, STAYS, Retaining
from emulator.simulation.vocabulary.telling import acted, told
from emulator.simulation.vocabulary.word import Word


def draw(random: Random, plan: Plan) -> Plan:
    """Programs everywhere, some with large messages."""
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _program(random: Random, plan: Plan) -> Retaining:
    seconds, count = plan.break_seconds, random.randint(5, 30)
    minutes, megabytes = random.choice(((1, -1), (-1, 1), (1, 1), (0, 0), (-1, -1)))
    is_large = megabytes == 1 and random.random() < 0.7
    begin = round(random.uniform(0.2, seconds * 0.4), 3)
    return Retaining(
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


_told, _acted = partial(told, NAME), acted(NAME)


class _NothingIsYoung(Ages):
    """Whatever is looked at is old enough to go."""

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return True


class _NothingIsOld(Ages):
    """Nothing is ever old enough to go."""

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return False


class _NeverTooMuch(Trimming):
    """However large a log is, its size lets nothing go."""

    def goes(self, entry: Seen) -> bool:
        self._left_bytes = 0
        return super().goes(entry)


class _AlwaysTooMuch(Trimming):
    """However small a log is, it is taken to be too large."""

    def goes(self, entry: Seen) -> bool:
        self._left_bytes = 2**40
        return super().goes(entry)


class _AsksWhoIsThere(Trimmer):
    """Subscriptions that nobody reads hold nothing back."""

    def _cursors(self) -> Iterable[Need]:
        for name, subscription in self._topic.subscriptions.items():
            if subscription.durable and subscription.consumers:
                yield Need(subscription.cursor.mark_delete + 1, f"subscription {name}")

    def _pass_trimmed(self) -> None:
        """Nor are they told."""


class _SparesWhoIsThere(Topic):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.trimmer = _AsksWhoIsThere(self)


WORD = Word(
    NAME,
    draw,
    checks=(
        Check(
            "retained-is-readable",
            "INV-104",
            _told(SHORT, "retention keeps it, and no reader is given it"),
            applies=_acted,
        ),
        Check(
            "retention-keeps-backlog",
            "INV-36",
            _told(LOST, "needed by a slow subscription, and never given to it"),
            applies=_acted,
        ),
        Check(
            "beyond-retention-removed",
            "INV-104",
            _told(STAYS, "acknowledged, let go by retention, and still there"),
            applies=_acted,
        ),
    ),
    ablations=(
        Ablation(
            "retention-ignores-age",
            "What is acknowledged goes however young it is.",
            ("INV-104",),
            parts(ages=_NothingIsYoung),
            seed_name=NAME,
        ),
        Ablation(
            "retention-never-ends",
            "What is acknowledged stays however old it is.",
            ("INV-104",),
            parts(ages=_NothingIsOld),
            seed_name=NAME,
        ),
        Ablation(
            "size-always-exceeded",
            "A log is taken to be larger than its retention allows.",
            ("INV-104",),
            parts(trimming=_AlwaysTooMuch),
            seed_name=NAME,
        ),
        Ablation(
            "size-never-exceeded",
            "A log grows beyond its retention by size.",
            ("INV-104",),
            parts(trimming=_NeverTooMuch),
            seed_name=NAME,
        ),
        Ablation(
            "trimming-ignores-slow-subscriptions",
            "A log is trimmed without asking what subscriptions need that nobody reads.",
            ("INV-36",),
            topic(_SparesWhoIsThere),
            seed_name=NAME,
        ),
    ),
)
