"""Entries of a topic's log in memory. Metadata is decoded when it is needed."""

from __future__ import annotations

from typing import Final

from emulator.core.dispatch.consistent_hash import hash_of
from emulator.model.markers import Marker
from emulator.model.values import MessageChunk
from emulator.wire.markers import stored_marker
from emulator.wire.message_metadata import (
    EntryInfo,
    chunk_of,
    scan_entry,
    scan_for_dispatch,
    sticky_key,
)

NOT_COMPUTED: Final = -1


class StoredEntry:
    """An entry of the log, with the properties that dispatch needs of every entry."""

    __slots__ = ("_info", "_key_hash", "data", "due_ms", "entry_id", "hidden", "marker", "messages")

    def __init__(self, entry_id: int, data: bytes, info: EntryInfo, marker: Marker | None = None) -> None:
        self.entry_id = entry_id
        self.data = data
        self.messages = info.num_messages
        self.due_ms = info.deliver_at_time_ms or 0
        self.hidden = info.marker_type is not None
        """Whether consumers never receive the entry: it is a marker, or a message of an aborted transaction (set by the
        topic when it reads the entry)."""
        self.marker = marker
        """The decoded marker; None for messages, and for markers that this region cannot decode or does not process."""
        self._info: EntryInfo | None = info
        self._key_hash = NOT_COMPUTED

    @classmethod
    def read(cls, entry_id: int, data: bytes) -> StoredEntry:
        """Decode an entry from the store. Of a message, only the fields that dispatch needs are decoded."""
        messages, hidden, due_ms = scan_for_dispatch(data)
        if hidden:
            info = scan_entry(data)
            return cls(entry_id, data, info, stored_marker(data, info))
        entry = object.__new__(cls)
        entry.entry_id = entry_id
        entry.data = data
        entry.messages, entry.hidden, entry.marker = messages, False, None
        entry.due_ms = due_ms
        entry._info = None
        entry._key_hash = NOT_COMPUTED
        return entry

    @property
    def info(self) -> EntryInfo:
        """The metadata, decoded at the first access."""
        if self._info is None:
            self._info = scan_entry(self.data)
        return self._info

    @property
    def is_decoded(self) -> bool:
        """Whether `info` is at hand."""
        return self._info is not None

    @property
    def replicated_from(self) -> str | None:
        """The region in which the entry originates, if it is another one."""
        return self.info.replicated_from

    @property
    def chunk(self) -> MessageChunk | None:
        """The chunk that the entry contains, for SHARED subscriptions; None: the entry contains whole messages."""
        if self._info is not None and self._info.num_chunks <= 1:
            return None
        return chunk_of(self.data)

    @property
    def is_aborted(self) -> bool:
        """Whether it is a message of an aborted transaction."""
        return self.hidden and self.info.marker_type is None

    @property
    def key_hash(self) -> int:
        """Hash of the entry's sticky key for KEY_SHARED; computed at the first access."""
        if self._key_hash == NOT_COMPUTED:
            self._key_hash = hash_of(sticky_key(self.data))
        return self._key_hash


class PlainEntry(StoredEntry):
    """A plain message of a group (`wire.codec_hot.send_groups`). Its metadata is decoded when it is needed."""

    __slots__ = ()
    chunk = None
    replicated_from = None

    def __init__(self, entry_id: int, data: bytes) -> None:
        self.entry_id = entry_id
        self.data = data
        self.messages, self.hidden, self.marker, self.due_ms = 1, False, None, 0
        self._info = None
        self._key_hash = NOT_COMPUTED


class PlainReplica(StoredEntry):
    """A plain message of a group from another region (`wire.codec_hot.replica_groups`), otherwise as a `PlainEntry`."""

    __slots__ = ("_replicated_from",)
    chunk = None

    def __init__(self, entry_id: int, data: bytes, replicated_from: str) -> None:
        self.entry_id = entry_id
        self.data = data
        self.messages, self.hidden, self.marker, self.due_ms = 1, False, None, 0
        self._replicated_from = replicated_from
        self._info = None
        self._key_hash = NOT_COMPUTED

    @property
    def replicated_from(self) -> str:
        return self._replicated_from
