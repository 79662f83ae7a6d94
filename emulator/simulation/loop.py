"""asyncio under virtual time: one event loop for each simulated program, one queue of moments for all.

A simulated host is a program of its own, so it has a loop of its own: its ready callbacks run in the order of their
`call_soon`, as asyncio guarantees, and `asyncio.get_running_loop()` is the loop of the running host. Nothing is
guaranteed across hosts, so the host that runs next is drawn from the seed:

    while any host has ready callbacks:   a drawn host runs all its ready callbacks (a turn; takes no time)
    otherwise:                            time jumps to the next moment, and its callbacks become ready
    nothing ready and no moment left:     Deadlock

Time only jumps; it advances slowly under a program that spins. A program that spins forever is a Livelock.

Killing a host means that its callbacks do not run any more. Nothing is cancelled, no `finally` runs, as after
`kill -9`. A dead host's running callback has no effect on other hosts: its loop, transports and stores accept its calls
and drop them.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
from asyncio.events import _set_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from emulator.simulation.trace import HOST_STEP, Trace, callback_name

if TYPE_CHECKING:
    from emulator.simulation.clocks import WallClock
    from emulator.simulation.network import HostNetwork, SimulatedServer

T = TypeVar("T")

BUSY_TURNS = 1_000
"""A program is busy after this number of turns at one moment: from then on each turn takes BUSY_TURN_SECONDS, so that
a program may spin until an event happens."""
BUSY_TURN_SECONDS = 0.000_01
BUSY_TURNS_MAX = 1_000_000
TURNS_BETWEEN_TIDYINGS = 1 << 12
TURNS_BETWEEN_COLLECTIONS = 1 << 18
EXECUTOR_STEP_SECONDS_MAX = 0.001


class SimulationError(Exception):
    """The simulation cannot go on. The message contains the state of every host."""


class Deadlock(SimulationError):
    """No host has a callback, now or later, and the story has not ended."""


class Livelock(SimulationError):
    """A program keeps itself busy without letting time pass."""


class OutOfTime(SimulationError):
    """The story has not ended when it should have."""


class UnhandledError(SimulationError):
    """A callback raised, or a task's exception was never retrieved: asyncio would only have logged it."""


class LoopHandle(asyncio.Handle):
    """As asyncio's, without its debugging."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: HostLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class TimerHandle(asyncio.TimerHandle):
    """As asyncio's, without its debugging and comparisons."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: HostLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)


class Future(asyncio.Future[Any]):
    """As asyncio's, but a set of them has the same order in every run."""

    __slots__ = ("_number",)
    _number: int
    """Drawn when it is first put into a set, which few ever are."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop: Any = self._loop
            self._number = loop.next_number()
            return self._number


class Task(asyncio.Task[Any]):
    """As asyncio's, but a set of them has the same order in every run, and so have their names."""

    __slots__ = ("_number",)

    def __init__(
        self, coro: Coroutine[Any, Any, Any], loop: HostLoop, name: str | None, context: Context | None
    ) -> None:
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, name=name or f"Task-{self._number}", context=context)

    def __hash__(self) -> int:
        return self._number


