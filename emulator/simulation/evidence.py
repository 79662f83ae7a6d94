"""The input of the checkers: the responses that clients received, and the content of the disks. Brokers report nothing.

Logs are read from the disks, each entry once, because a `Disks` is read again and again while a run converges.
"""

from __future__ import annotations

from collections import defaultdict, deque
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
from emulator.wire.message_metadata import scan_entry
from emulator.wire.payloads import split_batch
from spark_jobs.evidence.cursors import DecodedCursor, cursors_in

MESSAGES = "persistent://"
"""Other logs are a region's own: those of transaction coordinators."""
SYSTEM = "persistent://pulsar/system/"
"""Topics that regions publish to by themselves: no client asked for what they hold."""

scan_once = lru_cache(maxsize=8192)(scan_entry)
"""Decoding depends on an entry's bytes alone, and about six readers (regions and checkers) decode each one."""


class Origin(NamedTuple):
    """A message's identity everywhere."""

    topic: str
    region: str
    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer} {self.number} of {self.region}"


Txn = tuple[int, int]
"""A transaction of a region."""


class StoredMessage(NamedTuple):
    """One message of one region's log."""

    origin: Origin
    text: str
    region: str
    ledger: int
    entry: int
    batch_index: int
    source: Position | None
    """Its position in the origin's log, as stored in the entry."""
    replicate_to: tuple[str, ...]
    published_ms: int = 0
    """Publish time by its producer's clock."""
    due_ms: int = 0
    """Earliest time of delivery, by its region's clock."""

    @property
    def place(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.batch_index}"


@dataclass(slots=True)
class LogView:
    """One log up to its end, including entries that were trimmed since."""

    region: str
    topic: str
    ledger: int
    messages: list[StoredMessage] = field(default_factory=list)
    """The readable messages in log order: without aborted ones, and up to the first message of an open transaction
    (INV-63)."""
    markers: set[int] = field(default_factory=set)
    """Their entry ids."""
    garbled: list[int] = field(default_factory=list)
    """Ids of entries that cannot be decoded."""
    ids: list[int] = field(default_factory=list)
    """Of all entries."""
    by_place: dict[str, StoredMessage] = field(default_factory=dict)
    """All messages in log order, by the text of their position."""
    waiting: deque[tuple[StoredMessage, Txn | None]] = field(default_factory=deque)
    """Not readable yet: the first one is of an open transaction."""
    committed: dict[Txn, bool] = field(default_factory=dict)
    """Transactions that ended in this log, and whether they committed."""

    def read_on(self, log: DurableLog) -> None:
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
            parts = (
                [(-1, info.sequence_id, payload)]
                if not info.is_batch
                else [
                    (index, single.sequence_id, part)
                    for index, (single, part) in enumerate(split_batch(info, payload))
                ]
            )
            origin_region = info.replicated_from or self.region
            for index, number, part in parts:
                origin = Origin(self.topic, origin_region, info.producer_name, number)
                text = bytes(part).rstrip(b" ").decode()
                stored = StoredMessage(
                    *(origin, text, self.region, self.ledger, entry_id, index),
                    *(info.source_position, info.replicate_to, info.publish_time_ms),
                    info.deliver_at_time_ms or 0,
                )
                self.by_place[stored.place] = stored
                self.waiting.append((stored, info.txn))
            self._release()
        except (GeoemuError, ValueError):
            self.garbled.append(entry_id)

    def _release(self) -> None:
        """Return the messages that may be read by now."""
        while self.waiting:
            stored, txn = self.waiting[0]
            if txn is not None and txn not in self.committed:
                return
            self.waiting.popleft()
            if txn is None or self.committed[txn]:
                self.messages.append(stored)


class Disks:
    """The content of all regions' disks. Topics whose full name starts with a prefix in `ignored` are left out."""

    def __init__(self, disks: Mapping[str, Medium], *, ignored: tuple[str, ...] = ()) -> None:
        self._disks = disks
        self._ignored = (SYSTEM, *ignored)
        self.logs: dict[tuple[str, str], LogView] = {}
        """By (region, full topic name)."""

    def read_on(self, only: str | None = None) -> None:
        """Read the entries stored since the last call, in all regions or one."""
        for region, disk in self._disks.items() if only is None else [(only, self._disks[only])]:
            for name, log in disk.logs.items():
                if not name.startswith(MESSAGES) or name.startswith(self._ignored):
                    continue
                view = self.logs.get((region, name))
                if view is None:
                    view = self.logs[region, name] = LogView(region, name, log.ledger_id)
                if len(view.ids) < len(log.trimmed) + len(log.ids):
                    view.read_on(log)

    def fencing_violations(self) -> list[str]:
        """Writes of older owners behind the fence of newer ones."""
        return [
            sentence for region, disk in self._disks.items() for sentence in fencing_violations(region, disk)
        ]

    def cursors(self) -> dict[tuple[str, str, str], DecodedCursor]:
        """Stored cursors by (region, topic, subscription)."""
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
        """Return the regions that replicate the topic of this full name between each other."""
        return self._of(topic).regions

    def deduplicates(self, topic: str) -> bool:
        return self._of(topic).deduplication

    def required_regions(self, origin: Origin, replicate_to: tuple[str, ...]) -> list[str]:
        """Return the regions that must hold a message: its origin, and those that its producer named."""
        wanted = (origin.topic, origin.region, replicate_to)
        found = self._required.get(wanted)
        if found is None:
            found = self._required[wanted] = [
                region
                for region in self.regions(origin.topic)
                if region == origin.region or not replicate_to or region in replicate_to
            ]
        return found

    def _of(self, topic: str) -> NamespaceConfig:
        found = self._of_topics.get(topic)
        if found is None:
            found = self._of_topics[topic] = self._namespaces[TopicName.parse(topic).full_namespace]
        return found


