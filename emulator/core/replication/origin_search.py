"""Finds an entry of a log by its origin, by binary search.

The entries of one origin region ascend in every log, with entries of other origins between them. So the search probes
a middle id, reads on until it meets entries of the origin region, and continues in the half that can contain the entry.

    low                  middle ──▶ first met                high
     ├──────────────────────┼─────────┼────────────────────────┤
      too small                        too large: high = middle

The caller reads the entries `read_from`..`read_end` and passes them to `chunk_read` until `is_done`.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.core.replication.origins import Origin
from emulator.model.values import Position


class OriginSearch:
    """One search in the ids first..end, `end` excluded."""

    def __init__(self, wanted: Origin, first: int, end: int) -> None:
        self._wanted = wanted
        self._low, self._high = first, max(first, end)
        self.found: int | None = None
        """Id of the entry; None: not found."""
        self.before: int | None = None
        """Id of the last known entry of the origin region before the wanted one; exact when the search is done."""
        self.after: int | None = None
        """Id of the first known entry of the origin region after the wanted one; exact when the search is done."""
        self._middle = self.read_from = (self._low + self._high) // 2

    @property
    def is_done(self) -> bool:
        return self.found is not None or self._low >= self._high

    @property
    def read_end(self) -> int:
        """Exclusive end of the ids to read from `read_from` on."""
        return self._high

    def chunk_read(self, end: int, origins: Sequence[tuple[int, Origin | None]]) -> None:
        """Pass the entries `read_from`..`end`, `end` excluded, as (id, origin) in ascending order. Ids may have
        gaps."""
        assert end > self.read_from, "a chunk contains at least one id"
        met = [
            (entry_id, origin.position)
            for entry_id, origin in origins
            if origin is not None and origin.region == self._wanted.region
        ]
        if met:
            self._narrow(met)
        elif end >= self._high:
            self._high = self._middle
        else:
            self.read_from = end
            return
        self._middle = self.read_from = (self._low + self._high) // 2

    def _narrow(self, met: Sequence[tuple[int, Position]]) -> None:
        """Exclude ids by the positions of consecutive entries of the origin region."""
        wanted = self._wanted.position
        for entry_id, position in met:
            if position == wanted:
                self.found = entry_id
                return
            if position > wanted:
                # Nothing of the origin region lies between the middle, or the entry before, and this entry.
                self.after, self._high = entry_id, max(self._low, self._middle)
                return
            self.before, self._low = entry_id, entry_id + 1
