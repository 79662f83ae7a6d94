"""The stored chunks of incomplete messages, to drop duplicates (INV-92).

A client splits a large message into chunks and publishes them one by one. When its link breaks in between it resends
all chunks without a receipt, which may be stored already. A chunk stored twice loses the whole message: the C++ client,
and all clients built on it, discard a message when a chunk is out of order.

    chunks of one message      0 ── 1 ── 2 ── 3 ── 4
                               └ stored ─┘    the last one completes it: from then on its sequence id suffices
                              sent again: drop

Chunks belong to one message if producer name, sequence id, publish time and number of chunks are equal. A restarted
client may give the sequence id to another message of the same size, but with another publish time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

PRODUCERS_MAX: Final = 10_000
"""Producers with an incomplete message, per topic. The least recent ones are forgotten: their chunks may then be stored
twice."""


class ChunkInfo(NamedTuple):
    """Identity of one chunk of a message."""

    sequence_id: int
    publish_time_ms: int
    pieces: int
    number: int
    """0 is the first."""

    def follows(self, other: ChunkInfo | None) -> bool:
        """Whether it is the next chunk, or the first of another message."""
        return self.number == 0 or (
            other is not None and self[:3] == other[:3] and self.number == other.number + 1
        )

    def is_behind(self, other: ChunkInfo | None) -> bool:
        """Whether it is of the same message, and not later."""
        return other is not None and self[:3] == other[:3] and 0 <= self.number <= other.number


class UnfinishedMessages:
    """The incomplete messages of one topic. By producer the newest chunk of an unbroken sequence from the first on, of
    its current message only."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._admitted: OrderedDict[str, ChunkInfo] = OrderedDict()
        self._stored: OrderedDict[str, ChunkInfo] = OrderedDict()

    def admit(self, producer: str, piece: ChunkInfo) -> bool:
        """Return whether the chunk is new. A new one counts as admitted from here on, durable or not."""
        if piece.is_behind(self._admitted.get(producer)) or piece.is_behind(self._stored.get(producer)):
            return False
        self._count(self._admitted, producer, piece)
        return True

    def stored(self, producer: str, piece: ChunkInfo) -> None:
        """The chunk is durable. Called for live appends, and when the log is read again after a start."""
        if not piece.is_behind(self._stored.get(producer)):
            self._count(self._stored, producer, piece)

    def _count(self, newest: OrderedDict[str, ChunkInfo], producer: str, piece: ChunkInfo) -> None:
        before = newest.pop(producer, None)
        if piece.follows(before) and piece.number < piece.pieces - 1:
            newest[producer] = piece
            if len(newest) > self._producers_max:
                newest.popitem(last=False)

    def to_json(self) -> dict[str, list[int]]:
        """What is durable, for the checkpoint; least recent first."""
        return {producer: list(piece) for producer, piece in self._stored.items()}

    @classmethod
    def from_json(cls, state: Mapping[str, Sequence[Any]]) -> UnfinishedMessages:
        """Start from a checkpoint."""
        unfinished = cls()
        for producer, numbers in state.items():
            unfinished._stored[producer] = ChunkInfo(*map(int, numbers))
        return unfinished
