"""Storing each message once.

Three questions, three small maps per topic.

*Has this producer sent that before?* (`ProducerDeduplication`) A producer numbers its messages; after a lost
connection it sends again whatever was not acknowledged. Per producer name two numbers:

    persisted   everything up to here is durable
    pushed      everything up to here was admitted, durable or not. Invariant: pushed >= persisted

    ────────────┤ persisted ├─── in flight ───┤ pushed ├────────▶ sequence ids
      DUPLICATE                DUPLICATE                  ACCEPT

A duplicate of a message in flight must not be acknowledged before that message is durable. The shell ensures
this: it acknowledges a duplicate only after everything issued before it. Upstream responds to such a send with
an error instead.

*Has this region's replicator brought that before?* (`SourceWatermarks`) A replicator sends its log in order
and, after any failure, again from an earlier place; the position in the source log is the measure. Markers
count here, so that each is acted upon once, and bypass the first question.

*Is this chunk stored already?* (`ChunkTracker`) A chunk of an incomplete message is stored once, even where the
topic does not deduplicate.

When an append fails its outcome is unknown. The shell then drops both objects with the topic and
rebuilds them: the last checkpoint (`from_json`), then `persisted` / `advance` for every entry stored since,
so nothing depends on how old the checkpoint is. There is no way to take a `pushed` back, on
purpose.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.model.values import BEFORE_EVERYTHING, Position

PRODUCER_NAMES_MAX = 10_000
"""How many producer names are remembered per topic; upstream's default."""


def last_sequence_id(sequence_id: int, highest_sequence_id: int, messages: int) -> int:
    """Sequence id of the last message of an entry.

    Not every client says it: the C++ one, and all that are built on it, leave `highest_sequence_id` out. Ids of one
    producer grow, so the last one is at least this much, which is exact where the client numbers by itself.
    """
    assert messages > 0, "an entry has at least one message"
    last = sequence_id + messages - 1
    return highest_sequence_id if highest_sequence_id > last else last


class PublishVerdict(Enum):
    """What to do with one publish."""

    ACCEPT = "store it"
    DUPLICATE = "already admitted: do not store it; acknowledge it after everything issued before"


_ACCEPT: Final = PublishVerdict.ACCEPT
_DUPLICATE: Final = PublishVerdict.DUPLICATE
"""A member of an enum costs several times as much to look up, and every publish does."""


class _Progress:
    """One producer name. Invariant: pushed >= persisted."""

    __slots__ = ("persisted", "pushed")

    def __init__(self, persisted: int) -> None:
        self.persisted = persisted
        self.pushed = persisted


class ProducerDeduplication:
    """One topic's memory of what producers sent. Beyond `names_max` the least recently used are forgotten."""

    def __init__(self, names_max: int = PRODUCER_NAMES_MAX) -> None:
        self._names_max = names_max
        self._progress: OrderedDict[str, _Progress] = OrderedDict()
        """Least recently used first."""
        self.drops_overlaps = False
        """As upstream: a batch is a duplicate when its first message is (`compatibility: overlapping_batches`)."""

    def admit(
        self, name: str, sequence_id: int, highest_sequence_id: int, *, is_chunk_not_last: bool = False
    ) -> PublishVerdict:
        """Check one publish: a message, a batch (sequence ids sequence_id..highest_sequence_id; 0 or less
        than sequence_id for a single message) or a chunk. What is accepted counts as pushed from here on.

        A batch is a duplicate only when all of it is. One that overlaps what is known (an application that
        resends from its own checkpoint, batched differently) is stored: upstream acknowledges and drops it,
        losing its new part, and no acknowledged publish may be lost (`drops_overlaps`).

        All chunks of a message carry its sequence id, which is recorded with the last one only. So an id that
        is known means a message that is complete, and every chunk of it is a duplicate; until then none is.
        """
        last = highest_sequence_id if highest_sequence_id > sequence_id else sequence_id
        progress = self._progress.get(name)
        if progress is not None:
            compared = sequence_id if is_chunk_not_last or self.drops_overlaps else last
            if compared <= progress.pushed:
                return _DUPLICATE
        if not is_chunk_not_last:
            self._used(name, progress).pushed = last
        return _ACCEPT

    def persisted(self, name: str, highest_sequence_id: int) -> None:
        """Everything up to here is durable. Called for live appends, and when the log is read again after a start."""
        progress = self._used(name, self._progress.get(name))
        if highest_sequence_id > progress.persisted:
            progress.persisted = highest_sequence_id
            if highest_sequence_id > progress.pushed:
                progress.pushed = highest_sequence_id

    def last_sequence_id(self, name: str) -> int:
        """Highest durable sequence id of a producer, -1 when it is unknown: where a client goes on."""
        progress = self._progress.get(name)
        return -1 if progress is None else progress.persisted

    def _used(self, name: str, progress: _Progress | None) -> _Progress:
        """The newest use of a name is this. `progress` is what is known of it."""
        if progress is None:
            progress = self._progress[name] = _Progress(-1)
            if len(self._progress) > self._names_max:
                self._progress.popitem(last=False)
        else:
            self._progress.move_to_end(name)
        return progress

    def __len__(self) -> int:
        return len(self._progress)

    def to_json(self) -> dict[str, Any]:
        """What is durable, for the checkpoint; least recently used first."""
        return {"persisted": {n: p.persisted for n, p in self._progress.items() if p.persisted >= 0}}

    @classmethod
    def from_json(
        cls, state: Mapping[str, Any], names_max: int = PRODUCER_NAMES_MAX
    ) -> ProducerDeduplication:
        """Start from a checkpoint."""
        deduplication = cls(names_max)
        for name, sequence_id in state["persisted"].items():
            deduplication.persisted(name, sequence_id)
        return deduplication


