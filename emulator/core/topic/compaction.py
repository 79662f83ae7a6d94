"""Compaction: only the newest message of each key stays (docs/components/compaction.md).

Compaction has two phases. `LatestOfKeys` is the only state between them; it grows with the keys, not the messages.

    phase one   every entry, in log order:  `note`     record the newest message of each key
    phase two   the same entries again:     `staying`  select the entry's messages that stay

A message without a key stays. A message whose payload is null or empty deletes its key: no message of the key stays,
not even the deletion. A deletion stays only after an entry that cannot be parsed (an encrypted batch, for example),
because that entry may contain a value of the key, and deleted values must not reappear (INV-33).

The chunks of a message count as one message, which is complete with its last chunk. An incomplete message stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from emulator.model.values import KeyedEntry, MessageChunk

KEYS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum memory of the keys of one compaction. Beyond it the compaction fails and changes nothing."""
KEY_OVERHEAD_BYTES: Final = 250
"""Memory of a key besides its text; tracemalloc measured 205 to 235."""


class TooManyKeys(ValueError):
    """The keys of a topic exceed the maximum memory; the message contains their number and the limit."""


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
        """Id of the first entry that cannot be parsed."""
        self._keys_bytes = 0
        self._keys_bytes_max = keys_bytes_max

    def __len__(self) -> int:
        return len(self._newest)

    def note(self, entry_id: int, entry: KeyedEntry) -> None:
        """Record an entry in phase one, in log order. Raises TooManyKeys when keys and names of incomplete messages
        exceed the maximum memory."""
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
