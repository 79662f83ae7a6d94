"""A simulated host: a machine with a kernel, a wall clock and a program that can be paused, killed and started again.

    UP ──pause──▶ PAUSED ──resume──▶ UP          SIGSTOP, SIGCONT: the kernel and time continue
    UP, PAUSED ──kill──▶ DOWN ──start──▶ UP      kill -9: the kernel closes or resets all connections
    UP, PAUSED ──power_off──▶ DOWN               the machine loses power: peers receive nothing

An *incarnation* of a host lasts from a start to the next kill. Each has its own loop and random source; name, location
and clock stay the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from random import Random
from typing import Any, Protocol, TypeVar

from emulator.simulation.loop import HostLoop
from emulator.simulation.network import SimulatedNetwork
from emulator.simulation.virtual_time import VirtualTime, WallClock

T = TypeVar("T")

DRIVER = "driver"
"""Name of the host that runs the main program of a simulation. Faults cannot be injected into this host."""
FIRST_PROCESS_ID = 1000


class HostState(Enum):
    UP = "its program runs"
    PAUSED = "its program is frozen; its kernel goes on"
    DOWN = "its program is dead"


class HostDied(Exception):
    """The host died before it returned a result."""


class HostOwner(Protocol):
    """The parts of a simulation that a host uses."""

    time: VirtualTime
    network: SimulatedNetwork

    def random(self, purpose: str) -> Random: ...

    def end_program(self, loop: HostLoop) -> None:
        """Stop the loop of a program that was killed."""
        ...

    def handle_exception(self, host: Host, context: dict[str, Any]) -> None:
        """Handle an error as asyncio's exception handler, for programs that set none."""
        ...


class Host:
    def __init__(self, simulation: HostOwner, name: str, index: int, location: str) -> None:
        self.name = name
        self.index = index
        self.location = location
        """The end of links at which the host is."""
        self.state = HostState.UP
        self.incarnation = 0
        """Number of the current or, while the host is down, the last incarnation, from 0."""
        self.network = simulation.network.add_host(name, index, location)
        self.wall_clock_ms = WallClock(lambda: simulation.time.now)
        self.random: Random
        """Random source of the current incarnation."""
        self.loop: HostLoop
        """Loop of the current incarnation."""
        self._simulation = simulation
        self._on_kill: list[Callable[[], None]] = []
        self._pending_results: dict[asyncio.Future[Any], None] = {}
        """Futures of `ask` calls that wait for the current incarnation."""
        self._begin_incarnation()

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.state.name}>"

    @property
    def process_id(self) -> int:
        """The value that `os.getpid()` returns in the program."""
        return FIRST_PROCESS_ID * (self.index + 1) + self.incarnation

    # The program.

    def start(self, program: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start `program` in the current incarnation, or in a new one if the host is down. It begins at the host's
        next turn."""
        self.boot()
        return self.loop.create_task(program, name=name)

    def boot(self) -> None:
        """Begin a new incarnation without a program. No effect unless the host is down."""
        if self.state is HostState.DOWN:
            self._note("starts again")
            self.incarnation += 1
            self._begin_incarnation()

    async def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this host and return its result to a caller on any host. Raises HostDied if this host is
        down or is killed meanwhile."""
        if self.state is HostState.DOWN:
            coroutine.close()
            raise HostDied(f"host {self.name!r} is down")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._pending_results[result] = None

        def done(task: asyncio.Task[T]) -> None:
            if result.done():
                return
            if task.cancelled():
                result.cancel()
            elif (error := task.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())

        self.loop.create_task(coroutine).add_done_callback(done)
        try:
            return await result
        finally:
            self._pending_results.pop(result, None)

    def on_kill(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs after each kill of the program and each power-off."""
        self._on_kill.append(callback)

    # Faults.

    def kill(self) -> None:
        """Kill the program with SIGKILL. The kernel resets its connections, as far as the links allow."""
        self._die(silently=False)

    def power_off(self) -> None:
        """Power off the machine. Its peers receive nothing, and detect it by timeouts."""
        self._die(silently=True)

    def pause(self) -> None:
        assert self.name != DRIVER, "faults cannot be injected into the driver"
        if self.state is HostState.UP:
            self._note("is paused")
            self.state = HostState.PAUSED
            self.loop.pause()

    def resume(self) -> None:
        if self.state is HostState.PAUSED:
            self._note("is resumed")
            self.state = HostState.UP
            self.loop.resume()

    def signal(self, number: int) -> None:
        """Deliver a signal to the program's handler; a program without a handler is killed."""
        if self.state is not HostState.DOWN and not self.loop.signal(number):
            self.kill()

    def _die(self, *, silently: bool) -> None:
        if self.state is HostState.DOWN:
            return
        assert self.name != DRIVER, "faults cannot be injected into the driver"
        self._note("loses power" if silently else "is killed")
        self.state = HostState.DOWN
        self._simulation.end_program(self.loop)
        self.network.program_died(silently=silently)
        for callback in self._on_kill:
            callback()
        pending, self._pending_results = self._pending_results, {}
        for result in pending:
            if not result.done():
                result.set_exception(HostDied(f"host {self.name!r} died"))

    def _begin_incarnation(self) -> None:
        self.state = HostState.UP
        self.random = self._simulation.random(f"host {self.name} life {self.incarnation}")
        self.loop = HostLoop(self._simulation.time, self)  # type: ignore[abstract]
        self.network.loop = self.loop
        self.network.power_on()

    def _note(self, what: str) -> None:
        time = self._simulation.time
        time.trace.event(time.now, self.name, what)

    # Called by the loop.

    def handle_exception(self, context: dict[str, Any]) -> None:
        self._simulation.handle_exception(self, context)
