"""What a topic's state reads of an entry: the metadata that is admitted and folded, and the identity of a chunk."""

from __future__ import annotations

from typing import Protocol

from emulator.core.admission import Scanned
from emulator.core.topic.deduplication import ChunkInfo
from emulator.model.transaction_names import TxnId


class EntryFacts(Scanned, Protocol):
    """The fields of an entry's metadata that are admitted and folded."""

    @property
    def is_batch(self) -> bool: ...
    @property
    def chunk_id(self) -> int | None: ...
    @property
    def num_chunks(self) -> int: ...
    @property
    def replicate_to(self) -> tuple[str, ...]: ...
    @property
    def publish_time_ms(self) -> int: ...
    @property
    def txn(self) -> TxnId | None:
        """Id of its transaction; None: the entry has none."""
        ...


def is_inner_chunk(facts: EntryFacts) -> bool:
    """Whether this is a chunk other than the last: only the last chunk records the message's sequence id."""
    return facts.num_chunks > 1 and facts.chunk_id != facts.num_chunks - 1


def chunk_of(facts: EntryFacts) -> ChunkInfo | None:
    """Return the identity of a chunk; None when the entry has no valid chunk id."""
    number, chunks = facts.chunk_id, facts.num_chunks
    if number is None or not 0 <= number < chunks:
        return None
    return ChunkInfo(facts.sequence_id, facts.publish_time_ms, chunks, number)
