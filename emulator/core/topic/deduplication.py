"""Deduplication: storing each message once, by three maps per topic.

*Has this producer sent the message before?* (`ProducerDeduplication`) A producer numbers its messages; after it has
lost its connection it resends all messages without a receipt. The map has two numbers per producer name:

    persisted   highest durable sequence id
    pushed      highest admitted sequence id, durable or not. Invariant: pushed >= persisted

    ────────────┤ persisted ├─── in flight ───┤ pushed ├────────▶ sequence ids
      DUPLICATE                DUPLICATE                  ACCEPT

A duplicate of a message in flight must not be acknowledged before that message is durable. The broker ensures this: it
acknowledges a duplicate only after all earlier appends. Upstream responds to such a send with an error instead.

*Has this region's replicator sent the entry before?* (`SourceWatermarks`) A replicator sends its log in order and,
after any failure, again from an earlier position; positions in the source log are compared. Markers are checked only
here, so that each takes effect once.

*Is this chunk stored already?* (`ChunkTracker`) A chunk of an incomplete message is stored once, even where the topic
does not deduplicate.

The outcome of a failed append is unknown. The broker then unloads the topic with these objects and rebuilds them: from
the last checkpoint (`from_json`), then by `persisted`, `advance` and `stored` for every entry stored since. So their
state does not depend on the age of the checkpoint. An admission is never undone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.model.values import BEFORE_EVERYTHING, Position

PRODUCER_NAMES_MAX = 10_000
"""Maximum number of remembered producer names per topic; upstream's default."""


def last_sequence_id(sequence_id: int, highest_sequence_id: int, messages: int) -> int:
    """Return the sequence id of the last message of an entry.

    The C++ client, and all clients built on it, omit `highest_sequence_id`. Ids of one producer grow, so the last one
    is at least `sequence_id + messages - 1`; it is equal if the client library assigns the ids.
    """
    assert messages > 0, "an entry has at least one message"
    last = sequence_id + messages - 1
    return highest_sequence_id if highest_sequence_id > last else last


class PublishVerdict(Enum):
    """The decision about one publish."""

    ACCEPT = "store it"
    DUPLICATE = "already admitted: do not store it; acknowledge it after everything issued before"


_ACCEPT: Final = PublishVerdict.ACCEPT
_DUPLICATE: Final = PublishVerdict.DUPLICATE
"""Every publish reads these; reading the member of the enum takes several times as long."""


class _Progress:
    """The highest sequence ids of one producer name. Invariant: pushed >= persisted."""

    __slots__ = ("persisted", "pushed")

    def __init__(self, persisted: int) -> None:
        self.persisted = persisted
        self.pushed = persisted


class ProducerDeduplication:
    """The highest sequence ids of each producer of one topic. Beyond `names_max` the least recently used name is
    forgotten."""

    def __init__(self, names_max: int = PRODUCER_NAMES_MAX) -> None:
        self._names_max = names_max
        self._progress: OrderedDict[str, _Progress] = OrderedDict()
        """Producer name -> its sequence ids, least recently used first."""
        self.drops_overlaps = False
        """Whether a batch is a duplicate when its first message is, as upstream
        (`compatibility: overlapping_batches`)."""

    def admit(
        self, name: str, sequence_id: int, highest_sequence_id: int, *, is_chunk_not_last: bool = False
    ) -> PublishVerdict:
        """Decide about one publish: a message, a batch (sequence ids sequence_id..highest_sequence_id; for a single
        message the latter is lower) or a chunk. An accepted publish counts as pushed from here on, except chunks before
        the last one.

        A batch is a duplicate only when all its messages are. A batch that only overlaps known ids is stored: an
        application that resends from its own checkpoint may batch differently. Upstream acknowledges and drops such a
        batch and loses its new messages (`drops_overlaps`), but no acknowledged publish may be lost.

        All chunks of a message have its sequence id, which is recorded with the last one only. So a known id means a
        complete message, of which every chunk is a duplicate; before that none is.
        """
        last = highest_sequence_id if highest_sequence_id > sequence_id else sequence_id
        progress = self._progress.get(name)
        if progress is not None:
            compared = sequence_id if is_chunk_not_last or self.drops_overlaps else last
            if compared <= progress.pushed:
                return _DUPLICATE
        if not is_chunk_not_last:
            if progress is None:
                progress = self._remember(name)
            else:
                self._progress.move_to_end(name)
            progress.pushed = last
        return _ACCEPT

    def highest_admitted(self, name: str) -> int:
        """Return the highest admitted sequence id of a producer; -1: unknown. Messages above it are no duplicates."""
        progress = self._progress.get(name)
        return -1 if progress is None else progress.pushed

    def persisted(self, name: str, highest_sequence_id: int) -> None:
        """Note that all messages up to this sequence id are durable. Called for new entries, and when the log is read
        again after a start."""
        progress = self._progress.get(name)
        if progress is None:
            progress = self._remember(name)
        else:
            self._progress.move_to_end(name)
        if highest_sequence_id > progress.persisted:
            progress.persisted = highest_sequence_id
            if highest_sequence_id > progress.pushed:
                progress.pushed = highest_sequence_id

    def last_sequence_id(self, name: str) -> int:
        """Return the highest durable sequence id of a producer, after which its client continues; -1: unknown."""
        progress = self._progress.get(name)
        return -1 if progress is None else progress.persisted

    def _remember(self, name: str) -> _Progress:
        """Add a new name as the most recently used."""
        progress = self._progress[name] = _Progress(-1)
        if len(self._progress) > self._names_max:
            self._progress.popitem(last=False)
        return progress

    def __len__(self) -> int:
        return len(self._progress)

    def to_json(self) -> dict[str, Any]:
        """Return the durable sequence ids for the checkpoint, least recently used first."""
        return {"persisted": {n: p.persisted for n, p in self._progress.items() if p.persisted >= 0}}

    @classmethod
    def from_json(
        cls, state: Mapping[str, Any], names_max: int = PRODUCER_NAMES_MAX
    ) -> ProducerDeduplication:
        """Restore the state of a checkpoint."""
        deduplication = cls(names_max)
        for name, sequence_id in state["persisted"].items():
            deduplication.persisted(name, sequence_id)
        return deduplication


