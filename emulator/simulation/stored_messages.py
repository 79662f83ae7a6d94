"""What the media of simulated regions contain: the messages of each log and the cursors, without asking brokers.

`Disks` reads each entry once, because it is updated many times while a run converges.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from sys import intern
from typing import Final, NamedTuple

from emulator.config.region import NamespaceConfig
from emulator.errors import GeoemuError, ProtocolError
from emulator.model.markers import TXN_ABORT, TXN_COMMIT
from emulator.model.stored_keys import parse_key
from emulator.model.values import Position, TopicName
from emulator.simulation.durable_media import DurableLog, Medium
from emulator.wire.message_metadata import EntryInfo, scan_entry
from emulator.wire.payloads import split_batch
from spark_jobs.evidence.cursors import DecodedCursor, cursors_in

MESSAGES = "persistent://"
"""Prefix of logs that contain messages. Other logs belong to transaction coordinators or to compaction."""
SYSTEM = "persistent://pulsar/system/"
"""Prefix of topics to which regions publish, not clients."""
_new_tuple: Final = tuple.__new__
"""Creates a NamedTuple without the call of its constructor, which is written in Python."""
_scan_verified = lru_cache(maxsize=8192)(partial(scan_entry, verify=True))
"""Decoding depends on an entry's bytes alone, and about six readers (regions and checkers) decode each one."""


def scan_once(data: bytes, *, verify: bool = False, is_usual: bool = True) -> EntryInfo:
    """Return the same as `scan_entry`. Valid entries are parsed once, whatever the readers verify and expect."""
    try:
        return _scan_verified(data)
    except ProtocolError:
        if verify:
            raise
        return scan_entry(data, is_usual=is_usual)


class MessageOrigin(NamedTuple):
    """The identity of a message, the same in all regions."""

    topic: str
    region: str
    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer} {self.number} of {self.region}"


Txn = tuple[int, int]
"""Id of a transaction, unique within a region."""


class StoredMessage(NamedTuple):
    """One message in the log of one region."""

    origin: MessageOrigin
    text: str
    region: str
    ledger: int
    entry: int
    batch_index: int
    source: Position | None
    """Position in the log of the origin region, as stored in the entry; None for a message published here."""
    replicate_to: tuple[str, ...]
    published_ms: int = 0
    """Publish time, by the producer's clock."""
    due_ms: int = 0
    """Earliest time of delivery, by the region's clock; 0 without a delay."""

    @property
    def message_id(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.batch_index}"


@dataclass(slots=True)
class LogView:
    """The decoded content of one log, including entries that were trimmed later."""

    region: str
    topic: str
    ledger: int
    messages: list[StoredMessage] = field(default_factory=list)
    """The readable messages in log order: without aborted ones, and up to the first message of an open transaction
    (INV-63)."""
    markers: set[int] = field(default_factory=set)
    """Entry ids of markers."""
    garbled: list[int] = field(default_factory=list)
    """Ids of entries that cannot be decoded."""
    ids: list[int] = field(default_factory=list)
    """Ids of all entries, in log order."""
    counts: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    """Number of readable messages by (origin region, `replicate_to`)."""
    by_message_id: dict[str, StoredMessage] = field(default_factory=dict)
    """All messages in log order, by the text of their message id."""
    waiting: deque[tuple[StoredMessage, Txn | None]] = field(default_factory=deque)
    """Messages that are not readable yet: the first of them belongs to an open transaction."""
    committed: dict[Txn, bool] = field(default_factory=dict)
    """For each transaction that ended in this log, whether it committed."""

    def read_new_entries(self, log: DurableLog) -> None:
        for entry_id, data in log.all_entries(len(self.ids)):
            self.ids.append(entry_id)
            self._read(entry_id, data)

    def _read(self, entry_id: int, data: bytes) -> None:
        try:
            info = _scan_verified(data)
            if info.marker_type is not None:
                self.markers.add(entry_id)
                if info.txn is not None and info.marker_type in (TXN_COMMIT, TXN_ABORT):
                    self.committed.setdefault(info.txn, info.marker_type == TXN_COMMIT)
                    self._release()
                return
            payload = data[info.payload_offset :]
            if not info.is_batch:
                self._add(info, entry_id, -1, info.sequence_id, payload)
            else:
                messages = list(split_batch(info, payload))  # a malformed batch counts as a whole
                for index, (single, part) in enumerate(messages):
                    self._add(info, entry_id, index, single.sequence_id, part)
        except (GeoemuError, ValueError):
            self.garbled.append(entry_id)

    def _add(self, info: EntryInfo, entry_id: int, index: int, number: int, payload: bytes) -> None:
        """Add a message, with its index in its batch or -1 and its sequence id."""
        origin = (self.topic, info.replicated_from or self.region, info.producer_name, number)
        fields = (
            _new_tuple(MessageOrigin, origin),
            payload.rstrip(b" ").decode(),
            self.region,
            self.ledger,
            entry_id,
            index,
            info.source_position,
            info.replicate_to,
            info.publish_time_ms,
            info.deliver_at_time_ms or 0,
        )
        stored = _new_tuple(StoredMessage, fields)
        self.by_message_id[f"{self.ledger}:{entry_id}:{index}"] = stored
        if info.txn is None and not self.waiting:
            self._add_readable(stored)
        else:
            self.waiting.append((stored, info.txn))
            self._release()

    def _release(self) -> None:
        """Move messages that have become readable from `waiting` to `messages`; drop aborted ones."""
        while self.waiting:
            stored, txn = self.waiting[0]
            if txn is not None and txn not in self.committed:
                return
            self.waiting.popleft()
            if txn is None or self.committed[txn]:
                self._add_readable(stored)

    def _add_readable(self, stored: StoredMessage) -> None:
        self.messages.append(stored)
        self.counts[stored.origin.region, stored.replicate_to] += 1


