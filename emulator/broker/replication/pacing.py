"""How many entries of a topic a `Replicator` sends in one write, and when: new ones at once or gathered, a backlog in
parts."""

from __future__ import annotations

import asyncio

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

    def __init__(self) -> None:
        self._end_of_part = 0
        """End of the topic's log when the stream began, or the newest part of a backlog was sent."""
        self._stored_between_parts = 0
        """Number of entries that were stored between two parts, when any were for the last time in this stream."""
        self._gather_until = 0.0
        """Time of the event loop until which entries are gathered for the next write."""

    def begin_stream(self, end: int) -> None:
        """Forget the parts of the stream before. `end`: the end of the topic's log."""
        self._end_of_part, self._stored_between_parts = end, 0

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

    def wrote(self, entries: int, *, is_all: bool) -> None:
        """Gather entries after a write of this number, if that was large and all that waited: no backlog waits."""
        is_large = entries >= PART_ENTRIES and is_all
        self._gather_until = asyncio.get_running_loop().time() + GATHER_SECONDS if is_large else 0.0

    def gather_seconds(self, waiting: int) -> float:
        """Return the time for which further entries are gathered, if this number waits to be sent; 0 or less: none."""
        if not self._gather_until or waiting >= GROWTH_ENTRIES_MAX:
            return 0
        return self._gather_until - asyncio.get_running_loop().time()
