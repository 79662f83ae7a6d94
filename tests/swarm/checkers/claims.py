"""Evidence on exclusive access: the requests of claimants, their responses, and the state of the disk at each response.

Written by claimants (`claimant.py`), read by the checks of the workload `exclusive-access`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from emulator.errors import ServerError
from emulator.model.values import AccessMode
from emulator.simulation.durable_media import Medium
from spark_jobs.evidence.grants import StoredGrant, stored_grants

Place = tuple[str, str]
"""Region and full name of the topic."""


def grants_on(disks: Mapping[str, Medium]) -> dict[Place, list[StoredGrant]]:
    """Return the stored grants of exclusive access of all regions, each list in the order of epochs."""
    values = (
        (region, (key, versioned.value))
        for region, disk in disks.items()
        for key, versioned in disk.values.items()
    )
    return {(grants[0].region, grants[0].topic): grants for grants in stored_grants(values)}


@dataclass(slots=True, eq=False)
class Attempt:
    """One request to open a producer. Times are virtual seconds."""

    name: str
    place: Place
    mode: AccessMode
    priority: int
    instance: int
    """The producer object that sent the request: it repeats it when its connection is lost."""
    asked: float
    waits: float | None = None
    """When the region responded that it is queued."""
    opened: float | None = None
    epoch: int | None = None
    """The epoch in the response that opened it."""
    lines: list[object] = field(default_factory=list)
    """The life of the topic at the response that it is queued and at the one that it is open. The order of the queue is
    guaranteed within one life only."""
    stored_owner: str | None = None
    """The owner of that epoch on the disk when the response arrived."""

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
    """An open producer can publish no more."""

    attempt: Attempt
    """Its latest successful request."""
    code: ServerError | None


@dataclass(slots=True)
class Claims:
    """The records of all claimants."""

    attempts: list[Attempt] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    wanting: Mapping[str, Attempt | None] = field(default_factory=dict)
    """Claimants that did not get the topic after the repair, with their latest request."""

    def opened(self) -> dict[Place, list[Attempt]]:
        """The requests that received an epoch, by place, in the order of their responses."""
        found: dict[Place, list[Attempt]] = defaultdict(list)
        for one in self.attempts:
            if one.opened is not None and one.epoch is not None:
                found[one.place].append(one)
        for attempts in found.values():
            attempts.sort(key=lambda one: one.opened or 0.0)
        return found
