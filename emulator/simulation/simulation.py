"""A world of simulated hosts, from one seed.

    with Simulation(seed=7) as simulation:
        us, eu = simulation.host("us"), simulation.host("eu")
        us.start(server(us))

        async def main() -> None:
            assert await eu.ask(client("us", 6650)) == "pong"
            simulation.network.cut("us", "eu")
            ...

        simulation.run(main())

The main program runs on a separate host, the driver, which has no faults and injects the faults of other hosts.
Programs use the environment of their host: `host.network`, `host.wall_clock_ms`, `host.random`, and a disk from
`simulation.disk(host.name)`.

While a simulation runs, `emulator.simulation.determinism_guard` rejects its programs' access to real clocks, sockets,
threads, files and unseeded random numbers (unless `guarded=False`).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from emulator.simulation.determinism_guard import Guard, outside
from emulator.simulation.disk import SimulatedDisk
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.host import DRIVER, Host, HostState
from emulator.simulation.link import NetworkSettings
from emulator.simulation.loop import HostLoop, innermost_await, tasks_of
from emulator.simulation.network import SimulatedNetwork
from emulator.simulation.remote_log import RemoteFaults, RemoteLog
from emulator.simulation.trace import Listener, Trace
from emulator.simulation.virtual_time import UnhandledError, VirtualTime

T = TypeVar("T")

MAIN_SECONDS_MAX = 3600.0


class ProgramError(NamedTuple):
    """An error of a program that no code handled; asyncio would only have logged it."""

    at_seconds: float
    host: str
    message: str
    error: BaseException | None


class Simulation:
    def __init__(
        self,
        seed: int | str,
        *,
        network: NetworkSettings | None = None,
        detail: bool = False,
        listener: Listener | None = None,
        strict: bool = True,
        guarded: bool = True,
    ) -> None:
        self.seed = seed
        self.trace = Trace(detail=detail, listener=listener)
        self.time = VirtualTime(self.random("turns"), self.trace)
        self.network = SimulatedNetwork(self.time, self.random("network"), network)
        self.program_errors: list[ProgramError] = []
        """Errors that no code of a program handled. With `strict`, the first one ends the run."""
        self._strict = strict
        self._guard = Guard() if guarded else None
        self._hosts: dict[str, Host] = {}
        self._disks: dict[str, SimulatedDisk] = {}
        self._ended_programs: list[tuple[HostLoop, list[asyncio.Task[Any]]]] = []
        """Loops and tasks of killed programs. They are referenced until `close`, because finalising a coroutine runs
        its `finally` blocks."""
        self._closed = False
        self.driver = self.host(DRIVER)
        self.driver.loop.drive = self._drive

    # Hosts, disks and random sources.

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning of the simulation."""
        return self.time.now

    def host(self, name: str, location: str | None = None) -> Host:
        """Return the host of that name, created on first use. `location` defaults to the host's name."""
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = Host(self, name, len(self._hosts), location or name)
        assert location is None or host.location == location, (
            f"host {name!r} is at {host.location!r}, not {location!r}"
        )
        return host

    def disk(
        self, host: str, faults: DiskFaults | None = None, *, type_: type[SimulatedDisk] = SimulatedDisk
    ) -> SimulatedDisk:
        """Return the disk of a host, created on first use; `faults` replace its former ones. It crashes when the host's
        program is killed, and outlives it."""
        disk = self._disks.get(host)
        if disk is None:
            disk = self._disks[host] = type_(self.random(f"disk {host}"), faults)
            disk.on_event = lambda what: self.trace.event(self.time.now, host, what)
            self.host(host).on_kill(disk.crash)
        elif faults is not None:
            disk.faults = faults
        return disk

    def remote_log(
        self, name: str, faults: RemoteFaults | None = None, *, type_: type[RemoteLog] = RemoteLog
    ) -> RemoteLog:
        """Create a remote log, which belongs to no host. The caller must report killed programs with `program_died`."""
        log = type_(self.random(f"log {name}"), faults or RemoteFaults(), self.driver.loop)
        log.on_event = lambda what: self.trace.event(self.time.now, f"log of {name}", what)
        return log

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts in order of creation; the driver is the first."""
        return tuple(self._hosts.values())

    def random(self, purpose: str) -> Random:
        """Return a new random source, derived from the seed and the purpose. Draws from one do not affect others."""
        return Random(f"{self.seed}/{purpose}")

    # Running.

    def run(self, main: Coroutine[Any, Any, T], *, within_seconds: float = MAIN_SECONDS_MAX) -> T:
        """Run `main` on the driver until it ends, and return its result. Raises SimulationError: OutOfTime after
        `within_seconds` virtual seconds."""
        task = self.driver.loop.create_task(main, name="main")
        self._drive(task, self.now + within_seconds)
        return task.result()

    def run_for(self, seconds: float) -> None:
        """Run all hosts for this many virtual seconds."""
        self.run(asyncio.sleep(seconds), within_seconds=seconds)

    async def until(
        self, condition: Callable[[], bool], *, within_seconds: float = 60.0, every_seconds: float = 0.01
    ) -> None:
        """Wait, in the main program, until the condition holds. Raises TimeoutError after `within_seconds`."""
        deadline = self.now + within_seconds
        while not condition():
            if self.now >= deadline:
                raise TimeoutError(
                    f"condition not met within {within_seconds:g} virtual seconds. {self.describe_waits()}"
                )
            await asyncio.sleep(every_seconds)

    def at(self, seconds: float, action: Callable[..., Any], *arguments: Any) -> None:
        """Let the driver call `action` at this virtual time. May be called before or during `run`."""
        self.driver.loop.call_at(seconds, action, *arguments)

    def outside(self) -> AbstractContextManager[None]:
        """Let the main program call real functions within the `with` block. The block must not contain `await`."""
        return outside()

    def _drive(self, main: asyncio.Future[Any], deadline: float | None = None) -> None:
        assert not self._closed, "the simulation is closed"
        if deadline is None:
            deadline = self.now + MAIN_SECONDS_MAX
        main.add_done_callback(lambda _: self.time.stop())
        guard = self._guard
        if guard is not None:
            guard.activate()
        collecting = gc.isenabled()
        gc.disable()  # finalisers run at fixed moments, not at an arbitrary allocation
        try:
            self.time.run(deadline, self.describe_waits)
        finally:
            if collecting:
                gc.enable()
            if guard is not None:
                guard.deactivate()

    def describe_waits(self) -> str:
        """Return the pending tasks of every program, and the state of hosts, as text for error messages."""
        lines = [""]
        for host in self._hosts.values():
            tasks = tasks_of(host.loop) if host.state is not HostState.DOWN else []
            if tasks or host.state is not HostState.UP:
                lines.append(f"  {host.name} ({host.state.value})")
                lines += [f"    {innermost_await(task)}" for task in tasks]
        return "\n".join(lines)

    # Errors of programs.

    def handle_exception(self, host: Host, context: dict[str, Any]) -> None:
        """Record an error of a program without an exception handler; with `strict`, end the run."""
        error = context.get("exception")
        self.program_errors.append(ProgramError(self.now, host.name, context["message"], error))
        if self._strict and self.time.failure is None:
            failure = UnhandledError(
                f"host {host.name!r} at {self.now:.6f} s: {context['message']}: {error!r}"
            )
            failure.__cause__ = error
            self.time.failure = failure

    # The end.

    def end_program(self, loop: HostLoop) -> None:
        """Stop the loop of a killed program, and keep its tasks referenced until `close`."""
        tasks = tasks_of(loop)
        loop.kill()
        self._ended_programs.append((loop, tasks))

    def close(self) -> None:
        """End all programs and release their tasks. `finally` blocks of killed programs run only now, without an effect
        on any host."""
        if self._closed:
            return
        self._closed = True
        for host in self._hosts.values():
            if host.state is not HostState.DOWN:
                self.end_program(host.loop)
        tasks = [task for loop, pending in self._ended_programs for task in (*pending, *loop.late_tasks)]
        unraisable = sys.unraisablehook
        sys.unraisablehook = _ignore_unraisable
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in tasks:
                    _close_coroutine(task)
                self._ended_programs.clear()
                self._hosts.clear()
                del tasks
        finally:
            sys.unraisablehook = unraisable

    def __enter__(self) -> Simulation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _close_coroutine(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert coroutine is not None
    try:
        coroutine.close()
    except BaseException:  # raised by a `finally` or `except` block of a killed program: no caller is left
        return


def _ignore_unraisable(unraisable: Any) -> None:
    pass
