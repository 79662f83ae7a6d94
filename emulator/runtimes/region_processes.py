"""The processes of the regions of one run: started, signalled, and waited for."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Sequence

from emulator.errors import RuntimeFailure
from emulator.run.directory import RunDirectory, RunRecord
from emulator.run.processes import ProcessIdentity, ProcessState, identify, send_signal, state_of
from emulator.runtimes.region_process import last_lines, output_log, start_region

SIGNAL_POLL_SECONDS = 0.005
STOP_SECONDS = 10.0
"""How long an orderly end may take before it becomes kill -9."""


class RegionProcesses:
    """One process per region that was started; `run.json` remembers which."""

    def __init__(self, directory: RunDirectory, program: Sequence[str]) -> None:
        self._directory = directory
        self._program = program
        self._children: list[subprocess.Popen[bytes]] = []
        """Those that this object started: dead ones stay zombies until they are polled."""

    def spawn(self, record: RunRecord, name: str) -> None:
        """Start a region's process, with the links as they are now. Called while `record` is being edited."""
        region = record.regions[name]
        folder = self._directory.region_dir(name)
        child = start_region(self._program, folder, record.links, region.clock_ahead_ms)
        self._children.append(child)
        region.process = identify(child.pid)
        region.stopped = False
        region.was_ready = False
        region.lost = False

    def state(self, record: RunRecord, name: str) -> ProcessState:
        for child in self._children:
            child.poll()
        process = record.regions[name].process
        return state_of(process) if process else "gone"

    def states(self, record: RunRecord) -> dict[str, ProcessState]:
        return {name: self.state(record, name) for name in record.regions}

    async def current_states(self) -> dict[str, ProcessState]:
        return self.states(self._directory.read())

    def signal(self, name: str, number: signal.Signals) -> bool:
        process = self._directory.read().regions[name].process
        return process is not None and send_signal(process, number)

    async def wait_for_state(self, name: str, *wanted: ProcessState) -> None:
        """Wait for what a signal brings about; the system does it at once, or the process is beyond help."""
        record = self._directory.read()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while self.state(record, name) not in wanted:
                    await asyncio.sleep(SIGNAL_POLL_SECONDS)
        except TimeoutError:
            process = record.regions[name].process
            raise RuntimeFailure(
                f"{name} (process {process.pid if process else '-'}) is not {' or '.join(wanted)} after "
                f"{STOP_SECONDS:g} s: look at it with `ps`"
            ) from None

    async def end(self, name: str) -> bool:
        """SIGTERM and, if that does not help in time, kill -9: then True."""
        self.signal(name, signal.SIGTERM)
        self.signal(name, signal.SIGCONT)  # a paused one finds the SIGTERM when it thaws
        try:
            await self.wait_for_state(name, "gone")
        except RuntimeFailure:
            self.signal(name, signal.SIGKILL)
            await self.wait_for_state(name, "gone")
            return True
        return False

    async def describe_end(self, name: str, state: ProcessState) -> str:
        """Why a region that was to become ready never will."""
        record = self._directory.read()
        if state == "paused":
            return f"{name} was paused before it was ready: `geoemu resume {name}`"
        if record.regions[name].stopped:
            return f"{name} was stopped before it was ready"
        process = record.regions[name].process
        codes = [child.returncode for child in self._children if process and child.pid == process.pid]
        how = f" with exit code {codes[0]}" if codes and codes[0] is not None else ""
        log = output_log(self._directory.region_dir(name))
        return f"{name} ended{how} before it was ready; the last lines of {log}:\n{last_lines(log)}"

    def stopped_itself(self, process: ProcessIdentity, name: str) -> bool:
        """Whether it stopped gracefully by another command: `pulsar-admin brokers shutdown`, SIGTERM."""
        try:
            said = json.loads((self._directory.region_dir(name) / "ready.json").read_text())
        except (OSError, ValueError):
            return False
        return said.get("pid") == process.pid and said.get("stopped") is True

    async def stop(self, names: Sequence[str]) -> None:
        with self._directory.edit() as record:
            alive = [name for name in names if self.state(record, name) != "gone"]
            for name in alive:
                record.regions[name].stopped = True
        slow = [
            name
            for name, slow in zip(alive, await asyncio.gather(*map(self.end, alive)), strict=True)
            if slow
        ]
        if slow:
            with self._directory.edit() as record:
                for name in slow:
                    record.regions[name].stopped = False
            raise RuntimeFailure(
                f"{' and '.join(slow)} did not end within {STOP_SECONDS:g} s and had to be killed: "
                f"`geoemu logs {slow[0]}` shows its last log lines"
            )
