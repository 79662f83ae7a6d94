"""How many messages were dropped, and how many a second of late; which may still be."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 60_000


class Drops:
    """Of one subscription, or one replicator. The rate is that of the last minute: of the present window, and of as
    much of the one before as is not older."""

    def __init__(self) -> None:
        self.total = 0
        self._window = 0
        self._in_window = 0
        self._before = 0

    def count(self, messages: int, now_ms: int) -> None:
        self._turn(now_ms)
        self.total += messages
        self._in_window += messages

    def rate(self, now_ms: int) -> float:
        """Messages a second."""
        self._turn(now_ms)
        part_of_before = 1 - now_ms % WINDOW_MS / WINDOW_MS
        return (self._in_window + self._before * part_of_before) * 1000 / WINDOW_MS

    def _turn(self, now_ms: int) -> None:
        window = now_ms // WINDOW_MS
        if window == self._window:
            return
        self._before = self._in_window if window == self._window + 1 else 0
        self._in_window, self._window = 0, window


class Waiting:
    """Entries that were offered and neither sent nor dropped, in the order of their ids."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, int]] = deque()
        """(id, messages); ids grow."""

    def add(self, entry_id: int, messages: int) -> None:
        assert not self._entries or entry_id > self._entries[-1][0], "entries are offered in log order"
        self._entries.append((entry_id, messages))

    def take_before(self, entry_id: int) -> int:
        """Those with a smaller id wait no more; gives how many messages that is."""
        messages = 0
        while self._entries and self._entries[0][0] < entry_id:
            messages += self._entries.popleft()[1]
        return messages
