"""What came of a simulated world, and how a world is played to its end whatever happens in it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.model.stored_keys import GrantKey
from emulator.run.history import Event
from emulator.simulation.checkers import Judgement, Violation
from emulator.simulation.determinism_guard import ReachedOutside
from emulator.simulation.evidence import Deed
from emulator.simulation.loop import SimulationError
from emulator.simulation.plan import Plan
from emulator.simulation.world import World

Figures = Mapping[str, float]
"""What was measured -> how much; a unit is part of the name."""


class StoredLog(NamedTuple):
    """One log as it lay on a disk."""

    name: str
    ledger_id: int
    next_entry_id: int
    entries: list[tuple[int, bytes]]


@dataclass(slots=True)
class Outcome:
    """What came of a plan."""

    plan: Plan
    violation: Violation | None
    judgements: list[Judgement]
    virtual_seconds: float
    digest: str
    """Hash of all that happened: the same seed has the same."""
    events: list[Event] = field(default_factory=list)
    logs: dict[str, list[StoredLog]] = field(default_factory=dict)
    """By region: what was on its disk at the end."""
    grants: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """By region: keys and values of the exclusive access that it had stored at the end."""
    deliveries: dict[str, list[str]] = field(default_factory=dict)
    """By region: the lines of its `metadata.jsonl`."""
    configurations: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By cluster: what its configuration store held at the end, by path."""
    deeds: list[Deed] = field(default_factory=list)
    """What words did."""
    figures: Figures = field(default_factory=dict)
    """What was measured."""


def play_to_the_end(
    world: World, story: Coroutine[Any, Any, None], *, within_seconds: float
) -> Violation | None:
    """Play it. A program that does what programs must not do is a violation; nothing is raised but what the simulation
    itself must not allow."""
    _silence_brokers()
    try:
        world.simulation.run(story, within_seconds=within_seconds)
    except ReachedOutside:
        raise
    except (SimulationError, AssertionError, RuntimeError, ValueError, LookupError) as failure:
        sentence = str(failure).splitlines()[0] if str(failure) else repr(failure)
        return Violation("INV-15", "programs-are-sound", sentence, {"error": type(failure).__name__})
    return None


@contextmanager
def uncollected() -> Iterator[None]:
    """Around a whole world, from before it is made until after it is closed: as long as it lives there is little
    garbage and much to look through, which took a twentieth of a drill's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def logs_of(world: World) -> dict[str, list[StoredLog]]:
    """What lies on the disks, by region."""
    return {
        name: [
            StoredLog(
                log.name, log.ledger_id, log.next_entry_id, list(zip(log.ids, log.entries, strict=True))
            )
            for log in region.disk.logs.values()
        ]
        for name, region in world.regions.items()
    }


def grants_of(world: World) -> dict[str, list[tuple[str, bytes]]]:
    """What lies on the disks of who owned topics, by region."""
    return {
        name: [
            (key, versioned.value)
            for key, versioned in sorted(region.disk.values.items())
            if key.startswith(GrantKey.prefix())
        ]
        for name, region in world.regions.items()
    }


def deliveries_of(world: World) -> dict[str, list[str]]:
    """What the regions learned of their configuration, by region."""
    return {name: list(region.deliveries) for name, region in world.regions.items()}


def configurations_of(world: World) -> dict[str, dict[str, bytes]]:
    """What the clusters' configuration stores hold."""
    return {
        cluster: {path: one.value for path, one in store.memory.values.items() if one.value is not None}
        for cluster, store in world.configurations.items()
    }


def _silence_brokers() -> None:
    """They complain of what is done to them, a thousand times a minute."""
    logging.getLogger("emulator").setLevel(logging.CRITICAL + 1)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