class VirtualTime:
    """Decides what happens next."""

    def __init__(self, random: Random, trace: Trace) -> None:
        self.now = 0.0
        """Virtual seconds since the beginning."""
        self.trace = trace
        self.failure: BaseException | None = None
        """Set by who finds that the simulation must not go on; ends `run` after the turn."""
        self._draw = random.random
        self._moments: list[tuple[float, int, HostLoop | None, Any, Any]] = []
        """A heap of (when, number, loop, timer, -) and (when, number, None, callback, arguments). The number
        makes equal moments keep the order in which they were named."""
        self.next_number = count().__next__
        self._cancelled_timers = 0
        self._runnable: list[HostLoop] = []
        """Loops with ready callbacks, each once."""
        self._running: HostLoop | None = None
        self._stopping = False
        self.turns = 0
        """Turns of all hosts so far. Updated now and then."""
        self._turns_at_collection = 0
        self._generators: dict[int, HostLoop] = {}
        """By address: a generator that is being dropped has no weak references any more."""

    def at(self, when: float, callback: Callable[..., None], *args: Any) -> None:
        """Something that no program does: bytes arrive, a time-out of a kernel. Cannot be taken back."""
        heappush(self._moments, (when, self.next_number(), None, callback, args))

    def after(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        heappush(self._moments, (self.now + seconds, self.next_number(), None, callback, args))

    def stop(self) -> None:
        """`run` returns after this turn."""
        self._stopping = True

    def run(self, deadline: float, who_waits: Callable[[], str]) -> None:
        """Let things happen until `stop`. Raises when that will not be, or not before the deadline."""
        self._stopping = False
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_dropped)
        try:
            self._run(deadline, who_waits)
        finally:
            self._running = None
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run(self, deadline: float, who_waits: Callable[[], str]) -> None:
        runnable, draw = self._runnable, self._draw
        turns, turns_at_jump, turns_at_tidying = self.turns, self.turns, self.turns
        while not self._stopping:
            if runnable:
                choices = len(runnable)
                loop = runnable.pop() if choices == 1 else runnable.pop(int(draw() * choices))
                loop.tick()
                turns += 1
                if turns - turns_at_jump > BUSY_TURNS:
                    self.now += BUSY_TURN_SECONDS
                    self._let_due()
                    if turns - turns_at_jump > BUSY_TURNS_MAX:
                        raise Livelock(f"{loop.name} is busy and does not wait for anything. {who_waits()}")
            else:
                if not self._jump(deadline):
                    if self._moments:
                        raise OutOfTime(f"the test did not end within {deadline:g} s. {who_waits()}")
                    raise Deadlock(f"at {self.now:.6f} s no event is pending. {who_waits()}")
                turns_at_jump = turns
                if turns - turns_at_tidying > TURNS_BETWEEN_TIDYINGS:
                    self._tidy(turns)
                    turns_at_tidying = turns
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
        self.turns = turns

    def _jump(self, deadline: float) -> bool:
        """Advance time to the next moment and make its callbacks ready. False: there is none before the deadline."""
        moments = self._moments
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
                self._let_due()
            return True
        return False

    def _tidy(self, turns: int) -> None:
        """From time to time. By the number of turns, so that every run of a seed does it at the same ones."""
        self.turns = turns
        self.trace.flush()
        if turns - self._turns_at_collection > TURNS_BETWEEN_COLLECTIONS:
            self._turns_at_collection = turns
            gc.collect()

    def _let_due(self) -> None:
        """Make all due callbacks ready."""
        moments = self._moments
        while moments and moments[0][0] <= self.now:
            _, _, loop, what, args = heappop(moments)
            if loop is None:
                what(*args)
            elif what._cancelled:
                self._cancelled_timers -= 1
            else:
                loop.timer_due(what)

    def timer_cancelled(self) -> None:
        """Programs set far more deadlines than they miss: sweep them out before they fill the heap."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 100 and self._cancelled_timers * 2 > len(self._moments):
            self._moments[:] = [
                moment for moment in self._moments if moment[2] is None or not moment[3]._cancelled
            ]
            heapify(self._moments)
            self._cancelled_timers = 0

    # Asynchronous generators that are dropped half way belong to the loop they began on.

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._running is not None:
            self._generators[id(generator)] = self._running

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = self._generators.pop(id(generator), None)
        if loop is not None and not loop.dead:
            loop.call_soon(loop.create_task, generator.aclose())


class _Void(list[Any]):
    """Where the callbacks of the dead go."""

    def append(self, _: Any) -> None:
        pass


class LoopOwner(Protocol):
    """What a loop needs to know of the host it belongs to."""

    name: str
    index: int
    """Small number, in order of creation."""
    network: HostNetwork
    random: Random
    wall_clock_ms: WallClock

    @property
    def process_id(self) -> int: ...

    def complain(self, context: dict[str, Any]) -> None:
        """asyncio's exception handler, if the program has set none."""
        ...