class SourceWatermarks:
    """The newest position received from each other region's replicator, for one topic.

    Invariant: the watermark of a region only grows.
    """

    def __init__(self) -> None:
        self._highest: dict[str, Position] = {}

    def lacks(self, source_region: str, position: tuple[int, int]) -> bool:
        """Whether the entry at this (ledger, entry) of the source region's log was never received."""
        highest = self._highest.get(source_region)
        return highest is None or position > highest

    def advance(self, source_region: str, position: Position) -> bool:
        """Raise the watermark to this entry if it is new. Returns False, without effect, for an entry that is not."""
        highest = self._highest.get(source_region)
        if highest is None or position > highest:
            self._highest[source_region] = position
            return True
        return False

    def highest(self, source_region: str) -> Position:
        """Return the newest position received from a region; BEFORE_EVERYTHING when none was."""
        return self._highest.get(source_region, BEFORE_EVERYTHING)

    @property
    def positions(self) -> dict[str, Position]:
        """The newest position received from each region."""
        return dict(self._highest)

    def to_json(self) -> dict[str, Any]:
        """Return the watermarks for the checkpoint."""
        return {region: str(position) for region, position in sorted(self._highest.items())}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> SourceWatermarks:
        """Restore the state of a checkpoint."""
        watermarks = cls()
        for region, text in state.items():
            watermarks.advance(region, Position.parse(text))
        return watermarks


PRODUCERS_MAX: Final = 10_000
"""Maximum number of producers with an incomplete message, per topic. Beyond it the one with the oldest newest chunk is
forgotten: its chunks may then be stored twice."""


class ChunkInfo(NamedTuple):
    """Identity of one chunk of a message."""

    sequence_id: int
    publish_time_ms: int
    chunks: int
    number: int
    """Index of the chunk in its message; 0 is the first."""

    def follows(self, other: ChunkInfo | None) -> bool:
        """Whether this is the chunk after `other`, or the first of another message."""
        return self.number == 0 or (
            other is not None and self[:3] == other[:3] and self.number == other.number + 1
        )

    def is_behind(self, other: ChunkInfo | None) -> bool:
        """Whether this chunk belongs to the same message as `other` and is not later."""
        return other is not None and self[:3] == other[:3] and 0 <= self.number <= other.number


class ChunkTracker:
    """The admitted and stored chunks of the incomplete messages of one topic (INV-92). For each producer it records
    only the newest chunk of its current message, if all earlier chunks of the message were recorded before.

    A client splits a large message into chunks and publishes them one by one. When its connection breaks in between it
    resends all chunks without a receipt, which may be stored already. If a chunk is stored twice, the whole message is
    lost: the C++ client, and all clients built on it, discard a message when a chunk is out of order.

        chunks of one message      0 ── 1 ── 2 ── 3 ── 4
                                   └ stored ─┘    the last one completes the message, which is then forgotten here
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
        self._record(self._admitted, producer, chunk)
        return True

    def stored(self, producer: str, chunk: ChunkInfo) -> None:
        """Note that a chunk is durable. Called for new entries, and when the log is read again after a start."""
        if not chunk.is_behind(self._stored.get(producer)):
            self._record(self._stored, producer, chunk)

    def _record(self, newest: OrderedDict[str, ChunkInfo], producer: str, chunk: ChunkInfo) -> None:
        before = newest.pop(producer, None)
        if chunk.follows(before) and chunk.number < chunk.chunks - 1:
            newest[producer] = chunk
            if len(newest) > self._producers_max:
                newest.popitem(last=False)

    def to_json(self) -> dict[str, list[int]]:
        """Return the durable chunks for the checkpoint, least recent first."""
        return {producer: list(chunk) for producer, chunk in self._stored.items()}

    @classmethod
    def from_json(cls, state: Mapping[str, Sequence[Any]]) -> ChunkTracker:
        """Restore the state of a checkpoint."""
        tracker = cls()
        for producer, numbers in state.items():
            tracker._stored[producer] = ChunkInfo(*map(int, numbers))
        return tracker
