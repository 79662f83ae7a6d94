"""The input of the checkers: the responses that clients received and the content of media, without asking brokers.

`Disks` reads each entry once, because it is updated many times while a run converges.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import NamedTuple

from emulator.config.region import NamespaceConfig
from emulator.errors import GeoemuError
from emulator.model.markers import TXN_ABORT, TXN_COMMIT
from emulator.model.stored_keys import parse_key
from emulator.model.values import Position, TopicName
from emulator.run.history_events import HistoryEvent
from emulator.simulation.durable_media import DurableLog, Medium
from emulator.simulation.virtual_time import EPOCH_MS
from emulator.wire.message_metadata import EntryInfo, scan_entry
from emulator.wire.payloads import split_batch
from spark_jobs.evidence.cursors import DecodedCursor, cursors_in

MESSAGES = "persistent://"
"""Prefix of logs that contain messages. Other logs belong to transaction coordinators or to compaction."""
SYSTEM = "persistent://pulsar/system/"
"""Prefix of topics to which regions publish, not clients."""

scan_once = lru_cache(maxsize=8192)(scan_entry)
"""Decoding depends on an entry's bytes alone, and about six readers (regions and checkers) decode each one."""


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
            info = scan_once(data, verify=True)
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
            self._release()
        except (GeoemuError, ValueError):
            self.garbled.append(entry_id)

    def _add(self, info: EntryInfo, entry_id: int, index: int, number: int, payload: bytes) -> None:
        """Add a message, with its index in its batch or -1 and its sequence id."""
        origin = MessageOrigin(self.topic, info.replicated_from or self.region, info.producer_name, number)
        text = payload.rstrip(b" ").decode()
        stored = StoredMessage(
            *(origin, text, self.region, self.ledger, entry_id, index),
            *(info.source_position, info.replicate_to, info.publish_time_ms),
            info.deliver_at_time_ms or 0,
        )
        self.by_message_id[stored.message_id] = stored
        self.waiting.append((stored, info.txn))

    def _release(self) -> None:
        """Move messages that have become readable from `waiting` to `messages`; drop aborted ones."""
        while self.waiting:
            stored, txn = self.waiting[0]
            if txn is not None and txn not in self.committed:
                return
            self.waiting.popleft()
            if txn is None or self.committed[txn]:
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
                    view = self.logs[region, name] = LogView(region, name, log.ledger_id)
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


