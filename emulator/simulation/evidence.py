"""What checkers look at: what clients were told, and what the disks hold. Nothing that a broker says of itself.

Logs are read as they lie on the disks, each entry once: a `Disks` is asked again and again while a world heals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from emulator.core.cursor import Cursor
from emulator.errors import GeoemuError
from emulator.history import Event
from emulator.model import Position
from emulator.simulation.medium import DurableLog, Medium
from emulator.wire.metadata import scan_entry, split_batch

CURSOR_PREFIX = "cursor/"


class Origin(NamedTuple):
    """A message's identity everywhere."""

    topic: str
    region: str
    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer} {self.number} of {self.region}"


class Stored(NamedTuple):
    """One message as it lies in one region's log."""

    origin: Origin
    text: str
    region: str
    ledger: int
    entry: int
    batch_index: int
    source: Position | None
    """Where it stands in its origin's log, as the entry says."""
    replicate_to: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.batch_index}"


@dataclass(slots=True)
class LogView:
    """One log, read as far as it goes."""

    region: str
    topic: str
    ledger: int
    messages: list[Stored] = field(default_factory=list)
    """In log order."""
    markers: set[int] = field(default_factory=set)
    """Their entry ids."""
    garbled: list[int] = field(default_factory=list)
    """Ids of entries that are no entries."""
    ids: list[int] = field(default_factory=list)
    """Of all entries."""

    def read_on(self, log: DurableLog) -> None:
        for index in range(len(self.ids), len(log.ids)):
            self.ids.append(log.ids[index])
            self._read(log.ids[index], log.entries[index])

    def _read(self, entry_id: int, data: bytes) -> None:
        try:
            info = scan_entry(data, verify=True)
            if info.marker_type is not None:
                self.markers.add(entry_id)
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
                self.messages.append(
                    Stored(
                        *(origin, text, self.region, self.ledger, entry_id, index),
                        *(info.source_position, info.replicate_to),
                    )
                )
        except (GeoemuError, ValueError):
            self.garbled.append(entry_id)


class Disks:
    """What the disks of all regions hold."""

    def __init__(self, disks: Mapping[str, Medium]) -> None:
        self._disks = disks
        self.logs: dict[tuple[str, str], LogView] = {}
        """By (region, full topic name)."""

    def read_on(self, only: str | None = None) -> None:
        """Read what was stored since, in all regions or one."""
        for region, disk in self._disks.items() if only is None else [(only, self._disks[only])]:
            for name, log in disk.logs.items():
                view = self.logs.get((region, name))
                if view is None:
                    view = self.logs[region, name] = LogView(region, name, log.ledger_id)
                if len(view.ids) < len(log.ids):
                    view.read_on(log)

    def trespasses(self) -> list[str]:
        """What older owners wrote after newer ones had come."""
        return [sentence for region, disk in self._disks.items() for sentence in trespasses(region, disk)]

    def cursors(self) -> dict[tuple[str, str, str], Cursor]:
        """Stored cursors by (region, topic, subscription)."""
        found = {}
        for region, disk in self._disks.items():
            for key, versioned in sorted(disk.values.items()):
                if key.startswith(CURSOR_PREFIX):
                    topic, _, subscription = key.removeprefix(CURSOR_PREFIX).rpartition("/")
                    found[region, topic, subscription] = Cursor.from_bytes(versioned.value)
        return found


def hold_the_same(disks: Disks, regions: Sequence[str]) -> bool:
    """Whether every region holds as many messages of every origin as that origin holds for it. Which ones they are, the
    checkers judge."""
    held: dict[str, dict[tuple[str, str], int]] = {}
    owed: dict[str, dict[tuple[str, str], int]] = {}
    for (region, topic), view in disks.logs.items():
        for one in view.messages:
            _count_one(held, region, topic, one.origin.region)
            if one.origin.region == region:
                for other in regions:
                    if other == region or not one.replicate_to or other in one.replicate_to:
                        _count_one(owed, other, topic, region)
    return held == owed


