"""Evidence on exclusive access: requests of claimants, their responses, and the owner on the disk at each response.

Claimants (`claimant.py`) write the records; the checks of the workload `exclusive-access` read them.
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
"""(region, full name of the topic)."""


def grants_on(disks: Mapping[str, Medium]) -> dict[Place, list[StoredGrant]]:
    """Return the stored grants of exclusive access by region and topic, each list in the order of epochs."""
    values = (
        (region, (key, versioned.value))
        for region, disk in disks.items()
        for key, versioned in disk.values.items()
    )
    return {(grants[0].region, grants[0].topic): grants for grants in stored_grants(values)}


@dataclass(slots=True, eq=False)
class Attempt:
    """A request to open a producer, and its responses. Times are virtual seconds."""

    name: str
    place: Place
    mode: AccessMode
    priority: int
    instance: int
    """Number of the producer object that sent the request; the object repeats the request after a lost connection."""
    requested_at: float
    waits: float | None = None
    """Time of the response that the producer is queued; None: there was none."""
    opened: float | None = None
    epoch: int | None = None
    """The topic epoch in the response that opened the producer."""
    lines: list[object] = field(default_factory=list)
    """The broker's loaded topic at each response (queued, opened). The order of the wait queue is only guaranteed as
    long as the topic stays loaded."""
    stored_owner: str | None = None
    """The owner of that epoch on the disk when the response arrived; None: no grant was stored."""

    @property
    def line(self) -> object:
        """The loaded topic that gave all responses; None: the topic was loaded again in between."""
        return self.lines[0] if self.lines and all(one is self.lines[0] for one in self.lines) else None

    @property
    def is_exclusive(self) -> bool:
        return self.mode is not AccessMode.SHARED


@dataclass(slots=True, eq=False)
class Sent:
    """A publish of an open producer."""

    by: Attempt
    text: str
    requested_at: float
    acknowledged: bool = False


class Ending(NamedTuple):
    """The end of a producer: it was open and can no longer publish."""

    attempt: Attempt
    """The latest request of the producer that was granted."""
    code: ServerError | None


@dataclass(slots=True)
class Claims:
    """The records of all claimants."""

    attempts: list[Attempt] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    wanting: Mapping[str, Attempt | None] = field(default_factory=dict)
    """Claimants that did not get exclusive access after healing, each with its latest request."""

    def opened(self) -> dict[Place, list[Attempt]]:
        """Return the requests that received an epoch, by region and topic, in the order of their responses."""
        found: dict[Place, list[Attempt]] = defaultdict(list)
        for one in self.attempts:
            if one.opened is not None and one.epoch is not None:
                found[one.place].append(one)
        for attempts in found.values():
            attempts.sort(key=lambda one: one.opened or 0.0)
        return found
