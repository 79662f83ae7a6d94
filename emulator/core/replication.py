"""How far one topic has been replicated to one other region.

A replicator reads the local log in order and sends what originated here. The remote answers in order, and drops by
source position what it already has, so that sending again after any failure is harmless (INV-2).

        confirmed            in flight               next to read
    ────────────────┤●────●────●────●────├──────────────────────────▶ log
    remote has it, or    sent, receipt
    need not have it     outstanding

`reset()` is the only answer to a failure of any kind: forget what is in flight and read again from `confirmed`.
There is no permit that could leak and no second read that could race (both stall replication upstream).
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from emulator.model import Position


class Forwarding(Enum):
    """What to do with one entry, and why (proposal PIP-33 and the protocol's replication rules)."""

    SEND = "originated here and is meant for that region"
    NOT_OURS = "came from another region: only its origin forwards a message (no loops)"
    NOT_FOR_THEM = "its sender named other regions"
    LOCAL_MARKER = "a marker that means something only in this log"


LOCAL_MARKER_TYPES = frozenset({12, 21, 22})
"""Snapshots, and the ends of transactions."""


def forwarding(
    remote: str, replicated_from: str | None, replicate_to: tuple[str, ...], marker_type: int | None
) -> Forwarding:
    """Decide for one entry, from four fields of its metadata."""
    if marker_type in LOCAL_MARKER_TYPES:
        return Forwarding.LOCAL_MARKER
    if replicated_from is not None:
        return Forwarding.NOT_OURS
    if replicate_to and remote not in replicate_to:
        return Forwarding.NOT_FOR_THEM
    return Forwarding.SEND


class ReplicationProgress:
    """Window and progress of one replicator. Entry ids may have gaps."""

    def __init__(self, confirmed: int, *, entries_max: int, bytes_max: int) -> None:
        self.confirmed = confirmed
        """The remote has, or need not have, everything with an id <= this. Invariant: only grows."""
        self.next_entry_id = confirmed + 1
        """Next to read. Invariant: > every id in flight."""
        self._in_flight: deque[tuple[int, int]] = deque()
        self._bytes_in_flight = 0
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """How many entries may still be sent before a receipt arrives."""
        if self._bytes_in_flight >= self._bytes_max:
            return 0
        return self._entries_max - len(self._in_flight)

    def sent(self, entry_id: int, size_bytes: int) -> None:
        assert entry_id >= self.next_entry_id, "entries are sent in log order"
        self.next_entry_id = entry_id + 1
        self._in_flight.append((entry_id, size_bytes))
        self._bytes_in_flight += size_bytes

    def skipped(self, entry_id: int) -> None:
        """This entry is not for the remote."""
        assert entry_id >= self.next_entry_id, "entries are passed in log order"
        self.next_entry_id = entry_id + 1
        if not self._in_flight:
            self.confirmed = entry_id

    def received(self, ledger_id: int, position: Position) -> bool:
        """The remote has `position`. False when that is not the entry whose turn it is: then both sides disagree
        about the stream and the shell must reconnect."""
        if not self._in_flight or position != (ledger_id, self._in_flight[0][0]):
            return False
        _, size_bytes = self._in_flight.popleft()
        self._bytes_in_flight -= size_bytes
        self.confirmed = self._in_flight[0][0] - 1 if self._in_flight else self.next_entry_id - 1
        return True

    def reset(self) -> None:
        """Whatever is in flight may or may not have arrived: send it again."""
        self._in_flight.clear()
        self._bytes_in_flight = 0
        self.next_entry_id = self.confirmed + 1
