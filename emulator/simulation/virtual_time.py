"""Virtual time: one queue of moments for all hosts, and the wall clocks of hosts.

    while any host has ready callbacks:   a drawn host runs all its ready callbacks (a turn; takes no time)
    otherwise:                            time jumps to the next moment, and its callbacks become ready
    no callback ready, no moment left:    Deadlock

Real hosts run in no fixed order, so the seed draws the host that runs next. Time advances in jumps, except while a
program spins: then it advances a little with each turn. A program that spins forever is a Livelock.
"""

from __future__ import annotations

import gc
import sys
from asyncio.events import _set_running_loop
from collections.abc import AsyncGenerator, Callable
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import Any, Protocol

from emulator.simulation.trace import Trace

BUSY_TURNS = 1_000
"""After this number of turns of all hosts at one moment, each further turn takes BUSY_TURN_SECONDS, so that a program
may spin until an event happens."""
BUSY_TURN_SECONDS = 0.000_01
BUSY_TURNS_MAX = 1_000_000
TURNS_BETWEEN_TIDYINGS = 1 << 12
TURNS_BETWEEN_COLLECTIONS = 1 << 18


class SimulationError(Exception):
    """The simulation cannot continue. Messages of Deadlock, Livelock and OutOfTime list the programs' pending tasks."""


class Deadlock(SimulationError):
    """No host has a callback, now or later, and the main program has not ended."""


class Livelock(SimulationError):
    """Programs took more than BUSY_TURNS_MAX turns without all of them waiting."""


class OutOfTime(SimulationError):
    """The main program has not ended before its deadline."""


class UnhandledError(SimulationError):
    """A callback raised, or a task's exception was never retrieved: asyncio would only have logged it."""


class ProgramLoop(Protocol):
    """The loop of one program, as virtual time uses it."""

    name: str
    dead: bool
    tick: Callable[[], None]
    """Run one turn: all callbacks that are ready now."""

    def timer_due(self, timer: Any) -> None: ...

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> object: ...

    def create_task(self, coro: Any) -> Any: ...