def _count_one(counts: dict[str, dict[tuple[str, str], int]], region: str, topic: str, origin: str) -> None:
    there = counts.setdefault(region, {})
    there[topic, origin] = there.get((topic, origin), 0) + 1


def trespasses(region: str, medium: Medium) -> Iterator[str]:
    """What an older owner wrote behind the fence of a newer one, a sentence each."""
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


class Attempt(NamedTuple):
    """What came of one message, whatever number of times it was sent."""

    text: str
    acknowledged: bool
    message_ids: tuple[str, ...]
    """Places that were told."""


@dataclass(slots=True)
class Evidence:
    """Everything there is to judge by."""

    regions: tuple[str, ...]
    """Of the namespace: where every message belongs, unless its sender named others."""
    deduplicates: bool
    events: Sequence[Event]
    received: Mapping[tuple[str, str], set[tuple[Origin, str]]]
    """By (topic, subscription): what its consumers were given, wherever."""
    logs: Mapping[tuple[str, str], LogView]
    cursors: Mapping[tuple[str, str, str], Cursor]
    fallen: Sequence[str]
    """Mark-deletes that moved back on a disk, a sentence each."""
    unseen: Sequence[tuple[str, Stored]]
    """(subscription, message) that a stored cursor counted as consumed before any consumer was given it."""
    healed: bool
    """Everything was repaired and given time: what is missing now stays missing."""
    trespasses: Sequence[str] = ()
    """What an older owner stored after a newer one had taken the log, a sentence each."""
    lingering: Sequence[str] = ()
    """Hosts of regions that were replaced, whose programs still run."""
    waiting: frozenset[str] = frozenset()
    """Texts of messages whose producers still wait for an outcome."""
    subscribed: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """By (topic, subscription): regions in which it has had consumers."""
    copies: dict[str, dict[Origin, list[Stored]]] = field(default_factory=dict)
    """By region; filled by the checks."""
    asked: dict[Origin, dict[str, Attempt]] = field(default_factory=dict)
    """By origin, then by text: a number may have been used for several messages whose outcome is unknown."""

    def __post_init__(self) -> None:
        for event in self.events:
            if event.op == "publish":
                self._add_publish(event)

    def _add_publish(self, event: Event) -> None:
        attempts = self.asked.setdefault(origin_of(event), {})
        text = event.detail or ""
        before = attempts.get(text, Attempt(text, False, ()))
        if event.outcome == "ok":
            ids = before.message_ids
            if event.message_id is not None and not event.message_id.startswith("-1"):
                ids = (*ids, event.message_id)
            before = Attempt(text, True, ids)
        attempts[text] = before

    @property
    def topics(self) -> list[str]:
        return sorted({topic for _, topic in self.logs})

    def log(self, region: str, topic: str) -> LogView:
        return self.logs.get((region, topic)) or LogView(region, topic, -1)

    def expected(self, origin: Origin, replicate_to: tuple[str, ...]) -> list[str]:
        """Where a message belongs."""
        return [
            region
            for region in self.regions
            if region == origin.region or not replicate_to or region in replicate_to
        ]


def counts_as_acknowledged(cursor: Cursor, one: Stored) -> bool:
    """Whether the cursor says that the message is done with: its entry, or its part of the batch."""
    if cursor.is_acked(one.entry):
        return True
    words = cursor.ack_set_of(one.entry) if one.batch_index >= 0 else None
    if words is None:
        return False
    word = one.batch_index // 64
    return word >= len(words) or not words[word] >> (one.batch_index % 64) & 1


def full(topic: str | None) -> str:
    assert topic is not None
    return topic if "://" in topic else f"persistent://public/default/{topic}"


def origin_of(event: Event) -> Origin:
    assert event.origin_region is not None
    assert event.producer is not None
    assert event.sequence_id is not None
    return Origin(full(event.topic), event.origin_region, event.producer, event.sequence_id)