class Disks:
    """The content of all regions' media. `logs` has no topic whose full name starts with a prefix in `ignored`."""

    def __init__(self, disks: Mapping[str, Medium], *, ignored: tuple[str, ...] = ()) -> None:
        self._disks = disks
        self._ignored = (SYSTEM, *ignored)
        self.logs: dict[tuple[str, str], LogView] = {}
        """The decoded logs, by (region, full topic name)."""

    def read_new_entries(self, only: str | None = None) -> None:
        """Read the entries stored since the last call, in all regions or one."""
        for region, disk in self._disks.items() if only is None else [(only, self._disks[only])]:
            for name, log in disk.logs.items():
                if not name.startswith(MESSAGES) or name.startswith(self._ignored):
                    continue
                view = self.logs.get((region, name))
                if view is None:
                    view = self.logs[region, name] = LogView(region, intern(name), log.ledger_id)
                if len(view.ids) < len(log.trimmed) + len(log.ids):
                    view.read_new_entries(log)

    def fencing_violations(self) -> list[str]:
        """Return a sentence for each write of an older owner after a newer one had taken the log over, by region."""
        return [
            sentence for region, disk in self._disks.items() for sentence in fencing_violations(region, disk)
        ]

    def cursors(self) -> dict[tuple[str, str, str], DecodedCursor]:
        """Return the stored cursors by (region, topic, subscription)."""
        found = {}
        for region, disk in self._disks.items():
            rows = [(parse_key(text), versioned.value) for text, versioned in sorted(disk.values.items())]
            for key, cursor in cursors_in(rows).items():
                if key.topic.startswith(SYSTEM):
                    continue
                found[region, key.topic, key.subscription] = cursor
        return found


class ReplicationRules:
    """The replication regions and the deduplication of each topic, according to its namespace."""

    def __init__(self, namespaces: Iterable[NamespaceConfig]) -> None:
        self._namespaces = {one.name: one for one in namespaces}
        self._of_topics: dict[str, NamespaceConfig] = {}
        self._required: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}

    def regions(self, topic: str) -> tuple[str, ...]:
        """Return the regions that replicate the topic with this full name."""
        return self._of(topic).regions

    def deduplicates(self, topic: str) -> bool:
        return self._of(topic).deduplication or False

    def required_regions(self, topic: str, origin: str, replicate_to: tuple[str, ...]) -> list[str]:
        """Return the regions that must store a message of the region `origin`: that region, and the topic's regions in
        `replicate_to` (all if empty)."""
        key = (topic, origin, replicate_to)
        found = self._required.get(key)
        if found is None:
            found = self._required[key] = [
                region
                for region in self.regions(topic)
                if region == origin or not replicate_to or region in replicate_to
            ]
        return found

    def _of(self, topic: str) -> NamespaceConfig:
        found = self._of_topics.get(topic)
        if found is None:
            found = self._of_topics[topic] = self._namespaces[TopicName.parse(topic).full_namespace]
        return found


def have_converged(disks: Disks, replication_rules: ReplicationRules, lost: Collection[str] = ()) -> bool:
    """Return whether every region stores as many messages of each origin as that origin stores for it. The checkers
    compare the messages themselves. Regions in `lost` are left out, as receivers and as origins."""
    stored: Counter[tuple[str, str, str]] = Counter()
    required: Counter[tuple[str, str, str]] = Counter()
    for (region, topic), view in disks.logs.items():
        if region in lost:
            continue
        for (origin, replicate_to), count in view.counts.items():
            if origin in lost:
                continue
            stored[region, topic, origin] += count
            if origin == region:
                for other in replication_rules.required_regions(topic, origin, replicate_to):
                    if other not in lost:
                        required[other, topic, origin] += count
    return stored == required


def fencing_violations(region: str, medium: Medium) -> Iterator[str]:
    """Yield a sentence for each write of an older owner after a newer one had taken the log over."""
    newest = 0
    for owner, key in medium.key_writers:
        if owner < newest:
            yield f"owner {owner} of the log of {region} wrote {key} after owner {newest} had taken it"
        newest = max(newest, owner)
    for name, log in sorted(medium.logs.items()):
        for from_entry_id, fence in log.fences:
            for entry_id, owner in zip(log.ids, log.owners, strict=True):
                if entry_id >= from_entry_id and owner < fence:
                    yield (
                        f"entry {entry_id} of {name} in {region} was stored by owner {owner} "
                        f"after owner {fence} had taken the log"
                    )
