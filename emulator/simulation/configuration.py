"""A cluster's configuration store in a simulated run. No region hosts it, so it survives the kill of any region.

Requests and responses take time. While the store is unreachable, both fail; while it is full, writes fail. A response
may be lost: then the outcome of the write is unknown (`definite=False`). Each region is notified of a commit after a
delay that is drawn for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from emulator.errors import StorageError, StorageFull
from emulator.simulation.durable_media import Span
from emulator.simulation.host import Host
from emulator.storage.configuration.contract import (
    ConfigurationMedium,
    ConfigurationRead,
    ConfigurationRows,
    T,
)
from emulator.storage.configuration.memory import ConfigurationMemory


@dataclass(slots=True)
class ConfigurationFaults:
    """Delays and faults of a configuration store. They may be changed at any time; the default has no faults."""

    call_seconds: Span = (0.0005, 0.002)
    """Duration of a request, and of a response."""
    notice_seconds: Span = (0.0, 0.02)
    """Delay from a commit until a region is notified of it."""
    lost_answer_probability: float = 0.0
    is_unreachable: bool = False
    is_full: bool = False


class SimulatedConfiguration:
    """The state that the regions of one cluster share."""

    def __init__(self, random: Random, later: Callable[[float, Callable[[], None]], None]) -> None:
        """`later(seconds, do)` calls `do` after that many seconds, even if regions are killed before."""
        self.random = random
        self.later = later
        self.faults = ConfigurationFaults()
        self.memory = ConfigurationMemory()

    def open_on(self, host: Host) -> ConfigurationAccess:
        """Open the store for a region on this host. The access ends when the region's program is killed."""
        access = ConfigurationAccess(self)
        host.on_kill(access.stop)
        return access

    def repair(self) -> None:
        self.faults = ConfigurationFaults()


class ConfigurationAccess(ConfigurationMedium):
    """One region's connection to its cluster's configuration store. Created on the region's loop."""

    def __init__(self, shared: SimulatedConfiguration) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def listen(self, on_commit: Callable[[], None]) -> None:
        shared = self._shared

        def notify() -> None:
            if not self._closed:
                self._loop.call_soon(on_commit)

        def committed() -> None:
            shared.later(shared.random.uniform(*shared.faults.notice_seconds), notify)

        shared.memory.on_commit[self] = committed

    async def read(self, after: int) -> ConfigurationRead:
        await self._wait_for_network()
        self._check_reachable("read")
        reading = self._shared.memory.read(after)
        await self._wait_for_network()
        self._check_reachable("read")
        return reading

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        await self._wait_for_network()
        self._check_reachable("changed")
        faults = self._shared.faults
        if faults.is_full:
            raise StorageFull("the configuration store has no room left")
        revision, outcome = self._shared.memory.transact(work)
        await self._wait_for_network()
        if faults.is_unreachable or self._shared.random.random() < faults.lost_answer_probability:
            raise StorageError("the configuration store did not answer", definite=False)
        return revision, outcome

    async def _wait_for_network(self) -> None:
        await asyncio.sleep(self._shared.random.uniform(*self._shared.faults.call_seconds))

    def _check_reachable(self, what: str) -> None:
        if self._closed or self._shared.faults.is_unreachable:
            raise StorageError(f"the configuration store is away and cannot be {what}", definite=True)

    def stop(self) -> None:
        """Close the access and stop notifying the region, because its program ended."""
        self._closed = True
        self._shared.memory.on_commit.pop(self, None)

    async def close(self) -> None:
        self.stop()
