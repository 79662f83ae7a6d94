"""Compaction: of each key only the newest message stays (docs/components/compaction.md).

Compaction has two phases. Between them `LatestOfKeys` is the only state; it grows with the keys, not the messages.

    phase one   every entry, in log order:  `note`     record the newest message of each key
    phase two   the same entries again:     `staying`  select the entry's messages that stay

A message without a key stays. A message whose payload is null or empty deletes its key: no message of the key stays,
not even the deletion. A deletion stays only behind an entry that cannot be parsed (an encrypted batch, for example):
that entry may hold a value of the key, and what was deleted must not come back (INV-33).

The chunks of a message are one message, complete with its last chunk. An incomplete one stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from emulator.model.values import KeyedEntry, MessageChunk

KEYS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum memory of the keys of one compaction. Beyond it compaction fails, and the topic stays as it is."""
KEY_OVERHEAD_BYTES: Final = 250
"""Memory of a key besides its text; tracemalloc measured 205 to 235."""


class TooManyKeys(ValueError):
    """The topic has too many keys; the message contains their number and the limit."""


class _Newest(NamedTuple):
    entry_id: int
    at: int
    """Index of the message in its batch."""
    deletes: bool
    chunks_of: str
    """Name of the chunked message; empty: the message is not chunked."""


class LatestOfKeys:
    """The newest message of each key. Owned by one compaction."""

    def __init__(self, keys_bytes_max: int = KEYS_BYTES_MAX) -> None:
        self._newest: dict[str, _Newest] = {}
        self._incomplete: set[str] = set()
        """Names of chunked messages whose last chunk was not read."""
        self._first_opaque: int | None = None
        self._keys_bytes = 0
        self._keys_bytes_max = keys_bytes_max

    def __len__(self) -> int:
        return len(self._newest)

    def note(self, entry_id: int, entry: KeyedEntry) -> None:
        """Record an entry in phase one, in log order. Raises TooManyKeys when the keys exceed the maximum memory."""
        messages, chunk = entry.messages, entry.chunk
        if messages is None:
            if self._first_opaque is None:
                self._first_opaque = entry_id
            return
        if chunk is not None and not chunk.is_last:
            self._count_key(chunk.of, chunk.of in self._incomplete)
            self._incomplete.add(chunk.of)
            return
        chunks_of = ""
        if chunk is not None:
            chunks_of = chunk.of
            self._incomplete.discard(chunks_of)
        for index, message in enumerate(messages):
            if message.key is not None and not message.is_gone:
                self._count_key(message.key, message.key in self._newest)
                self._newest[message.key] = _Newest(entry_id, index, message.deletes, chunks_of)

    def _count_key(self, text: str, is_known: bool) -> None:
        if is_known:
            return
        self._keys_bytes += len(text) + KEY_OVERHEAD_BYTES
        if self._keys_bytes > self._keys_bytes_max:
            raise TooManyKeys(
                f"more than {len(self._newest):,} keys need more than the {self._keys_bytes_max:,} bytes that a "
                "compaction may use"
            )

    def staying(self, entry_id: int, entry: KeyedEntry) -> list[int] | None:
        """Return the indexes of the entry's messages that stay, in phase two. None: the entry stays as it is."""
        messages, chunk = entry.messages, entry.chunk
        if messages is None or (chunk is not None and chunk.of in self._incomplete):
            return None
        present = [index for index, message in enumerate(messages) if not message.is_gone]
        stay = [index for index in present if self._stays(entry_id, index, messages[index].key, chunk)]
        return None if stay == present and present else stay

    def _stays(self, entry_id: int, index: int, key: str | None, chunk: MessageChunk | None) -> bool:
        if key is None:
            return True
        newest = self._newest.get(key)
        if newest is None:
            return True  # chunks of one message with different keys, which are undefined
        if newest.deletes:
            behind_opaque = self._first_opaque is not None and entry_id > self._first_opaque
            return behind_opaque and (entry_id, index) == newest[:2]
        if chunk is not None:
            return chunk.of == newest.chunks_of
        return (entry_id, index) == newest[:2]
