"""asyncio under virtual time: the event loop of one simulated program.

Each simulated host has its own loop, and `asyncio.get_running_loop()` returns the loop of the running host. If a
callback kills its own host, the rest of the callback has no effect on other hosts: the host's loop, transports and
stores accept its calls and drop them.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, Protocol, TypeVar

from emulator.net.network import Network
from emulator.simulation.scheduler import LoopHandle, ProgramScheduler
from emulator.simulation.virtual_time import VirtualTime, WallClock

T = TypeVar("T")

EXECUTOR_STEP_SECONDS_MAX = 0.001


class Future(asyncio.Future[Any]):
    """asyncio's Future with a hash that is the same in every run, so that sets of futures have a fixed order."""

    __slots__ = ("_number",)
    _number: int
    """The hash; assigned when it is first needed, because few futures are put into sets."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop: Any = self._loop
            self._number = loop.next_number()
            return self._number


class Task(asyncio.Task[Any]):
    """asyncio's Task with a hash and a default name that are the same in every run."""

    __slots__ = ("_number",)

    def __init__(
        self, coro: Coroutine[Any, Any, Any], loop: HostLoop, name: str | None, context: Context | None
    ) -> None:
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, name=name or f"Task-{self._number}", context=context)

    def __hash__(self) -> int:
        return self._number


class LoopOwner(Protocol):
    """The parts of a host that its loop uses."""

    name: str
    index: int
    """Number of the host in order of creation, from 0."""
    random: Random
    wall_clock_ms: WallClock

    @property
    def network(self) -> Network: ...

    @property
    def process_id(self) -> int: ...

    def handle_exception(self, context: dict[str, Any]) -> None:
        """Handle an error as asyncio's exception handler, for programs that set none."""
        ...


class HostLoop(ProgramScheduler):
    """The event loop of one incarnation of a host. VirtualTime runs its callbacks; only on the driver's loop may
    `run_until_complete` be called."""

    def __init__(self, time: VirtualTime, owner: LoopOwner) -> None:
        super().__init__(time, owner.name, owner.index)
        self.owner = owner
        self.drive: Callable[[asyncio.Future[Any]], None] | None = None
        """Run the whole simulation until the future is done. None on all loops except the driver's."""
        self.late_tasks: list[asyncio.Task[Any]] = []
        """Tasks that were created after the program was killed."""
        self._thread_id = threading.get_ident()
        self._exception_handler: Any = None
        self._signal_handlers: dict[int, LoopHandle] = {}
        self._executor_free_at = 0.0

    # Callbacks of other threads, futures and tasks.

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> LoopHandle:
        assert threading.get_ident() == self._thread_id, "a simulation has one thread"
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the call as a callback of this loop after a drawn delay, in call order, as an executor with one worker
        does."""
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

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = Task(coro, self, name, context)
        if self.dead:
            self.late_tasks.append(task)
        return task

    # The network, addressed by host names.

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **options: Any,
    ) -> Any:
        _refuse_tls(ssl)
        return await self.owner.network.listen(protocol_factory, host or "", port or 0)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        _refuse_tls(ssl)
        assert host is not None, "the simulated network needs a host and a port"
        assert port is not None, "the simulated network needs a host and a port"
        return await self.owner.network.connect(protocol_factory, host, port)

    # Signals. `Host.signal` delivers them.

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        if sig in (signal.SIGKILL, signal.SIGSTOP):
            raise RuntimeError(f"sig {sig} cannot be caught")
        self._signal_handlers[sig] = LoopHandle(callback, args, self, None)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signal_handlers.pop(sig, None) is not None

    def signal(self, number: int) -> bool:
        """Deliver a signal. False: the program has no handler for it."""
        handle = self._signal_handlers.get(number)
        if handle is None:
            return False
        self.call_soon(handle._callback, *handle._args)
        return True

    # Errors.

    def fail(self, error: BaseException) -> None:
        """End the simulation after this turn with `error`, unless an earlier error ends it."""
        if self._time.failure is None:
            self._time.failure = error

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        if self._exception_handler is None:
            self.owner.handle_exception(context)
        else:
            self._exception_handler(self, context)

    def get_debug(self) -> bool:
        return False

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
        return self._time.running is not None

    def is_closed(self) -> bool:
        return self.dead

    def close(self) -> None:
        """Do nothing: `Simulation.close` ends the programs."""

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass


def _refuse_tls(ssl: Any) -> None:
    if ssl:
        raise NotImplementedError("the simulated network has no TLS")


def innermost_await(task: asyncio.Task[Any]) -> str:
    """Return where a task waits: `name at file:line (function)` of its innermost coroutine."""
    awaited: Any = task.get_coro()
    location = "?"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = frame or getattr(awaited, "ag_frame", None)
        if frame is not None:
            location = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_qualname})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{task.get_name()} at {location}"


def tasks_of(loop: HostLoop) -> list[asyncio.Task[Any]]:
    """Return the unfinished tasks of a loop in a fixed order: by length of their names, then by name."""
    return sorted(asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name()))
