"""The sizes of the parts in which a `Replicator` sends a backlog."""

from __future__ import annotations

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


class BacklogParts:
    """How many entries of one topic's backlog a replicator reads and sends next, and has in flight at most."""

    def __init__(self) -> None:
        self._end_of_part = 0
        """End of the topic's log when the stream began, or the newest part of a backlog was sent."""
        self._stored_between_parts = 0
        """Number of entries that were stored between two parts, when any were for the last time in this stream."""

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
