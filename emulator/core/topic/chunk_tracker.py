"""Which pieces of a message that is not complete are here (INV-92).

A client cuts a large message into pieces and publishes them one by one. When its link breaks in between it sends again
whatever was not acknowledged: pieces that may be stored already. Stored twice they cost the whole message: the C++
client, and all that are built on it, throw it away when a piece is not the one whose turn it is.

    pieces of one message      0 ── 1 ── 2 ── 3 ── 4
                               └─ here ──┘    the last one completes it: from then on its sequence id says all
                              sent again: drop

The same message is what one life of a client sends under one name: sequence id, time of publishing and number of pieces
are the same. A new life may give the sequence id to another message of the same size; its time tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

PRODUCERS_MAX: Final = 10_000
"""Those that left a message unfinished, per topic. The least recent ones are forgotten: then a piece of theirs may be
stored twice."""


class ChunkInfo(NamedTuple):
    """One of several of a message."""

    sequence_id: int
    publish_time_ms: int
    pieces: int
    number: int
    """0 is the first."""

    def follows(self, other: ChunkInfo | None) -> bool:
        """Whether it is the next one, or the first of another message."""
        return self.number == 0 or (
            other is not None and self[:3] == other[:3] and self.number == other.number + 1
        )

    def is_behind(self, other: ChunkInfo | None) -> bool:
        """Whether it is of the same message, and not later."""
        return other is not None and self[:3] == other[:3] and 0 <= self.number <= other.number


class UnfinishedMessages:
    """Of one topic. By producer the newest piece of an unbroken row that begins with the first; only of the message
    that it sends now."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._admitted: OrderedDict[str, ChunkInfo] = OrderedDict()
        self._stored: OrderedDict[str, ChunkInfo] = OrderedDict()

    def admit(self, producer: str, piece: ChunkInfo) -> bool:
        """Whether it is new. What is new counts as admitted from here on, durable or not."""
        if piece.is_behind(self._admitted.get(producer)) or piece.is_behind(self._stored.get(producer)):
            return False
        self._count(self._admitted, producer, piece)
        return True

    def stored(self, producer: str, piece: ChunkInfo) -> None:
        """It is durable: told live, and when the log is read again after a start."""
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
