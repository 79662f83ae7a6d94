"""A host or a task in a process of its own, which can be killed, frozen and started again. `host_actor.py` is the
program."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from emulator.scenarios.actor_process import ActorProcess
from emulator.scenarios.workload import ActorFailure, Counts, HostPart, HostVerb, TaskPart


class OwnClientProcess(ActorProcess):
    """One that works with our own client."""

    module = "emulator.scenarios.host_actor"


class MortalProcess(OwnClientProcess):
    """One host or task: all its lives."""

    def __init__(self, part: HostPart | TaskPart, run_dir: Path) -> None:
        super().__init__(part, run_dir)
        self._service_url = ""
        self._former_lives = Counts(region=part.region)
        self._paused = False

    @property
    def counts(self) -> Counts:
        counts = self._former_lives.and_then(super().counts)
        return counts if self._lives and not self._paused else counts.at_rest()

    async def begin(self, service_url: str) -> None:
        self._service_url = service_url
        await super().begin(service_url)

    async def finish(self) -> None:
        if self._lives:
            await super().finish()

    async def leave(self) -> None:
        self._thaw()
        await super().leave()

    async def change(self, verb: HostVerb) -> None:
        if verb == "start":
            if not self._lives:
                await self._live_again()
            return
        if not self._lives:
            raise ActorFailure(f"{self._part.name} is not running: cannot {verb} it")
        if verb == "pause":
            self._paused = True
            self._signal(signal.SIGSTOP)
        elif verb == "resume":
            self._thaw()
        else:
            await self._end(orderly=verb == "stop")

    async def _live_again(self) -> None:
        await self.begin(self._service_url)

    async def _end(self, *, orderly: bool) -> None:
        self._leaving = True
        if orderly:
            await self.leave()
        else:
            self._signal(signal.SIGKILL)
        assert self._reading is not None
        await asyncio.wait({self._reading})
        self._paused = False
        self._former_lives = self._former_lives.and_then(super().counts).ended()
        self._counts = Counts(region=self._part.region)

    def _thaw(self) -> None:
        self._paused = False
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._lives:
            self._process.send_signal(number)


class HostProcess(MortalProcess):
    """One host."""

    async def line_up(self) -> None:
        await self._command("line_up")

    async def _live_again(self) -> None:
        await super()._live_again()
        await self.line_up()
