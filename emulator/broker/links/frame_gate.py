"""Applies the armed faults of frames to one direction of one connection, in the time of the event loop.

`broker.links.frame_faults` has the rules. While no fault is armed, bytes pass through without being split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from emulator.broker.links.frame_faults import ArmedFaults, FrameFilter


@runtime_checkable
class FrameReader(Protocol):
    """A protocol that splits what it receives into frames."""

    def partial_frame(self) -> bytes:
        """Return the received bytes of the incomplete frame."""
        ...


def no_partial_frame() -> bytes:
    """Return the bytes of an incomplete frame in a direction in which every write is one or more whole frames."""
    return b""


class FrameGate:
    """One direction of one connection."""

    def __init__(
        self,
        faults: ArmedFaults,
        deliver: Callable[[bytes], None],
        partial_frame: Callable[[], bytes] = no_partial_frame,
    ) -> None:
        """`partial_frame` returns the bytes of an incomplete frame that passed before a fault was armed."""
        self._faults = faults
        self._deliver = deliver
        self._partial_frame = partial_frame
        self._filter: FrameFilter | None = None
        """None: bytes pass unchanged."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def put(self, data: bytes) -> None:
        if self._filter is None:
            if not self._faults.is_active:
                self._deliver(data)
                return
            self._filter = FrameFilter(self._faults, self._partial_frame())
        self._pass_on(self._filter, self._filter.feed(data, asyncio.get_running_loop().time()))

    def _pass_on(self, filter_: FrameFilter, data: bytes) -> None:
        if filter_.is_idle:
            self._filter = None
            data += filter_.finish()
        self._schedule()
        if data and not self._closed:
            self._deliver(data)

    def _schedule(self) -> None:
        due = None if self._filter is None else self._filter.next_due
        if self._timer is not None and due != self._timer.when():
            self._timer.cancel()
            self._timer = None
        if due is not None and self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(due, self._deliver_due)

    def _deliver_due(self) -> None:
        self._timer = None
        if self._filter is not None:
            now = max(asyncio.get_running_loop().time(), self._filter.next_due or 0.0)
            self._pass_on(self._filter, self._filter.due(now))

    def faults_changed(self) -> None:
        """Deliver everything that waits if no fault is armed any more."""
        if self._filter is not None and not self._faults.armed:
            waiting, self._filter = self._filter.finish(), None
            self._schedule()
            if waiting and not self._closed:
                self._deliver(waiting)

    def close(self) -> None:
        """Drop everything that waits."""
        self._closed = True
        self._filter = None
        self._schedule()
