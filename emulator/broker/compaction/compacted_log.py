"""The compacted log of a topic: the row that names it, the view that finds entries by their ids in the topic's own log,
and the source of messages for consumers that read compacted."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Final, Self

from emulator.broker.topic.reading import Readable
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic_directory.stored_topics import LogKind
from emulator.core.topic.state import LastData
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import CompactionKey
from emulator.model.values import TopicName
from emulator.storage.contract import Log, Store

_UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
_ID: Final = Struct(">Q")
KNOWN_IDS_MAX: Final = 64
"""Maximum number of remembered ends of reads, so that as many sequential readers continue without a search."""


@dataclass(frozen=True, slots=True)
class CompactedRow:
    """The stored row that names a compacted log, written only after that log is durable to its last entry (INV-32)."""

    generation: int
    ledger_id: int
    """Ledger id of the topic's log. A row with another one belongs to an older topic of the same name."""
    horizon: int
    """Id below which all entries of the topic's log were compacted."""
    last_entry_id: int
    """Id, in the topic's log, of the newest entry in the compacted log; -1: the compacted log is empty."""
    last_index: int
    """Index of the last message of that entry in its batch; -1: the entry is no batch."""
    entries: int
    size_bytes: int
    at_ms: int
    """Time at which the compacted log was complete, by the region's clock; shown to users."""
    removed: int
    """Number of entries that this compaction read, from the former compacted log and the topic's log, and did not keep;
    shown to users."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, key: str, value: bytes) -> Self:
        """Decode a stored row. StorageDamaged when it cannot be read."""
        try:
            fields = json.loads(value)
            return cls(**{name: int(fields[name]) for name in cls.__slots__})
        except _UNREADABLE as problem:
            raise StorageDamaged(
                f"{key} is damaged ({type(problem).__name__}: {problem}): the compacted log is unknown"
            ) from None


def read_row(store: Store, topic: str) -> CompactedRow | None:
    """Return the stored row of a topic; None: there is none. StorageDamaged when it cannot be read."""
    key = CompactionKey.text_of(topic)
    stored = store.get(key)
    return None if stored is None else CompactedRow.decode(key, stored.value)


def log_name(topic: TopicName, generation: int) -> str:
    """Return the name of a compacted log. The generation precedes the topic's name, which may contain slashes, so that
    no two topics share a log name."""
    return f"{LogKind.COMPACTED_VIEW.value}://{topic.full_namespace}/{generation}/{topic.topic}"


def log_names_of(store: Store, topic: TopicName) -> list[str]:
    """Return the names of a topic's compacted logs that exist: the current one, an unfinished one, one that is not
    deleted yet. If the topic's row is damaged, only generation 1 is found."""
    try:
        row = read_row(store, str(topic))
    except StorageDamaged:
        row = None
    return log_names_near(store, topic, 0 if row is None else row.generation)


def log_names_near(store: Store, topic: TopicName, generation: int) -> list[str]:
    """As `log_names_of`, for a known generation of the stored row; 0: there is no row."""
    names = [log_name(topic, number) for number in range(max(1, generation - 1), generation + 2)]
    return [name for name in names if store.has_log(name)]


def encode_record(entry_id: int, data: bytes) -> bytes:
    """Encode an entry of the compacted log: its id in the topic's log, then its bytes."""
    return _ID.pack(entry_id) + data


class CompactedView:
    """One generation of the compacted log, which all readers share. After `retire` its log can be deleted once the last
    read has ended."""

    def __init__(self, log: Log, row: CompactedRow) -> None:
        self.log = log
        self.row = row
        self._known_ids: OrderedDict[int, int] = OrderedDict()
        """Ends of reads: id in the topic's log -> id in this log of the first entry at or after it."""
        self._reads = 0
        self._on_unused: Callable[[], None] | None = None

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Return entries from an id of the topic's log on, in the order of the topic's log; empty at the end.
        StorageError when the store fails."""
        self._reads += 1
        try:
            at = await self._id_of(from_entry_id)
            found = await self.log.read(at, entries_max, bytes_max)
        finally:
            self._reads -= 1
            self._report_if_unused()
        if not found:
            return []
        entries = [StoredEntry.read(_ID.unpack_from(data)[0], data[_ID.size :]) for _, data in found]
        self._remember(entries[-1].entry_id + 1, found[-1].entry_id + 1)
        return entries

    def _remember(self, entry_id: int, compacted_id: int) -> None:
        self._known_ids[entry_id] = compacted_id
        if len(self._known_ids) > KNOWN_IDS_MAX:
            self._known_ids.popitem(last=False)

    async def _id_of(self, entry_id: int) -> int:
        """Return the id in this log of the first entry at or after an id of the topic's log. A binary search; ids in
        this log may have gaps, too (S3)."""
        known = self._known_ids.pop(entry_id, None)
        if known is not None:
            return known
        low, high = self.log.first_entry_id, self.log.next_entry_id
        while low < high:
            middle = (low + high) // 2
            found = await self.log.read(middle, 1, 1)
            if not found or found[0].entry_id >= high or _ID.unpack_from(found[0].data)[0] >= entry_id:
                high = middle
            else:
                low = found[0].entry_id + 1
        return low

    def retire(self, on_unused: Callable[[], None]) -> None:
        """Mark the view as replaced: readers use a newer one. `on_unused` is called once, when the last read has
        ended."""
        self._on_unused = on_unused
        self._report_if_unused()

    def _report_if_unused(self) -> None:
        if self._on_unused is not None and self._reads == 0:
            report, self._on_unused = self._on_unused, None
            report()


class CompactedReading:
    """Reads the compacted log below the horizon, and the topic's own log from there on. Without a compacted log it
    reads only the topic's own."""

    def __init__(self, topic: Readable) -> None:
        self._topic = topic
        self.view: CompactedView | None = None

    @property
    def ledger_id(self) -> int:
        return self._topic.ledger_id

    @property
    def horizon(self) -> int:
        """Id below which all entries were compacted; 0 without a compacted log."""
        return 0 if self.view is None else self.view.row.horizon

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry; 0 with a compacted log, which may contain entries trimmed from the topic's log."""
        return self._topic.first_entry_id if self.view is None else 0

    @property
    def readable_end(self) -> int:
        return self._topic.readable_end

    @property
    def last_data(self) -> LastData | None:
        """The newest entry that a consumer may see; if all entries were compacted, the newest in the compacted log."""
        last = self._topic.last_data
        if self.view is None or (last is not None and last.entry_id >= self.horizon):
            return last
        row = self.view.row
        if row.last_entry_id < 0:
            return None
        return LastData(row.last_entry_id, row.last_index + 1 if row.last_index >= 0 else -1)

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """As `Readable.recent`; None for an id below the horizon."""
        return None if from_entry_id < self.horizon else self._topic.recent(from_entry_id, entries_max)

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """As `Readable.read`: compacted entries below the horizon, then those of the topic's log."""
        view = self.view
        if view is not None and from_entry_id < view.row.horizon:
            entries = await view.read(from_entry_id, entries_max, bytes_max)
            if entries:
                return entries
            from_entry_id = view.row.horizon
        return await self._topic.read(from_entry_id, entries_max, bytes_max)