def have_converged(disks: Disks, replication_rules: ReplicationRules, lost: Collection[str] = ()) -> bool:
    """Whether every region holds as many messages of every origin as that origin holds for it. The checkers compare the
    messages themselves. Regions in `lost` never come back: neither their logs nor their messages are waited for."""
    held: dict[str, dict[tuple[str, str], int]] = {}
    owed: dict[str, dict[tuple[str, str], int]] = {}
    for (region, topic), view in disks.logs.items():
        if region in lost:
            continue
        for one in view.messages:
            if one.origin.region in lost:
                continue
            _count_one(held, region, topic, one.origin.region)
            if one.origin.region == region:
                for other in replication_rules.required_regions(one.origin, one.replicate_to):
                    if other not in lost:
                        _count_one(owed, other, topic, region)
    return held == owed


def _count_one(counts: dict[str, dict[tuple[str, str], int]], region: str, topic: str, origin: str) -> None:
    there = counts.setdefault(region, {})
    there[topic, origin] = there.get((topic, origin), 0) + 1


def fencing_violations(region: str, medium: Medium) -> Iterator[str]:
    """Yield a sentence for each write of an older owner behind the fence of a newer one."""
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
    """When consumers may have moved or deleted their subscriptions: from the request to the response, without an end
    when there was no response."""

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
        """Return the latest time at which it may have been moved; -1: never."""
        return max((end for _, end in self._of.get((region, topic, subscription), ())), default=-1.0)


class DeliveredMessages:
    """The messages that consumers received. A replicated subscription is one for all regions; any other is one for
    each region."""

    def __init__(self) -> None:
        self.replicated: set[tuple[str, str]] = set()
        """(topic, subscription) of the replicated subscriptions."""
        self._given: dict[tuple[str, str, str], set[tuple[Origin, str]]] = defaultdict(set)
        self._skipped: dict[tuple[str, str, str], set[tuple[Origin, str]]] = defaultdict(set)

    def add(self, region: str, topic: str, subscription: str, origin: Origin, text: str) -> None:
        self._given[self._key(region, topic, subscription)].add((origin, text))

    def skip(self, region: str, topic: str, subscription: str, origin: Origin, text: str) -> None:
        """Note that a seek passed over the message: it need not be delivered."""
        self._skipped[self._key(region, topic, subscription)].add((origin, text))

    def to(self, region: str, topic: str, subscription: str) -> Callable[[Origin, str], bool]:
        """Return a predicate: has the subscription in that region delivered a message to a consumer, or passed it by a
        seek?"""
        key = self._key(region, topic, subscription)
        given, skipped = self._given[key], self._skipped[key]
        return lambda origin, text: (origin, text) in given or (origin, text) in skipped

    def _key(self, region: str, topic: str, subscription: str) -> tuple[str, str, str]:
        return ("" if (topic, subscription) in self.replicated else region, topic, subscription)


class PublishAttempt(NamedTuple):
    """The outcome of one message, over all attempts to send it."""

    text: str
    acknowledged: bool
    message_ids: tuple[str, ...]
    """The message ids that its client received."""


Published = dict[Origin, dict[str, PublishAttempt]]
"""By origin, then by text: a number may have been used for several messages whose outcome is unknown."""


def note_publish(published: Published, event: HistoryEvent) -> None:
    """Note a client's publish request or its response."""
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
    """A sentence for each mark-delete that moved back on a disk."""
    acknowledged_unreceived: Sequence[tuple[str, StoredMessage]]
    """(subscription, message) that a stored cursor counted as consumed before any consumer received it."""
    healed: bool
    """The run was repaired and had time to converge: what is missing now stays missing."""
    fencing_violations: Sequence[str] = ()
    """A sentence for each write of an older owner after a newer one had taken the log over."""
    subscribed: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """The regions in which a subscription has had consumers, by (topic, subscription)."""
    windows: Windows = field(default_factory=lambda: Windows(lambda: 0.0))
    lost: Collection[str] = ()
    """Regions that never came back. Messages that they had not replicated are the cost of the loss; other regions need
    not replicate to them. Their disks are checked as they are."""
    copies: dict[str, dict[Origin, list[StoredMessage]]] = field(default_factory=dict)
    """By region; filled by the checks."""
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
    """Virtual seconds since the beginning."""
    return (event.at_ms - EPOCH_MS) / 1000


def origin_of(event: HistoryEvent) -> Origin:
    assert event.origin_region is not None
    assert event.producer is not None
    assert event.sequence_id is not None
    return Origin(full(event.topic), event.origin_region, event.producer, event.sequence_id)
