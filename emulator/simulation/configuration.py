"""A cluster's configuration store in a simulated world: elsewhere, so the kill of any region leaves it as it is.

A question and its answer take their time. While the store is away they fail; while it is full, writes do. An answer
may be lost: then nobody knows whether the write happened (`definite=False`). Regions hear of commits a little later,
each in its own time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from emulator.errors import StorageError, StorageFull
from emulator.simulation.durable_media import Span
from emulator.simulation.host import Host
from emulator.storage.configuration.contract import ConfigurationRead, ConfigurationRows, T, check_expected
from emulator.storage.configuration.memory import ConfigurationMemory


@dataclass(slots=True)
class ConfigurationFaults:
    """May be changed at any time. As it stands: well."""

    call_seconds: Span = (0.0005, 0.002)
    """One way."""
    notice_seconds: Span = (0.0, 0.02)
    """Until a region hears that something was committed."""
    lost_answer_probability: float = 0.0
    is_away: bool = False
    is_full: bool = False


class SimulatedConfiguration:
    """What the regions of one cluster share."""

    def __init__(self, random: Random, later: Callable[[float, Callable[[], None]], None]) -> None:
        """`later`: do something after so many seconds, whatever becomes of the regions."""
        self.random = random
        self.later = later
        self.faults = ConfigurationFaults()
        self.memory = ConfigurationMemory()

    def open_on(self, host: Host) -> ConfigurationAccess:
        """For a region that runs on this host, until its program is killed."""
        access = ConfigurationAccess(self)
        host.on_kill(access.forget)
        return access

    def repair(self) -> None:
        self.faults = ConfigurationFaults()


class ConfigurationAccess:
    """Implements `ConfigurationMedium`. Made on the region's loop."""

    def __init__(self, shared: SimulatedConfiguration) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def listen(self, on_commit: Callable[[], None]) -> None:
        shared = self._shared

        def heard() -> None:
            if not self._closed:
                self._loop.call_soon(on_commit)

        def committed() -> None:
            shared.later(shared.random.uniform(*shared.faults.notice_seconds), heard)

        shared.memory.on_commit[self] = committed

    async def read(self, after: int) -> ConfigurationRead:
        await self._travel()
        self._refuse_if_away("read")
        reading = self._shared.memory.read(after)
        await self._travel()
        self._refuse_if_away("read")
        return reading

    async def write(self, path: str, value: bytes | None, expected: int | None) -> int:
        def work(rows: ConfigurationRows) -> None:
            check_expected(path, expected, rows.get(path))
            rows.put(path, value)

        revision, _ = await self.transact(work)
        return revision

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        await self._travel()
        self._refuse_if_away("changed")
        faults = self._shared.faults
        if faults.is_full:
            raise StorageFull("the configuration store has no room left")
        revision, outcome = self._shared.memory.transact(work)
        await self._travel()
        if faults.is_away or self._shared.random.random() < faults.lost_answer_probability:
            raise StorageError("the configuration store did not answer", definite=False)
        return revision, outcome

    async def _travel(self) -> None:
        await asyncio.sleep(self._shared.random.uniform(*self._shared.faults.call_seconds))

    def _refuse_if_away(self, what: str) -> None:
        if self._closed or self._shared.faults.is_away:
            raise StorageError(f"the configuration store is away and cannot be {what}", definite=True)

    def forget(self) -> None:
        """Nobody is there any more to be told."""
        self._closed = True
        self._shared.memory.on_commit.pop(self, None)

    async def close(self) -> None:
        self.forget()
