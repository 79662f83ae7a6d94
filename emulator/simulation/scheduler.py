"""The scheduler of one simulated program: its callbacks and timers from its start to its kill.

Ready callbacks run in the order of their `call_soon`, as asyncio guarantees. Callbacks of a killed program do not run:
as after `kill -9`, no task is cancelled and no `finally` block runs. Callbacks that other hosts schedule on it later
are dropped.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappush
from typing import Any

from emulator.simulation.trace import HOST_STEP, callback_name
from emulator.simulation.virtual_time import VirtualTime


class LoopHandle(asyncio.Handle):
    """asyncio's Handle without debugging support."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: ProgramScheduler,
        context: Context | None,
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
    """asyncio's TimerHandle without debugging support and comparisons."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: ProgramScheduler,
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


class _Void(list[Any]):
    """A list that drops appended callbacks; it replaces the queues of a killed program."""

    def append(self, _: Any) -> None:
        pass


class ProgramScheduler(asyncio.AbstractEventLoop):
    """Runs the ready callbacks of a program in turns. VirtualTime decides when the next turn begins."""

    def __init__(self, time: VirtualTime, name: str, index: int) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.tick = self._tick_in_detail if time.trace.detail else self._tick
        self.next_number = time.next_number
        self._time = time
        self._steps = time.trace.steps
        self._step = index * HOST_STEP
        self._ready: list[LoopHandle | TimerHandle] = []
        self._batch: list[LoopHandle | TimerHandle] = []
        """Callbacks that the current turn runs."""
        self._overdue: list[TimerHandle] = []
        """Timers that came due during a pause. They run after the socket events of the pause, as in asyncio."""
        self._runnable = time.runnable
        self._queued = False
        """Whether the program must not be added to `_runnable`: it is in the list, paused or dead."""

    def __repr__(self) -> str:
        return f"<HostLoop {self.name} at {self._time.now:.6f} s>"

    # One turn.

    def _tick(self) -> None:
        """Run one turn: all callbacks that are ready now."""
        self._queued = False
        batch = self._ready
        self._ready, self._batch = self._batch, batch  # two lists in turn: the other one is empty
        time = self._time
        if time.running is not self:
            time.running = self
            _set_running_loop(self)
        self._steps += (time.now, self._step + len(batch))
        for handle in batch:
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    batch.clear()
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

    def timer_due(self, timer: TimerHandle) -> None:
        timer._scheduled = False
        if self.paused:
            self._overdue.append(timer)
            return
        self._ready.append(timer)
        if not self._queued:
            self._queued = True
            self._runnable.append(self)

    # Pause, resume and kill. Called by the host.

    def pause(self) -> None:
        """Pause the program as SIGSTOP does: callbacks that become ready wait until `resume`."""
        if not self.paused and not self.dead:
            self.paused = True
            self._leave_run_queue()

    def resume(self) -> None:
        if self.paused and not self.dead:
            self.paused = False
            self._ready += self._overdue
            self._overdue.clear()
            self._queued = False
            if self._ready:
                self._queued = True
                self._runnable.append(self)

    def kill(self) -> None:
        """Kill the program: none of its callbacks runs any more."""
        self.dead = True
        self._leave_run_queue()
        for handle in self._batch:  # if the program is killed during its own turn
            handle._cancelled = True
        self._ready = self._batch = _Void()
        self._overdue = _Void()

    def _leave_run_queue(self) -> None:
        if self in self._runnable:
            self._runnable.remove(self)
        self._queued = True

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
        """Schedule an existing handle like `call_soon`. A kernel uses it for callbacks that it schedules repeatedly."""
        self._ready.append(handle)
        if not self._queued:
            self._queued = True
            self._runnable.append(self)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        time = self._time
        timer = TimerHandle(time.now + delay, callback, args, self, context)
        heappush(time.moments, (timer._when, time.next_number(), self, timer, None))
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        time = self._time
        heappush(time.moments, (when, time.next_number(), self, timer, None))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._time.timer_cancelled()
