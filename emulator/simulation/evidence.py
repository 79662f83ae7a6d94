"""The input of the checkers: the responses that clients received and the content of media, without asking brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from sys import intern
from typing import Final, NamedTuple

from emulator.run.history_events import HistoryEvent
from emulator.simulation.stored_messages import LogView, MessageOrigin, ReplicationRules, StoredMessage
from emulator.simulation.virtual_time import EPOCH_MS
from spark_jobs.evidence.cursors import DecodedCursor

_new_tuple: Final = tuple.__new__
"""Creates a NamedTuple without the call of its constructor, which is written in Python."""


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
        attempts[text] = _new_tuple(PublishAttempt, (text, True, ids))
    elif text not in attempts:
        attempts[text] = _new_tuple(PublishAttempt, (text, False, ()))


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


@lru_cache(maxsize=1024)
def full(topic: str | None) -> str:
    """Return the full name of a topic; one shared string for each, which is compared and hashed faster."""
    assert topic is not None
    return intern(topic if "://" in topic else f"persistent://public/default/{topic}")


def seconds_of(event: HistoryEvent) -> float:
    """Return the time of the event in virtual seconds since the beginning of the run."""
    return (event.at_ms - EPOCH_MS) / 1000


def origin_of(event: HistoryEvent) -> MessageOrigin:
    assert event.origin_region is not None
    assert event.producer is not None
    assert event.sequence_id is not None
    origin = (full(event.topic), event.origin_region, event.producer, event.sequence_id)
    return _new_tuple(MessageOrigin, origin)