class SourceWatermarks:
    """One topic's memory of what other regions' replicators brought.

    Invariant: the watermark of a region only grows.
    """

    def __init__(self) -> None:
        self._highest: dict[str, Position] = {}

    def accepts(self, source_region: str, position: Position) -> bool:
        """Whether an entry that stands at `position` in the source region is new here."""
        highest = self._highest.get(source_region)
        return highest is None or position > highest

    def advance(self, source_region: str, position: Position) -> None:
        """This entry is here. Older ones are ignored."""
        highest = self._highest.get(source_region)
        if highest is None or position > highest:
            self._highest[source_region] = position

    def highest(self, source_region: str) -> Position:
        """Newest position received from a region; BEFORE_EVERYTHING when none was."""
        return self._highest.get(source_region, BEFORE_EVERYTHING)

    def to_json(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {region: str(position) for region, position in sorted(self._highest.items())}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> SourceWatermarks:
        """Start from a checkpoint."""
        watermarks = cls()
        for region, text in state.items():
            watermarks.advance(region, Position.parse(text))
        return watermarks


PRODUCERS_MAX: Final = 10_000
"""Producers with an incomplete message, per topic. The least recent ones are forgotten: their chunks may then be stored
twice."""


class ChunkInfo(NamedTuple):
    """Identity of one chunk of a message."""

    sequence_id: int
    publish_time_ms: int
    chunks: int
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


class ChunkTracker:
    """The stored chunks of the incomplete messages of one topic (INV-92). By producer the newest chunk of an unbroken
    sequence from the first on, of its current message only.

    A client splits a large message into chunks and publishes them one by one. When its link breaks in between it
    resends all chunks without a receipt, which may be stored already. A chunk stored twice loses the whole message:
    the C++ client, and all clients built on it, discard a message when a chunk is out of order.

        chunks of one message      0 ── 1 ── 2 ── 3 ── 4
                                   └ stored ─┘    the last one completes it: from then on its sequence id suffices
                                  sent again: drop

    Chunks belong to one message if producer name, sequence id, publish time and number of chunks are equal. A restarted
    client may give the sequence id to another message of the same size, but with another publish time.
    """

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._admitted: OrderedDict[str, ChunkInfo] = OrderedDict()
        self._stored: OrderedDict[str, ChunkInfo] = OrderedDict()

    def admit(self, producer: str, chunk: ChunkInfo) -> bool:
        """Return whether the chunk is new. A new one counts as admitted from here on, durable or not."""
        if chunk.is_behind(self._admitted.get(producer)) or chunk.is_behind(self._stored.get(producer)):
            return False
        self._count(self._admitted, producer, chunk)
        return True

    def stored(self, producer: str, chunk: ChunkInfo) -> None:
        """The chunk is durable. Called for live appends, and when the log is read again after a start."""
        if not chunk.is_behind(self._stored.get(producer)):
            self._count(self._stored, producer, chunk)

    def _count(self, newest: OrderedDict[str, ChunkInfo], producer: str, chunk: ChunkInfo) -> None:
        before = newest.pop(producer, None)
        if chunk.follows(before) and chunk.number < chunk.chunks - 1:
            newest[producer] = chunk
            if len(newest) > self._producers_max:
                newest.popitem(last=False)

    def to_json(self) -> dict[str, list[int]]:
        """What is durable, for the checkpoint; least recent first."""
        return {producer: list(chunk) for producer, chunk in self._stored.items()}

    @classmethod
    def from_json(cls, state: Mapping[str, Sequence[Any]]) -> ChunkTracker:
        """Start from a checkpoint."""
        tracker = cls()
        for producer, numbers in state.items():
            tracker._stored[producer] = ChunkInfo(*map(int, numbers))
        return tracker
