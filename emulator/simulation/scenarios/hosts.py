"""Hosts that own topics, tasks, and producers that wait for exclusive access, in a simulated world. They run the same
programs as in real time (`scenarios.actors.host`, `.task`, `.exclusive_producer`), on simulated hosts that can be
killed, paused and started again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from emulator.run.history_events import Outcome
from emulator.scenarios.actors.exclusive_producer import ExclusiveProducer
from emulator.scenarios.actors.host import NativeHost
from emulator.scenarios.actors.specs import (
    ActorFailure,
    Counts,
    HostSpec,
    HostVerb,
    ProducerSpec,
    TaskSpec,
)
from emulator.scenarios.actors.task import NativeTask
from emulator.simulation.history import SimulatedHistory
from emulator.simulation.host import Host, HostDied, HostState
from emulator.simulation.world import World

FINISH_SECONDS = 2.0


class _HistoryWriter:
    def __init__(self, history: SimulatedHistory, part: HostSpec | ProducerSpec | TaskSpec) -> None:
        self._history = history
        self._part = part

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        if op == "publish":
            fields["origin_region"] = self._part.region
        self._history.note(self._part.name, op, outcome, **fields)

    def new_session(self) -> str:
        return self._history.new_session(self._part.name)


class HostedActor:
    """An actor whose program runs on one simulated host. Implements `actors.specs.Actor`."""

    def __init__(
        self, world: World, history: SimulatedHistory, part: HostSpec | ProducerSpec | TaskSpec
    ) -> None:
        self.part = part
        self.problem: str | None = None
        self._world = world
        self._writer = _HistoryWriter(history, part)
        self._host: Host | None = None
        self._program: NativeHost | ExclusiveProducer | NativeTask | None = None
        self._former_counts = Counts(region=part.region)

    @property
    def counts(self) -> Counts:
        if self._program is None:
            return self._former_counts
        counts = self._former_counts.and_then(self._program.counts)
        paused = self._host is not None and self._host.state is HostState.PAUSED
        return counts.at_rest() if paused else counts

    async def begin(self, service_url: str) -> None:
        """Boot the host if it is down, and start the program. The URL is not used: hosts connect to regions by name."""
        if self._host is None:
            self._host = self._world.client_host(f"{self.part.name}@{self.part.region}", self.part.region)
        self._host.boot()
        await self._run_on_host(self._start(self._host))

    async def finish(self) -> None:
        if self._program is not None:
            await self._run_on_host(self._program.finish())

    async def leave(self) -> None:
        self._kill_host()

    async def move(self, region: str, service_url: str) -> None:
        raise ActorFailure(f"{self.part.name} does not move")

    async def _start(self, host: Host) -> None:
        key = self.part.transaction_key if isinstance(self.part, TaskSpec) else None
        client = self._world.client_on(host, (self.part.region,), transaction_key=key)
        if isinstance(self.part, HostSpec):
            self._program = NativeHost(self.part, client, self._writer)
        elif isinstance(self.part, TaskSpec):
            self._program = NativeTask(self.part, client, self._writer)
        else:
            self._program = ExclusiveProducer(self.part, client, self._writer)
        await self._program.begin()

    async def _run_on_host(self, call: Any) -> None:
        assert self._host is not None
        try:
            await self._host.ask(call)
        except HostDied as death:
            raise ActorFailure(f"{self.part.name}: {death}") from None

    def _kill_host(self) -> None:
        """Kill the host. Requests without a response stay unknown."""
        if self._host is not None and self._program is not None:
            ended = self._former_counts.and_then(self._program.counts).ended()
            self._host.kill()
            self._former_counts, self._program = ended, None


class SimulatedRestartableActor(HostedActor):
    """An actor that the scenario can kill, stop, pause and start. Implements `actors.specs.RestartableActor`."""

    async def change(self, verb: HostVerb) -> None:
        if verb == "start":
            if self._program is None:
                await self._start_again()
            return
        if self._program is None or self._host is None:
            raise ActorFailure(f"{self.part.name} does not run: it cannot {verb}")
        if verb == "pause":
            self._host.pause()
        elif verb == "resume":
            self._host.resume()
        else:
            if verb == "stop":
                await self._finish_before_stop()
            self._kill_host()

    async def _start_again(self) -> None:
        await self.begin("")

    async def _finish_before_stop(self) -> None:
        with contextlib.suppress(TimeoutError, ActorFailure):
            async with asyncio.timeout(FINISH_SECONDS):
                await self.finish()


class SimulatedHost(SimulatedRestartableActor):
    """A host that owns topics. Implements `actors.specs.HostActor`."""

    async def join_queues(self) -> None:
        assert isinstance(self._program, NativeHost)
        await self._run_on_host(self._program.join_queues())

    async def _start_again(self) -> None:
        await super()._start_again()
        await self.join_queues()
