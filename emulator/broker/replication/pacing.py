"""How many entries of a topic a `Replicator` sends in one write, and when: new ones at once or gathered, a backlog in
parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LIVE_ENTRIES = 500
"""Number of entries up to which a backlog is sent at once. A larger one is sent in parts, between the appends of the
region, so that it delays no client."""
PART_ENTRIES = 300
"""Number of entries of a part, beside as many as were newly stored between parts: less than 1 ms of the event
loop."""
GROWTH_ENTRIES_MAX = 2_000
"""Maximum number of newly stored entries that enlarge a part. The remote regions store a large part with one commit:
one of 2,000 entries costs them a fifth less per message than one of 800."""
PARTS_IN_FLIGHT = 4
"""Maximum number of parts of a backlog in flight. Under little traffic these have fewer entries than the window: a
remote region that catches up with a whole window in flight delays the clients of this region."""
GATHER_SECONDS = 0.004
"""Time for which entries are gathered after a write of PART_ENTRIES or more, unless GROWTH_ENTRIES_MAX wait before: a
topic with much traffic is sent in large parts, while its region stores further entries."""


class SendPacing:
    """The size of the next part of one replicator, and the time until its next write."""

    def __init__(self, resume: Callable[[], None], *, gathers: bool) -> None:
        self._resume = resume
        """Called when entries have been gathered."""
        self._gathers = gathers
        """Whether entries are ever gathered."""
        self._end_of_part = 0
        """End of the topic's log when the stream began, or the newest part of a backlog was sent."""
        self._stored_between_parts = 0
        """Number of entries that were stored between two parts, when any were for the last time in this stream."""
        self._gather_until = 0.0
        """Time of the event loop until which entries are gathered for the next write; 0: they are not."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while gathered entries wait."""
        self.live_entries = LIVE_ENTRIES
        """Number of entries up to which those that wait are sent at once; more after they were gathered."""

    def begin_stream(self, end: int) -> None:
        """Forget the parts of the stream before. `end`: the end of the topic's log."""
        self.stop()
        self._end_of_part, self._stored_between_parts = end, 0

    # A backlog.

    @property
    def in_flight_max(self) -> int:
        """Number of entries in flight from which on no further part of a backlog is read."""
        return PARTS_IN_FLIGHT * self._part_entries

    @property
    def _part_entries(self) -> int:
        """Number of entries of the newest part of a backlog."""
        return PART_ENTRIES + min(self._stored_between_parts, GROWTH_ENTRIES_MAX)

    def next_part(self, end: int) -> int:
        """Return the number of entries of the next part of a backlog. It includes as many as were newly stored between
        parts, so that a backlog shrinks whatever is published meanwhile: publishing them took longer than sending.
        `end`: the end of the topic's log."""
        stored, self._end_of_part = end - self._end_of_part, end
        if stored:
            self._stored_between_parts = stored
        return self._part_entries

    # New entries.

    def wrote(self, entries: int, *, is_all: bool) -> None:
        """Gather entries after a write of this number, if that was large and all that waited: no backlog waits."""
        self.stop()
        if self._gathers and is_all and entries >= PART_ENTRIES:
            self._gather_until = asyncio.get_running_loop().time() + GATHER_SECONDS

    def must_wait(self, waiting: int) -> bool:
        """Return whether this number of entries waits until more are gathered; `resume` is called after that."""
        if self._gather_until and waiting >= GROWTH_ENTRIES_MAX:
            self.stop()
        if not self._gather_until:
            return False
        if self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._gather_until:
                self.stop()
                return False
            self._timer = loop.call_at(self._gather_until, self._gathered)
        return True

    def _gathered(self) -> None:
        self.stop()
        self.live_entries = GROWTH_ENTRIES_MAX
        self._resume()

    def stop(self) -> None:
        """Stop gathering. `resume` is not called."""
        self._gather_until, self.live_entries = 0.0, LIVE_ENTRIES
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
