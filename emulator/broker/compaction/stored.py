"""Stored state of a topic's compaction: logs by generation, and the row that names the current one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Self

from emulator.broker.topic_directory.stored_topics import LogKind
from emulator.errors import StorageDamaged
from emulator.model.stored_keys import CompactionKey
from emulator.model.values import TopicName
from emulator.storage.contract import Store

_UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class CompactedRow:
    """Written only after the log that it names is durable to its last entry (INV-32)."""

    generation: int
    ledger_id: int
    """Ledger id of the topic's log. A row with another one belongs to an older topic of the same name."""
    horizon: int
    """Everything of the topic's log below this id was compacted."""
    last_entry_id: int
    """Id of the newest message in the compacted log; -1: it is empty."""
    last_index: int
    """Its index in its batch; -1: it is not in a batch."""
    entries: int
    size_bytes: int
    at_ms: int
    """When it was written, by the region's clock; shown to users."""
    removed: int
    """Number of entries of the topic's log that are not in the compacted one; shown to users."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, key: str, value: bytes) -> Self:
        """StorageDamaged when it cannot be read."""
        try:
            fields = json.loads(value)
            return cls(**{name: int(fields[name]) for name in cls.__slots__})
        except _UNREADABLE as problem:
            raise StorageDamaged(
                f"{key} is damaged ({type(problem).__name__}: {problem}): the compacted log is unknown"
            ) from None


def read_row(store: Store, topic: str) -> CompactedRow | None:
    """StorageDamaged when it cannot be read."""
    key = CompactionKey(topic).text
    stored = store.get(key)
    return None if stored is None else CompactedRow.decode(key, stored.value)


def log_name(topic: TopicName, generation: int) -> str:
    """Return the log's name. A generation has no slash, a topic's name may: no two topics share a log name."""
    return f"{LogKind.COMPACTED_VIEW.value}://{topic.full_namespace}/{generation}/{topic.topic}"


def log_names_of(store: Store, topic: TopicName) -> list[str]:
    """Return possible logs of a topic: the current one, an unfinished one, one that is not deleted yet."""
    try:
        row = read_row(store, str(topic))
    except StorageDamaged:
        row = None
    generation = 0 if row is None else row.generation
    names = [log_name(topic, number) for number in range(max(1, generation - 1), generation + 2)]
    return [name for name in names if store.has_log(name)]
