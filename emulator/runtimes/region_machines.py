"""Faults of the machines of a run's regions: clocks, disks and power, for processes and containers alike.

A fault is recorded in the run record, so that a region that starts has it, and sent to the admin port of a region that
runs.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict

from emulator.errors import Refused, RuntimeFailure
from emulator.model.machine import DiskCondition
from emulator.model.units import checked_drift_ppm
from emulator.run.directory import RunDirectory, refuse_unknown
from emulator.run.processes import ProcessState
from emulator.run.record import RegionRecord, RunRecord
from emulator.runtimes.admin_client import NoHttpResponse, call, describe

States = Mapping[str, ProcessState]
AdminRequest = tuple[str, str, object]
"""Method, target and body of a request to an admin port."""
APPLY_SECONDS = 10.0
"""Time limit for a region that is ready to apply a change."""


class RegionMachines(ABC):
    """The verbs of the runtime contract for the clock, the disk and the power of a region."""

    def __init__(self, directory: RunDirectory, poll_seconds: float, ready_seconds: float) -> None:
        self._directory = directory
        self._poll_seconds = poll_seconds
        self._ready_seconds = ready_seconds
        """Time that a region may take until it is ready."""

    @abstractmethod
    async def kill(self, region: str) -> None: ...

    @abstractmethod
    async def _states(self) -> States:
        """Return the state of every region's program."""

    def _on_record_changed(self, record: RunRecord, regions: Iterable[str]) -> None:  # noqa: B027 (nothing to do)
        """Handle changed links, clocks or disks of regions in the record, before any region receives the change."""

    async def skew(self, region: str, ahead_ms: int, drift_ppm: float = 0.0) -> None:
        try:
            checked_drift_ppm(drift_ppm)
        except ValueError as problem:
            raise Refused(f"the drift of a clock {problem}, not {drift_ppm!r}") from None

        def change(found: RegionRecord) -> None:
            found.clock_ahead_ms, found.clock_drift_ppm = ahead_ms, drift_ppm
            found.clock_set_at_ms = time.time_ns() // 1_000_000

        def request(record: RunRecord) -> AdminRequest:
            found = record.regions[region]
            body = {"ahead_ms": found.clock_ahead_ms, "drift_ppm": found.clock_drift_ppm}
            return "PUT", "/geoemu/v1/clock", body

        await self._change_region(region, change, "the offset of its clock", request)

    async def disk(self, region: str, state: str, delay_ms: float | None = None) -> None:
        try:
            condition = DiskCondition.of(state, delay_ms)
        except ValueError as problem:
            raise Refused(f"the disk of {region}: {problem}") from None

        def change(found: RegionRecord) -> None:
            found.disk = condition

        def request(record: RunRecord) -> AdminRequest:
            disk = record.regions[region].disk
            return (
                "PUT",
                "/geoemu/v1/storage",
                asdict(disk) if disk.state == "slow" else {"state": disk.state},
            )

        await self._change_region(region, change, "the condition of its disk", request)

    async def power_loss(self, region: str) -> None:
        if await self._refuse_paused(region) == "running":
            found = self._directory.read().regions[region]
            with suppress(NoHttpResponse):  # it ends without a response, or does not listen yet
                answer = await call(found, "PUT", "/geoemu/v1/power-loss")
                raise RuntimeFailure(f"{region} could not lose power: {describe(answer)}")
        await self.kill(region)

    async def _change_region(
        self,
        region: str,
        change: Callable[[RegionRecord], None],
        what: str,
        request: Callable[[RunRecord], AdminRequest],
    ) -> None:
        """Change the record of a region, and send the change to its admin port if it runs. Raises Refused if it is
        paused."""
        await self._refuse_paused(region)
        with self._directory.edit() as record:
            change(record.regions[region])
            self._on_record_changed(record, [region])
        await self._apply(region, what, request)

    async def _apply(self, name: str, what: str, request: Callable[[RunRecord], AdminRequest]) -> None:
        """Send the request of the current record until the region has applied it, is stopping or does not run. Of two
        concurrent commands the later one wins, because the latest record is sent. Raises RuntimeFailure after
        APPLY_SECONDS, or after the time that a region may take until it is ready, if it starts and does not listen
        yet."""
        reason = ""
        starts = not self._directory.read().regions[name].was_ready
        try:
            async with asyncio.timeout(self._ready_seconds if starts else APPLY_SECONDS):
                while (await self._states())[name] == "running":  # others receive it later
                    record = self._directory.read()
                    region, sent = record.regions[name], request(record)
                    try:
                        answer = await call(region, *sent)
                    except NoHttpResponse as failure:
                        if self._directory.read().regions[name].stopped:
                            return  # it closed its admin port, and receives the record at its next start
                        reason = str(failure)
                    else:
                        if answer.status == 204 and request(self._directory.read()) == sent:
                            return
                        reason = describe(answer)
                    await asyncio.sleep(self._poll_seconds)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} did not apply {what} ({reason}): `geoemu logs {name}` shows its log"
            ) from None

    async def _refuse_paused(self, region: str) -> ProcessState:
        """Return the state of a region's program. Raises Refused if it is paused or not in the run."""
        refuse_unknown("region", region, self._directory.read().regions)
        state = (await self._states())[region]
        if state == "paused":
            raise Refused(
                f"{region} is paused and cannot receive requests: run `geoemu resume {region}` first"
            )
        return state
