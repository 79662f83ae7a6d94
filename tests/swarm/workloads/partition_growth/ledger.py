"""Compare what programs of the workload `partition-growth` published with what their subscriptions received.

No code here calls a region or a client. A message is identified by its producer and its number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Name = tuple[str, int]
"""Identity of a message: (producer, number)."""


class Published(NamedTuple):
    """A message that a program sent."""

    topic: str
    """Full name of the topic, or of the partition."""
    producer: str
    number: int
    key: str
    value: bytes
    """Payload; empty: the message deletes the key."""
    asked_at: float
    """Time of the send, in virtual seconds."""

    @property
    def name(self) -> Name:
        return (self.producer, self.number)

    def __str__(self) -> str:
        return f"{self.producer}/{self.number} of {self.topic}"


class Delivery(NamedTuple):
    """A message that a subscription received."""

    topic: str
    producer: str
    number: int
    key: str


@dataclass(slots=True)
class Standing:
    """The deliveries of one subscription of several topics."""

    fits: Callable[[str], bool]
    """Whether the subscription includes a topic, by its full name."""
    in_order: bool
    """Whether deliveries must be in order: the subscription has one active consumer at a time."""
    since: float | None = None
    """Time from which the subscription exists in all topics; None: not yet."""
    next_message: list[Delivery] = field(default_factory=list)
    """First deliveries, in the order in which the consumers received them."""
    seen: set[tuple[str, Name]] = field(default_factory=set)

    def give(self, topic: str, producer: str, number: int, key: str) -> None:
        if (topic, (producer, number)) not in self.seen:
            self.seen.add((topic, (producer, number)))
            self.next_message.append(Delivery(topic, producer, number, key))


class Ledger:
    """All publishes and deliveries of one program."""

    def __init__(self) -> None:
        self.sent: dict[Name, Published] = {}
        """Messages in the order in which they were sent."""
        self.taken: set[Name] = set()
        """Messages with a receipt."""
        self.astray: list[str] = []
        """A sentence for each message with a receipt from another partition than its key's."""
        self.early: list[str] = []
        """A sentence for each delivery that its consumer did not request."""
        self.deleted: dict[str, float] = {}
        """Full name of each deleted topic -> time of the deletion. Messages sent before need not be delivered."""
        self.standing: dict[str, Standing] = {}
        """Deliveries by subscription."""

    # Missing deliveries.

    def missing(self, subscription: str) -> list[Published]:
        """Return the messages with a receipt that were sent after the subscription existed, and were not delivered."""
        standing = self.standing[subscription]
        if standing.since is None:
            return []
        return [
            one
            for name, one in self.sent.items()
            if name in self.taken
            and one.asked_at >= max(standing.since, self.deleted.get(one.topic, 0.0))
            and standing.fits(one.topic)
            and (one.topic, name) not in standing.seen
        ]

    @property
    def is_given(self) -> bool:
        return not any(map(self.missing, self.standing))

    def lost(self) -> Iterator[str]:
        for subscription in self.standing:
            missing = self.missing(subscription)
            if missing:
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                yield f"{subscription} existed, and never received {missing[0]}{more}"

    # Wrong deliveries.

    def strangers(self) -> Iterator[str]:
        """Yield a sentence for each delivery to the wrong subscription, or of a message that no producer sent."""
        for subscription, standing in self.standing.items():
            for one in standing.next_message:
                sent = self.sent.get((one.producer, one.number))
                if not standing.fits(one.topic):
                    yield f"{subscription} received {one.producer}/{one.number} of {one.topic}"
                elif sent is None or (sent.topic, sent.key) != (one.topic, one.key):
                    yield (
                        f"{subscription} received {one.producer}/{one.number} with key {one.key!r} in "
                        f"{one.topic}, and it was {'never sent' if sent is None else f'sent to {sent}'}"
                    )

    def disorder(self) -> Iterator[str]:
        """Yield a sentence for each key and partition with a later message delivered before an earlier one."""
        for subscription, standing in self.standing.items():
            if not standing.in_order:
                continue
            highest: dict[tuple[str, str, str], int] = {}
            for one in standing.next_message:
                where = (one.topic, one.producer, one.key)
                before = highest.get(where, -1)
                if one.number < before:
                    yield (
                        f"{subscription} received {one.producer}/{one.number} of {one.topic} after {before} "
                        f"of the same key {one.key}"
                    )
                highest[where] = max(before, one.number)

    # Tables.

    def newest(self, base: str) -> dict[str, set[bytes | None]]:
        """Return the values that a table may finally have for each key of a partitioned topic; None: no value. A key
        that moved when the topic grew has a newest message in each of its partitions, in undefined order."""
        last: dict[tuple[str, str], Published] = {}
        unsure = {one.key for name, one in self.sent.items() if name not in self.taken}
        for one in self.sent.values():
            if one.topic.startswith(f"{base}-partition-"):
                last[one.topic, one.key] = one
        found: dict[str, set[bytes | None]] = defaultdict(set)
        for (_, key), one in last.items():
            if key not in unsure:
                found[key].add(one.value or None)
        return dict(found)

    def disagreement(self, base: str, table: dict[str, bytes]) -> str:
        """Return a difference between a table and the published messages; empty: none."""
        for key, values in sorted(self.newest(base).items()):
            if table.get(key) not in values:
                wanted = " or ".join(sorted(map(repr, values)))
                return f"the table view has {table.get(key)!r} for {key}, and the topic has {wanted}"
        return ""