class Windows:
    """The periods in which consumers may have moved or deleted their subscriptions: from the request to the response,
    without an end if there was no response."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._of: dict[tuple[str, str, str], list[list[float]]] = defaultdict(list)

    def begin(self, region: str, topic: str, subscription: str) -> list[float]:
        """Begin a window, and return it for `end`."""
        window = [self._now_seconds(), inf]
        self._of[region, topic, subscription].append(window)
        return window

    def end(self, window: list[float]) -> None:
        """End the window: the response has arrived."""
        window[1] = self._now_seconds()

    def is_open(self, region: str, topic: str, subscription: str) -> bool:
        return self.last_end(region, topic, subscription) == inf

    def last_end(self, region: str, topic: str, subscription: str) -> float:
        """Return the latest time at which the subscription may have been moved, in virtual seconds; -1: never."""
        return max((end for _, end in self._of.get((region, topic, subscription), ())), default=-1.0)


class DeliveredMessages:
    """The messages that each subscription's consumers received: of a replicated subscription in all regions together,
    of any other separately in each region."""

    def __init__(self) -> None:
        self.replicated: set[tuple[str, str]] = set()
        """(topic, subscription) of the replicated subscriptions."""
        self._delivered: dict[tuple[str, str, str], set[tuple[MessageOrigin, str]]] = defaultdict(set)
        self._skipped: dict[tuple[str, str, str], set[tuple[MessageOrigin, str]]] = defaultdict(set)

    def add(self, region: str, topic: str, subscription: str, origin: MessageOrigin, text: str) -> None:
        self._delivered[self._key(region, topic, subscription)].add((origin, text))

    def skip(self, region: str, topic: str, subscription: str, origin: MessageOrigin, text: str) -> None:
        """Record that a seek skipped the message: it need not be delivered."""
        self._skipped[self._key(region, topic, subscription)].add((origin, text))

    def to(self, region: str, topic: str, subscription: str) -> Callable[[MessageOrigin, str], bool]:
        """Return a predicate that is true for messages that the subscription in that region delivered to a consumer or
        skipped by a seek."""
        key = self._key(region, topic, subscription)
        delivered, skipped = self._delivered[key], self._skipped[key]
        return lambda origin, text: (origin, text) in delivered or (origin, text) in skipped

    def _key(self, region: str, topic: str, subscription: str) -> tuple[str, str, str]:
        return ("" if (topic, subscription) in self.replicated else region, topic, subscription)


class PublishAttempt(NamedTuple):
    """The combined outcome of all attempts to send one message."""

    text: str
    acknowledged: bool
    message_ids: tuple[str, ...]
    """The message ids in the receipts that the client received."""


Published = dict[MessageOrigin, dict[str, PublishAttempt]]
"""Attempts by origin, then by text: a sequence id may belong to several messages whose outcome is unknown."""


def note_publish(published: Published, event: HistoryEvent) -> None:
    """Add a client's publish request or its response to `published`."""
    attempts = published.setdefault(origin_of(event), {})
    text = event.detail or ""
    if event.outcome == "ok":
        before = attempts.get(text)
        ids = before.message_ids if before is not None else ()
        if event.message_id is not None and not event.message_id.startswith("-1"):
            ids = (*ids, event.message_id)
        attempts[text] = PublishAttempt(text, True, ids)
    elif text not in attempts:
        attempts[text] = PublishAttempt(text, False, ())


@dataclass(slots=True)
class RunEvidence:
    """The input of all checks of a simulated run."""

    replication_rules: ReplicationRules
    events: Sequence[HistoryEvent]
    delivered: DeliveredMessages
    logs: Mapping[tuple[str, str], LogView]
    cursors: Mapping[tuple[str, str, str], DecodedCursor]
    mark_delete_regressions: Sequence[str]
    """A sentence for each stored mark-delete position that moved back."""
    acknowledged_unreceived: Sequence[tuple[str, StoredMessage]]
    """(subscription, message) that a stored cursor counted as consumed before any consumer received it."""
    healed: bool
    """The run was repaired and had time to converge; only then, liveness is checked."""
    fencing_violations: Sequence[str] = ()
    """A sentence for each write of an older owner after a newer one had taken the log over."""
    subscribed: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """The regions in which a subscription must have received all messages, by (topic, subscription)."""
    windows: Windows = field(default_factory=lambda: Windows(lambda: 0.0))
    lost: Collection[str] = ()
    """Regions that never came back. Their messages need not be replicated to other regions, and other regions need not
    replicate to them. Their disks are checked in their last state."""
    copies: dict[str, dict[MessageOrigin, list[StoredMessage]]] = field(default_factory=dict)
    """A cache of all copies of each message, by region; filled by the checks."""
    published: Published = field(default_factory=dict)
    """The messages that clients published, and the responses that they received."""

    @property
    def topics(self) -> list[str]:
        return sorted({topic for _, topic in self.logs})

    def log(self, region: str, topic: str) -> LogView:
        return self.logs.get((region, topic)) or LogView(region, topic, -1)


def full(topic: str | None) -> str:
    assert topic is not None
    return topic if "://" in topic else f"persistent://public/default/{topic}"


def seconds_of(event: HistoryEvent) -> float:
    """Return the time of the event in virtual seconds since the beginning of the run."""
    return (event.at_ms - EPOCH_MS) / 1000


def origin_of(event: HistoryEvent) -> MessageOrigin:
    assert event.origin_region is not None
    assert event.producer is not None
    assert event.sequence_id is not None
    return MessageOrigin(full(event.topic), event.origin_region, event.producer, event.sequence_id)
