"""Which messages of a topic stay when it is compacted: of each key the newest one (docs/components/compaction.md).

Two phases, and between them only what `LatestOfKeys` remembers, which grows with the keys and not with the messages.

    phase one   every entry, in log order:  `note`     which message of each key is the newest
    phase two   the same entries again:     `staying`  which of the entry's messages stay

A message without a key stays. A message whose payload is null or empty deletes its key: no message of the key stays,
not even the deletion. A deletion stays only behind an entry that cannot be parsed (an encrypted batch, for example):
that entry may hold a value of the key, and what was deleted must not come back (INV-33).

The chunks of a message are one message, complete with its last chunk. An incomplete one stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from emulator.model.values import KeyedEntry, MessageChunk

KEYS_BYTES_MAX: Final = 256 * 1024 * 1024
"""What one compaction may remember. With more it ends with an error, and the topic stays as it is."""
KEY_OVERHEAD_BYTES: Final = 250
"""What a key costs besides its text: measured with tracemalloc, 205 to 235."""


class TooManyKeys(ValueError):
    """The topic has too many keys; the message contains their number and the limit."""


class _Newest(NamedTuple):
    entry_id: int
    at: int
    """Index in its batch."""
    deletes: bool
    chunks_of: str
    """Of which chunked message; empty: it is none."""


class LatestOfKeys:
    """Owned by one compaction."""

    def __init__(self, keys_bytes_max: int = KEYS_BYTES_MAX) -> None:
        self._newest: dict[str, _Newest] = {}
        self._incomplete: set[str] = set()
        """Chunked messages whose last chunk was not seen."""
        self._first_opaque: int | None = None
        self._held_bytes = 0
        self._held_bytes_max = keys_bytes_max

    def __len__(self) -> int:
        return len(self._newest)

    def note(self, entry_id: int, entry: KeyedEntry) -> None:
        """Phase one; ids ascend. TooManyKeys when more would have to be remembered than is allowed."""
        messages, chunk = entry.messages, entry.chunk
        if messages is None:
            if self._first_opaque is None:
                self._first_opaque = entry_id
            return
        if chunk is not None and not chunk.is_last:
            self._hold(chunk.of, chunk.of in self._incomplete)
            self._incomplete.add(chunk.of)
            return
        chunks_of = ""
        if chunk is not None:
            chunks_of = chunk.of
            self._incomplete.discard(chunks_of)
        for index, message in enumerate(messages):
            if message.key is not None and not message.is_gone:
                self._hold(message.key, message.key in self._newest)
                self._newest[message.key] = _Newest(entry_id, index, message.deletes, chunks_of)

    def _hold(self, text: str, is_known: bool) -> None:
        if is_known:
            return
        self._held_bytes += len(text) + KEY_OVERHEAD_BYTES
        if self._held_bytes > self._held_bytes_max:
            raise TooManyKeys(
                f"more than {len(self._newest):,} keys need more than the {self._held_bytes_max:,} bytes that a "
                "compaction may use"
            )

    def staying(self, entry_id: int, entry: KeyedEntry) -> list[int] | None:
        """Phase two: the indexes of the messages that stay. None: the entry stays as it is."""
        messages, chunk = entry.messages, entry.chunk
        if messages is None or (chunk is not None and chunk.of in self._incomplete):
            return None
        there = [index for index, message in enumerate(messages) if not message.is_gone]
        stay = [index for index in there if self._stays(entry_id, index, messages[index].key, chunk)]
        return None if stay == there and there else stay

    def _stays(self, entry_id: int, index: int, key: str | None, chunk: MessageChunk | None) -> bool:
        if key is None:
            return True
        newest = self._newest.get(key)
        if newest is None:
            return True  # chunks of one message that name different keys: their meaning is undefined
        if newest.deletes:
            behind_opaque = self._first_opaque is not None and entry_id > self._first_opaque
            return behind_opaque and (entry_id, index) == newest[:2]
        if chunk is not None:
            return chunk.of == newest.chunks_of
        return (entry_id, index) == newest[:2]
