"""The result of a simulated run, and the function that runs a world to its end even if a program fails."""

from __future__ import annotations

import gc
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.config.topology import Topology
from emulator.model.stored_keys import CursorKey, CursorPartKey, GrantKey
from emulator.run.history_events import HistoryEvent
from emulator.simulation.determinism_guard import ReachedOutside
from emulator.simulation.durable_media import Medium
from emulator.simulation.invariant_check import InvariantResult, Violation
from emulator.simulation.virtual_time import SimulationError
from emulator.simulation.world import World

Figures = Mapping[str, float]
"""Measured figures by name; a unit is part of the name."""


class StoredLog(NamedTuple):
    """One log as stored on a disk."""

    name: str
    ledger_id: int
    next_entry_id: int
    entries: list[tuple[int, bytes]]


class StoredState(NamedTuple):
    """What a world stored by the end of the run."""

    logs: Mapping[str, list[StoredLog]]
    """The logs of each region."""
    values: Mapping[str, list[tuple[str, bytes]]]
    """For each region, keys and values of the stored cursors and grants."""
    config_changes: Mapping[str, list[str]]
    """For each region, the lines of its `metadata.jsonl`."""
    configurations: Mapping[str, Mapping[str, bytes]]
    """For each cluster, the values of its configuration store by path."""


@dataclass(slots=True, kw_only=True)
class SimulationOutcome:
    """The result of one seed."""

    name: str
    """Name of the scenario or the workload."""
    seed: int
    topology: Topology
    violation: Violation | None
    check_results: list[InvariantResult]
    virtual_seconds: float
    digest: str
    """Hash of the whole run; runs of the same seed have the same hash."""
    events: list[HistoryEvent]
    stored: StoredState
    figures: Figures = field(default_factory=dict)


def run_to_the_end(
    world: World, main: Coroutine[Any, Any, None], *, within_seconds: float
) -> Violation | None:
    """Run the world until `main` ends, and return a SimulationError or programming error as a violation. Raises
    ReachedOutside if a program called a function of the real world."""
    try:
        world.simulation.run(main, within_seconds=within_seconds)
    except ReachedOutside:
        raise
    except (SimulationError, AssertionError, RuntimeError, ValueError, LookupError) as failure:
        sentence = str(failure).splitlines()[0] if str(failure) else repr(failure)
        return Violation("INV-15", "programs-are-sound", sentence, {"error": type(failure).__name__})
    return None


@contextmanager
def without_gc_and_logging() -> Iterator[None]:
    """Suspend garbage collection and log output. Enter before a world is created, and leave after the last reference to
    it is gone.

    While a world exists, there is little garbage, but collections traverse many objects: 5% of a run's time. A world
    that a local variable still refers to when collection resumes survives it, and the next nine collections: another
    5%. Brokers log about a thousand lines per minute.
    """
    loggers = [logging.getLogger("emulator"), logging.getLogger("asyncio")]
    levels = [logger.level for logger in loggers]
    was_enabled = gc.isenabled()
    gc.disable()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if was_enabled:
            gc.enable()


def stored_state(world: World) -> StoredState:
    """Return the logs, cursors and grants on the media, the configuration changes, and the configuration stores."""
    return StoredState(
        {name: _logs(region.medium) for name, region in world.regions.items()},
        {name: _values(region.medium) for name, region in world.regions.items()},
        {name: list(region.config_changes) for name, region in world.regions.items()},
        configurations_of(world),
    )


def configurations_of(world: World) -> dict[str, dict[str, bytes]]:
    """Return for each cluster the values of its configuration store by path, without deleted ones."""
    return {
        cluster: {path: one.value for path, one in store.memory.values.items() if one.value is not None}
        for cluster, store in world.configurations.items()
    }


def _logs(disk: Medium) -> list[StoredLog]:
    return [
        StoredLog(log.name, log.ledger_id, log.next_entry_id, list(zip(log.ids, log.entries, strict=True)))
        for log in disk.logs.values()
    ]


_KINDS = tuple(kind.prefix() for kind in (CursorKey, CursorPartKey, GrantKey))


def _values(disk: Medium) -> list[tuple[str, bytes]]:
    return [
        (key, versioned.value) for key, versioned in sorted(disk.values.items()) if key.startswith(_KINDS)
    ]