class VirtualTime:
    """The clock and the scheduler of a simulation."""

    def __init__(self, random: Random, trace: Trace) -> None:
        self.now = 0.0
        """Virtual seconds since the beginning of the simulation."""
        self.trace = trace
        self.failure: BaseException | None = None
        """The error with which `run` ends after the current turn; None to continue."""
        self._draw = random.random
        self.moments: list[tuple[float, int, ProgramLoop | None, Any, Any]] = []
        """A heap of timers (when, number, loop, timer, None) and events (when, number, None, callback, arguments). The
        number keeps moments of equal time in the order in which they were added."""
        self.next_number = count().__next__
        self._cancelled_timers = 0
        self.runnable: list[ProgramLoop] = []
        """Loops with ready callbacks, each once."""
        self.running: ProgramLoop | None = None
        self._stopping = False
        self.turns = 0
        """Number of turns of all hosts so far; updated at intervals, and when `run` returns."""
        self._turns_at_collection = 0
        self._generators: dict[int, ProgramLoop] = {}
        """Loop of each asynchronous generator, by address, because generators under finalisation have no weak
        references."""

    def at(self, when: float, callback: Callable[..., None], *args: Any) -> None:
        """Schedule an event outside of programs, such as an arrival or a kernel's time-out. It cannot be cancelled."""
        heappush(self.moments, (when, self.next_number(), None, callback, args))

    def after(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        heappush(self.moments, (self.now + seconds, self.next_number(), None, callback, args))

    def stop(self) -> None:
        """Let `run` return after this turn."""
        self._stopping = True

    def run(self, deadline: float, describe_waits: Callable[[], str]) -> None:
        """Run all hosts until `stop` is called. Raises Deadlock, Livelock, OutOfTime, or `failure` once a turn
        has set it."""
        self._stopping = False
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_dropped)
        try:
            self._run(deadline, describe_waits)
        finally:
            self.running = None
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run(self, deadline: float, describe_waits: Callable[[], str]) -> None:
        runnable, draw = self.runnable, self._draw
        turns, turns_at_jump, turns_at_tidying = self.turns, self.turns, self.turns
        while not self._stopping:
            if runnable:
                choices = len(runnable)
                loop = runnable.pop() if choices == 1 else runnable.pop(int(draw() * choices))
                loop.tick()
                turns += 1
                if turns - turns_at_jump > BUSY_TURNS:
                    self.now += BUSY_TURN_SECONDS
                    self._make_due_ready()
                    if turns - turns_at_jump > BUSY_TURNS_MAX:
                        raise Livelock(
                            f"{loop.name} is busy and does not wait for anything. {describe_waits()}"
                        )
            else:
                if not self._jump(deadline):
                    if self.moments:
                        raise OutOfTime(f"the test did not end within {deadline:g} s. {describe_waits()}")
                    raise Deadlock(f"at {self.now:.6f} s no event is pending. {describe_waits()}")
                turns_at_jump = turns
                if turns - turns_at_tidying > TURNS_BETWEEN_TIDYINGS:
                    self._tidy(turns)
                    turns_at_tidying = turns
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
        self.turns = turns

    def _jump(self, deadline: float) -> bool:
        """Advance time to the next moment and make its callbacks ready. Return False if no moment is left up to the
        deadline."""
        moments = self.moments
        while moments:
            when, _, loop, what, args = moments[0]
            if loop is not None and (what._cancelled or loop.dead):
                self._cancelled_timers -= what._cancelled
                heappop(moments)
                continue
            if when > deadline:
                return False
            heappop(moments)
            if when > self.now:
                self.now = when
            if loop is None:
                what(*args)
            else:
                loop.timer_due(what)
            if moments and moments[0][0] <= self.now:
                self._make_due_ready()
            return True
        return False

    def _tidy(self, turns: int) -> None:
        """Hash the trace, and collect garbage at long intervals. Called at turns that are the same in every run of a
        seed."""
        self.turns = turns
        self.trace.flush()
        if turns - self._turns_at_collection > TURNS_BETWEEN_COLLECTIONS:
            self._turns_at_collection = turns
            gc.collect()

    def _make_due_ready(self) -> None:
        """Make all due callbacks ready."""
        moments = self.moments
        while moments and moments[0][0] <= self.now:
            _, _, loop, what, args = heappop(moments)
            if loop is None:
                what(*args)
            elif what._cancelled:
                self._cancelled_timers -= 1
            else:
                loop.timer_due(what)

    def timer_cancelled(self) -> None:
        """Count a cancelled timer. More than 100 of them are removed once they fill more than half of the heap, because
        programs cancel most of their timers."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 100 and self._cancelled_timers * 2 > len(self.moments):
            self.moments[:] = [
                moment for moment in self.moments if moment[2] is None or not moment[3]._cancelled
            ]
            heapify(self.moments)
            self._cancelled_timers = 0

    # Unfinished asynchronous generators are closed on the loop on which they began.

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.running is not None:
            self._generators[id(generator)] = self.running

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = self._generators.pop(id(generator), None)
        if loop is not None and not loop.dead:
            loop.call_soon(loop.create_task, generator.aclose())


EPOCH_MS = 1_767_225_600_000
"""Wall time at which every simulation begins: 2026-01-01 00:00:00 UTC."""


class WallClock:
    """The wall clock of a host. Calling it returns the time in milliseconds since 1970."""

    def __init__(
        self, monotonic: Callable[[], float], *, offset_ms: float = 0.0, drift_ppm: float = 0.0
    ) -> None:
        self._monotonic = monotonic
        self._anchor_seconds = monotonic()
        self._anchor_ms = EPOCH_MS + self._anchor_seconds * 1000 + offset_ms
        self._drift_ppm = drift_ppm

    def __call__(self) -> int:
        elapsed_ms = (self._monotonic() - self._anchor_seconds) * 1000  # as `exact_ms`, in one call less
        return int(self._anchor_ms + elapsed_ms * (1 + self._drift_ppm / 1_000_000))

    def exact_ms(self) -> float:
        """Return the time in milliseconds since 1970, with its fraction."""
        elapsed_ms = (self._monotonic() - self._anchor_seconds) * 1000
        return self._anchor_ms + elapsed_ms * (1 + self._drift_ppm / 1_000_000)

    @property
    def offset_ms(self) -> float:
        """Offset from virtual time in milliseconds; positive: the clock is ahead."""
        return self.exact_ms() - (EPOCH_MS + self._monotonic() * 1000)

    @property
    def drift_ppm(self) -> float:
        """Microseconds that the clock gains per second."""
        return self._drift_ppm

    @drift_ppm.setter
    def drift_ppm(self, drift_ppm: float) -> None:
        self._anchor()
        self._drift_ppm = drift_ppm

    def jump(self, milliseconds: float) -> None:
        """Set the clock forward by this many milliseconds, or back if negative."""
        self._anchor()
        self._anchor_ms += milliseconds

    def correct(self) -> None:
        """Set the clock to virtual time. It continues to drift."""
        self.jump(-self.offset_ms)

    def _anchor(self) -> None:
        self._anchor_ms = self.exact_ms()
        self._anchor_seconds = self._monotonic()
