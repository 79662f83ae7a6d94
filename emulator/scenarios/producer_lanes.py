"""The ways of one producing actor: to its topic, or one to each partition.

The client's own producer of a partitioned topic tells nobody which partition a message takes, nor where the numbers of
each go on, so nothing that it did could be found in the logs again. An actor opens one for each partition and routes by
itself, as clients do: a message with a key by the key's hash, others in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from emulator.model.hashing import KeyHash

Opened = TypeVar("Opened")


@dataclass(slots=True)
class Lane(Generic[Opened]):
    """To one topic."""

    topic: str
    producer: Opened | None = None
    session: str = ""
    next_sequence_id: int = 0

    def opened(self, producer: Opened, session: str, last_sequence_id: int) -> None:
        """A region that remembers the producer's name tells where its numbering stopped."""
        self.producer, self.session = producer, session
        self.next_sequence_id = max(self.next_sequence_id, last_sequence_id + 1)

    def number(self) -> int:
        """For the next message."""
        number, self.next_sequence_id = self.next_sequence_id, self.next_sequence_id + 1
        return number


def choose(lanes: Sequence[Lane[Opened]], key: str | None, turn: int) -> Lane[Opened]:
    """`turn`: how many messages there were before."""
    return lanes[(turn if key is None else KeyHash.JAVA_STRING(key)) % len(lanes)]