class HostLoop(asyncio.AbstractEventLoop):
    """The event loop of one life of one host. Driven by VirtualTime; cannot be run by itself, but for the driver's."""

    def __init__(self, time: VirtualTime, owner: LoopOwner) -> None:
        self.name = owner.name
        self.dead = False
        self.owner = owner
        self.paused = False
        self.drive: Callable[[asyncio.Future[Any]], None] | None = None
        """Runs the whole simulation until the future is done. Only the driver's loop has it."""
        self.tick = self._tick_in_detail if time.trace.detail else self._tick
        self._time = time
        self._steps = time.trace.steps
        self._step = owner.index * HOST_STEP
        self._ready: list[LoopHandle | TimerHandle] = []
        self._batch: list[LoopHandle | TimerHandle] = []
        """What the current turn runs."""
        self._overdue: list[TimerHandle] = []
        """Timers that came due during a pause. A program that wakes up looks at its sockets first."""
        self._runnable = time._runnable
        self.next_number = time.next_number
        self._queued = False
        """Invariant: while neither paused nor dead, true exactly when in `_runnable`. Otherwise always true."""
        self.stillborn: list[asyncio.Task[Any]] = []
        """Tasks that were created when this was dead already."""
        self._thread_id = threading.get_ident()
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._signal_handlers: dict[int, LoopHandle] = {}
        self._executor_free_at = 0.0
        self._debug = False

    def __repr__(self) -> str:
        return f"<HostLoop {self.name} at {self._time.now:.6f} s>"

    # One turn.

    def _tick(self) -> None:
        """Run one turn: all callbacks that are ready now."""
        self._queued = False
        self._batch = batch = self._ready
        self._ready = []
        time = self._time
        if time._running is not self:
            time._running = self
            _set_running_loop(self)
        self._steps += (time.now, self._step + len(batch))
        for handle in batch:
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._callback_failed(handle, error)
        batch.clear()  # drop references to executed callbacks now, not at a later turn

    def _tick_in_detail(self) -> None:
        for handle in self._ready:
            if not handle._cancelled:
                self._time.trace.callback(self._time.now, self.name, handle._callback)
        self._tick()

    def _callback_failed(self, handle: LoopHandle | TimerHandle, error: BaseException) -> None:
        name = callback_name(handle._callback) if handle._callback is not None else "a cancelled callback"
        self.call_exception_handler({"message": f"{name} raised", "exception": error, "handle": handle})

    def fail(self, error: BaseException) -> None:
        """The simulation must not go on after this turn."""
        if self._time.failure is None:
            self._time.failure = error

    def _wake(self) -> None:
        if not self._queued:
            self._queued = True
            self._runnable.append(self)

    def timer_due(self, timer: TimerHandle) -> None:
        timer._scheduled = False
        if self.paused:
            self._overdue.append(timer)
            return
        self._ready.append(timer)
        if not self._queued:
            self._queued = True
            self._runnable.append(self)

    # Life of the program. Called by its host.

    def pause(self) -> None:
        """SIGSTOP: nothing runs until `resume`; what becomes ready waits."""
        if not self.paused and not self.dead:
            self.paused = True
            self._leave_the_line()

    def resume(self) -> None:
        if self.paused and not self.dead:
            self.paused = False
            self._ready += self._overdue
            self._overdue.clear()
            self._queued = False
            if self._ready:
                self._wake()

    def kill(self) -> None:
        """Nothing of this program runs any more."""
        self.dead = True
        self._leave_the_line()
        for handle in self._batch:  # if it is its own turn in which it dies
            handle._cancelled = True
        self._ready = self._batch = _Void()
        self._overdue = _Void()

    def _leave_the_line(self) -> None:
        if self in self._runnable:
            self._runnable.remove(self)
        self._queued = True

    def signal(self, number: int) -> bool:
        """Deliver a signal. False: the program has no handler for it."""
        handle = self._signal_handlers.get(number)
        if handle is None:
            return False
        self.call_soon(handle._callback, *handle._args)
        return True

    # Callbacks and timers.

    def time(self) -> float:
        return self._time.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> LoopHandle:
        handle = LoopHandle(callback, args, self, context)
        self._ready.append(handle)
        if not self._queued:
            self._queued = True
            self._runnable.append(self)
        return handle

    def ready(self, handle: LoopHandle) -> None:
        """As `call_soon`, with a handle made before: for what a kernel wakes its program with again and again."""
        self._ready.append(handle)
        if not self._queued:
            self._queued = True
            self._runnable.append(self)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> LoopHandle:
        assert threading.get_ident() == self._thread_id, "a simulation has one thread"
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        time = self._time
        timer = TimerHandle(time.now + delay, callback, args, self, context)
        heappush(time._moments, (timer._when, time.next_number(), self, timer, None))
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        time = self._time
        heappush(time._moments, (when, time.next_number(), self, timer, None))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._time.timer_cancelled()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """The call becomes one step on this loop, a little later. Steps keep their order, as with one worker."""
        future: asyncio.Future[T] = self.create_future()

        def step() -> None:
            if future.cancelled():
                return
            try:
                outcome = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(outcome)

        delay = self.owner.random.random() * EXECUTOR_STEP_SECONDS_MAX
        self._executor_free_at = max(self._executor_free_at, self._time.now + delay)
        self.call_at(self._executor_free_at, step)
        return future

    def set_default_executor(self, executor: Any) -> None:
        pass

    # Futures and tasks.

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        if self._task_factory is None:
            task = Task(coro, self, name, context)
            if self.dead:
                self.stillborn.append(task)
            return task
        keywords = {} if context is None else {"context": context}
        made: asyncio.Task[T] = self._task_factory(self, coro, **keywords)
        if name is not None:
            made.set_name(name)
        return made

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    # The network, as far as it is known by names.

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **options: Any,
    ) -> SimulatedServer:
        _refuse_tls(ssl)
        return self.owner.network.open_server(protocol_factory, host, port or 0)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        _refuse_tls(ssl)
        assert host is not None, "the simulated network needs a host and a port"
        assert port is not None, "the simulated network needs a host and a port"
        return await self.owner.network.dial(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        self.owner.network.resolve(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        return sockaddr[0], str(sockaddr[1])

    # Signals. `Host.signal` delivers them.

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        if sig in (signal.SIGKILL, signal.SIGSTOP):
            raise RuntimeError(f"sig {sig} cannot be caught")
        self._signal_handlers[sig] = LoopHandle(callback, args, self, None)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signal_handlers.pop(sig, None) is not None

    # What went wrong.

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.owner.complain(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        pass

    # Running. The driver's loop runs the simulation; that makes `asyncio.Runner(loop_factory=...)` work.

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        if self.drive is None:
            raise RuntimeError(f"{self!r} runs only as part of its simulation")
        task = asyncio.ensure_future(future, loop=self)
        self.drive(task)
        return task.result()

    def run_forever(self) -> None:
        raise RuntimeError("a simulation runs until its main coroutine ends; see Simulation.run")

    def stop(self) -> None:
        self._time.stop()

    def is_running(self) -> bool:
        return self._time._running is not None

    def is_closed(self) -> bool:
        return self.dead

    def close(self) -> None:
        """The simulation closes its loops."""

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass


def _refuse_tls(ssl: Any) -> None:
    if ssl:
        raise NotImplementedError("the simulated network has no TLS")


def where_it_waits(task: asyncio.Task[Any]) -> str:
    """`name at file:line (function)`: the innermost await of a task."""
    awaited: Any = task.get_coro()
    place = "?"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = frame or getattr(awaited, "ag_frame", None)
        if frame is not None:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_qualname})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{task.get_name()} at {place}"


def tasks_of(loop: HostLoop) -> list[asyncio.Task[Any]]:
    """Unfinished tasks of a loop, oldest first unless they have names."""
    return sorted(asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name()))
