"""SHARED: entries go to consumers with permits, round robin; all chunks of a message go to one consumer, in order.

A consumer's client assembles the message, so it must receive every chunk. The consumer of the first chunk receives the
rest. While it cannot receive them, its chunks wait in `chunks` (part of DI1); other entries are still dispatched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch.multiple_consumers import MultipleConsumers
from emulator.core.dispatch.strategy import WaitingMessages
from emulator.core.dispatch.types import Candidate, ConsumerState, Delivery, DispatchLimits
from emulator.model.values import MessageChunk

RUN_ENTRIES = 16
"""Maximum number of entries that one consumer receives before the next one's turn."""
MESSAGES_MAX: Final = 10_000
"""Maximum number of partly dispatched chunked messages. Beyond it the oldest one loses its consumer: the next consumer
in turn receives its remaining chunks."""
WAITING_MAX: Final = 20_000
"""Number of waiting chunks at which no new entries are read."""


class Shared(MultipleConsumers):
    """The strategy of SHARED subscriptions: round robin among the consumers of the best priority that have permits and
    are below their limit of unacknowledged messages."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self.chunks = ChunkAffinity()
        self._turn = 0
        self._in_turn: ConsumerState | None = None
        """The consumer whose turn it is, within one dispatch."""
        self._run = 0
        """Number of entries that it received in this turn."""

    def waiting(self, unread: int) -> Iterator[WaitingMessages]:
        yield from super().waiting(unread)
        for consumer, ids in self.chunks.by_receiver():
            yield WaitingMessages(len(ids), consumer)

    def _may_read_ahead(self) -> bool:
        return super()._may_read_ahead() and not self.chunks.is_full

    # Dispatching.

    def _dispatch(self, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        self._in_turn = None
        return super()._dispatch(candidates, wall_ms)

    def _assign_receiver(self, candidate: Candidate) -> ConsumerState | None:
        """Choose the consumer that receives the entry now; None: no consumer can. A chunk goes to the consumer of the
        earlier chunks of its message; first chunks and other entries go by turn."""
        chunk = candidate.chunk
        if chunk is not None:
            receiver = self.chunks.receiver_of(chunk)
            if receiver is None:
                receiver = self._take_turn()
            elif self.chunks.must_wait(receiver) or not self.limits.may_serve(receiver):
                return None
            if receiver is not None:
                self.chunks.record_dispatch(chunk, receiver)
            return receiver
        return self._take_turn()

    def _set_aside(self, candidate: Candidate) -> bool:
        chunk = candidate.chunk
        receiver = None if chunk is None else self.chunks.receiver_of(chunk)
        if receiver is None:
            return False
        self._dequeue(candidate.entry_id)
        self.chunks.add_waiting(receiver, candidate.entry_id)
        return True

    def _take_turn(self) -> ConsumerState | None:
        """Count an entry in the present turn, or begin the next consumer's. Returns the consumer; None: no consumer can
        receive messages."""
        consumer = self._in_turn
        if consumer is None or self._run >= RUN_ENTRIES or not self.limits.may_serve(consumer):
            consumer, self._run = self._next_in_turn(), 0
            self._in_turn = consumer
        self._run += 1
        return consumer

    def _next_in_turn(self) -> ConsumerState | None:
        """Advance to the next consumer, round robin among those of the best priority that can receive messages."""
        able = [consumer for consumer in self.consumers if self.limits.may_serve(consumer)]
        if not able:
            return None
        best = min(consumer.priority for consumer in able)
        able = [consumer for consumer in able if consumer.priority == best]
        self._turn += 1
        return able[self._turn % len(able)]

    # Events.

    def flow(self, consumer: ConsumerState, permits: int) -> None:
        super().flow(consumer, permits)
        self._may_have_capacity(consumer)

    def blocked(self, consumer: ConsumerState, *, blocked: bool) -> None:
        super().blocked(consumer, blocked=blocked)
        self._may_have_capacity(consumer)

    def _may_have_capacity(self, consumer: ConsumerState) -> None:
        if self.chunks.waiting_count and self.limits.may_serve(consumer):
            self.replay.update(self.chunks.release(consumer))

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        self.replay.update(self.chunks.left(consumer))
        super().left(consumer, now_ms)

    def _replay_released(self, entry_id: int) -> bool:
        return not self.chunks.is_waiting(entry_id) and super()._replay_released(entry_id)

    def _forget(self, entry_id: int) -> None:
        if self.chunks.waiting_count:
            self.chunks.discard(entry_id)
        super()._forget(entry_id)

    def moved(self) -> None:
        super().moved()
        if self.chunks.waiting_count:
            self.chunks.forget(self.cursor.is_acked)
            for consumer in self.consumers:
                self._may_have_capacity(consumer)

    def rewound(self) -> None:
        super().rewound()
        self.chunks.clear()


class ChunkAffinity:
    """The assignment of chunked messages to consumers; owned by `Shared`."""

    def __init__(self) -> None:
        self._receivers: OrderedDict[str, ConsumerState] = OrderedDict()
        """Chunked message -> its consumer, until its last chunk is dispatched."""
        self._waiting: dict[ConsumerState, IdSet] = {}
        """Consumer -> ids of chunks that wait until it can receive them."""
        self.waiting_count = 0

    @property
    def is_full(self) -> bool:
        return self.waiting_count >= WAITING_MAX

    def waiting(self) -> Iterable[int]:
        """Return the ids of all waiting chunks."""
        return (entry_id for ids in self._waiting.values() for entry_id in ids)

    def is_waiting(self, entry_id: int) -> bool:
        """Whether a chunk waits."""
        return any(entry_id in ids for ids in self._waiting.values())

    def by_receiver(self) -> Iterable[tuple[ConsumerState, IdSet]]:
        """Return each consumer with the ids of the chunks that wait for it."""
        return self._waiting.items()

    def receiver_of(self, chunk: MessageChunk) -> ConsumerState | None:
        """Return the consumer of the message's earlier chunks; None: any consumer may receive the chunk."""
        return self._receivers.get(chunk.of)

    def must_wait(self, receiver: ConsumerState) -> bool:
        """Whether an earlier chunk waits for this consumer."""
        return receiver in self._waiting

    def record_dispatch(self, chunk: MessageChunk, receiver: ConsumerState) -> None:
        """Assign the later chunks of the message to the consumer that receives this one."""
        if chunk.is_last:
            self._receivers.pop(chunk.of, None)
            return
        self._receivers[chunk.of] = receiver
        if len(self._receivers) > MESSAGES_MAX:
            self._receivers.popitem(last=False)

    def add_waiting(self, receiver: ConsumerState, entry_id: int) -> None:
        self.waiting_count += self._waiting.setdefault(receiver, IdSet()).add(entry_id)

    def release(self, receiver: ConsumerState) -> list[int]:
        """Remove and return the ids of the chunks that wait for a consumer."""
        ids = self._waiting.pop(receiver, None)
        if ids is None:
            return []
        self.waiting_count -= len(ids)
        return list(ids)

    def left(self, receiver: ConsumerState) -> list[int]:
        """Remove a disconnected consumer and return its waiting chunks. Another consumer receives the message from the
        first remaining chunk on."""
        for name in [name for name, one in self._receivers.items() if one is receiver]:
            del self._receivers[name]
        return self.release(receiver)

    def forget(self, is_acked: Callable[[int], bool]) -> None:
        """Remove acknowledged chunks from those that wait."""
        for receiver, ids in list(self._waiting.items()):
            for entry_id in [one for one in ids if is_acked(one)]:
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
