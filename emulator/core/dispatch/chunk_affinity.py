"""SHARED: all chunks of a message go to one consumer, in order.

The client of that consumer assembles the message, so every chunk must reach it. The consumer of the first chunk
receives the rest. While it has no permits, its chunks wait here (part of DI1); those of other consumers go on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch.types import ChunkOf, ConsumerState

MESSAGES_MAX: Final = 10_000
"""Limit of incomplete chunked messages. Beyond it the oldest is forgotten: its remaining chunks go to the next consumer
in turn."""
WAITING_MAX: Final = 20_000
"""Limit of waiting chunks. When it is reached no new entries are read."""


class ChunkAffinity:
    """Assigns chunked messages to consumers; owned by a strategy."""

    def __init__(self) -> None:
        self._receivers: OrderedDict[str, ConsumerState] = OrderedDict()
        """By message, until its last chunk is dispatched."""
        self._waiting: dict[ConsumerState, IdSet] = {}
        """By consumer: chunks that wait until it has permits."""
        self.waiting_count = 0

    @property
    def is_full(self) -> bool:
        return self.waiting_count >= WAITING_MAX

    def waiting(self) -> Iterable[int]:
        """Ids of all waiting chunks."""
        return (entry_id for ids in self._waiting.values() for entry_id in ids)

    def by_receiver(self) -> Iterable[tuple[ConsumerState, IdSet]]:
        """Ids that wait for each consumer."""
        return self._waiting.items()

    def receiver_of(self, piece: ChunkOf) -> ConsumerState | None:
        """Return the consumer of the earlier chunks; None: any consumer may receive it."""
        return self._receivers.get(piece.of)

    def must_wait(self, receiver: ConsumerState) -> bool:
        """An earlier piece waits for it."""
        return receiver in self._waiting

    def given(self, piece: ChunkOf, receiver: ConsumerState) -> None:
        if piece.is_last:
            self._receivers.pop(piece.of, None)
            return
        self._receivers[piece.of] = receiver
        if len(self._receivers) > MESSAGES_MAX:
            self._receivers.popitem(last=False)

    def wait(self, receiver: ConsumerState, entry_id: int) -> None:
        self.waiting_count += self._waiting.setdefault(receiver, IdSet()).add(entry_id)

    def release(self, receiver: ConsumerState) -> list[int]:
        """The consumer has permits again: return the chunks that waited for it."""
        ids = self._waiting.pop(receiver, None)
        if ids is None:
            return []
        self.waiting_count -= len(ids)
        return list(ids)

    def left(self, receiver: ConsumerState) -> list[int]:
        """The consumer disconnected. Returns its waiting chunks; another consumer receives the message from the first
        remaining chunk on."""
        for name in [name for name, one in self._receivers.items() if one is receiver]:
            del self._receivers[name]
        return self.release(receiver)

    def forget(self, is_done: Callable[[int], bool]) -> None:
        """Remove acknowledged chunks from those that wait."""
        for receiver, ids in list(self._waiting.items()):
            for entry_id in [one for one in ids if is_done(one)]:
                self.waiting_count -= ids.discard(entry_id)
            if not ids:
                del self._waiting[receiver]

    def discard(self, entry_id: int) -> None:
        """Remove a chunk from those that wait, if present."""
        for receiver, ids in self._waiting.items():
            if ids.discard(entry_id):
                self.waiting_count -= 1
                if not ids:
                    del self._waiting[receiver]
                return

    def clear(self) -> None:
        self._receivers.clear()
        self._waiting.clear()
        self.waiting_count = 0
