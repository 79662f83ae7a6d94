"""Who asked for a topic, what it was told, and what lay on the disk when it heard of it: evidence on exclusive access.

Written by claimants (`claimant.py`), read by the checks of the workload `exclusive-access`. Grants are read from
the disks with code of its own: a judge that read them with the code that wrote them would believe its mistakes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from emulator.errors import ServerError
from emulator.model.stored_keys import GrantKey, parse_key
from emulator.model.values import AccessMode
from emulator.simulation.durable_media import Medium

Place = tuple[str, str]
"""Region and full name of the topic."""


class GrantRow(NamedTuple):
    """A grant as it lies on a disk."""

    epoch: int
    owner: str
    first_entry: int
    end_entry: int | None
    problem: str = ""
    """Why it cannot be read."""


def read_row(epoch: int, value: bytes) -> GrantRow:
    try:
        row = json.loads(value)
        said, owner, first, end = (row[name] for name in ("epoch", "owner", "first_entry", "end_entry"))
    except (ValueError, KeyError, TypeError) as problem:
        return GrantRow(epoch, "", 0, None, repr(problem))
    if said != epoch:
        return GrantRow(epoch, owner, first, end, f"its entry has epoch {said}")
    return GrantRow(epoch, owner, first, end)


def grants_in(rows: Iterable[tuple[str, bytes]]) -> dict[str, list[GrantRow]]:
    """From keys and values of one region: by full topic name, in the order of the epochs."""
    found: dict[str, list[GrantRow]] = defaultdict(list)
    for text, value in rows:
        key = parse_key(text)
        if isinstance(key, GrantKey):
            found[key.topic].append(read_row(int(key.epoch), value))
    return {topic: sorted(grants) for topic, grants in found.items()}


def stored_grants(disks: Mapping[str, Medium]) -> dict[Place, list[GrantRow]]:
    """Return the stored grants of exclusive access of all regions."""
    found = {}
    for region, disk in disks.items():
        rows = ((text, versioned.value) for text, versioned in disk.values.items())
        for topic, grants in grants_in(rows).items():
            found[region, topic] = grants
    return found


@dataclass(slots=True, eq=False)
class Attempt:
    """One time that a producer asked to be opened. Virtual seconds."""

    name: str
    place: Place
    mode: AccessMode
    priority: int
    instance: int
    """The producer object that asked: it asks again when its connection is lost."""
    asked: float
    waits: float | None = None
    """When it heard that it stands in line."""
    opened: float | None = None
    epoch: int | None = None
    """What it was told when it was opened."""
    lines: list[object] = field(default_factory=list)
    """Which life of the topic it stood in line in, when it heard that it waits and when it was opened. An order holds
    within one: for what is carried over, nothing is promised."""
    stored_owner: str | None = None
    """Whom the disk named for that epoch when it heard of it."""

    @property
    def line(self) -> object:
        """The one life of the topic in which it waited until it was opened; None: there were several."""
        return self.lines[0] if self.lines and all(one is self.lines[0] for one in self.lines) else None

    @property
    def is_exclusive(self) -> bool:
        return self.mode is not AccessMode.SHARED


@dataclass(slots=True, eq=False)
class Sent:
    """One publish of a producer that was open."""

    by: Attempt
    text: str
    asked: float
    acknowledged: bool = False


class Ending(NamedTuple):
    """A producer that was open and can publish no more."""

    attempt: Attempt
    """Its last that was answered."""
    code: ServerError | None


@dataclass(slots=True)
class Claims:
    """Everything that claimants noted."""

    attempts: list[Attempt] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    wanting: Mapping[str, Attempt | None] = field(default_factory=dict)
    """Claimants that did not get the topic although everything was repaired, and how they asked last."""

    def opened(self) -> dict[Place, list[Attempt]]:
        """Those that were told an epoch, by place, in the order in which they heard of it."""
        found: dict[Place, list[Attempt]] = defaultdict(list)
        for one in self.attempts:
            if one.opened is not None and one.epoch is not None:
                found[one.place].append(one)
        for attempts in found.values():
            attempts.sort(key=lambda one: one.opened or 0.0)
        return found
