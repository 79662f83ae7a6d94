"""Protocol events that a region counts, and the states that a step, a program or a command can wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from emulator.model.suggestions import nearest
from emulator.model.values import TopicName

COUNT_MAX: Final = 1_000_000_000
MORE: Final = "_more"
"""Suffix of a state that counts events from the beginning of the wait, not from the start of the region."""


class ProtocolEvent(NamedTuple):
    doc: str
    """What one event is, as the end of "the region has counted this many …"."""
    is_of_topics: bool = False
    """Whether events of one topic can be waited for."""


PROTOCOL_EVENTS: Final[dict[str, ProtocolEvent]] = {
    "snapshot_started": ProtocolEvent("snapshots of subscriptions whose request it stored", True),
    "snapshot_response": ProtocolEvent(
        "responses of other regions to its snapshots that it stored: one for each region and round", True
    ),
    "snapshot_round": ProtocolEvent("snapshots that it completed and stored", True),
    "update_sent": ProtocolEvent("updates of subscriptions that it stored for the other regions", True),
    "update_applied": ProtocolEvent(
        "updates of other regions that it stored and applied to a subscription", True
    ),
    "takeover": ProtocolEvent("topic epochs that it granted to a new exclusive producer", True),
    "transaction_opened": ProtocolEvent("transactions whose begin it stored"),
    "transaction_committing": ProtocolEvent(
        "decisions to commit that it stored; topics and subscriptions receive the outcome afterwards"
    ),
    "transaction_aborting": ProtocolEvent("the same for decisions to abort"),
    "transaction_ended": ProtocolEvent(
        "transactions whose outcome every topic and subscription has confirmed, which it stored"
    ),
    "metadata_event_published": ProtocolEvent(
        "metadata events that it published to other clusters; only the sync leader of a cluster publishes"
    ),
    "metadata_event_applied": ProtocolEvent(
        "metadata events of other clusters that it applied; only the sync leader of a cluster applies"
    ),
    "frame_fault": ProtocolEvent(
        "commands, receipts and markers on which `drop`, `delay`, `duplicate` or `reorder` acted, on connections that "
        "it opened or that its clients opened"
    ),
}
"""Name of an event -> its meaning. A region counts events from zero at each start."""


@dataclass(frozen=True, slots=True)
class ProtocolState:
    """A state of a region: it has counted `count` events of one kind."""

    event: str
    count: int
    """Number of events, from 1 to COUNT_MAX."""
    from_now: bool = False
    """Whether events are counted from the beginning of the wait, not from the start of the region."""
    topic: str | None = None
    """Full name of the only topic whose events count; that of a partitioned topic: all its partitions. None: all."""

    @classmethod
    def of(cls, counts: Mapping[str, object], topic: str | None = None) -> ProtocolState:
        """Return the state with one name and number, such as `{"snapshot_round": 2}`. Raises ValueError, naming the
        violated rule."""
        if len(counts) != 1:
            raise ValueError(f"name exactly one of {', '.join(PROTOCOL_EVENTS)}")
        ((name, count),) = counts.items()
        event = name.removesuffix(MORE)
        if event not in PROTOCOL_EVENTS:
            suggestion = nearest(name, [*PROTOCOL_EVENTS, *(f"{known}{MORE}" for known in PROTOCOL_EVENTS)])
            meant = f"; did you mean {suggestion}?" if suggestion else ""
            raise ValueError(f"{name} is none of {', '.join(PROTOCOL_EVENTS)}{meant}")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= COUNT_MAX:
            raise ValueError(f"{name}: {repr(count)[:40]} must be a whole number from 1 to {COUNT_MAX}")
        return cls(event, count, from_now=name != event).of_only(topic)

    def of_only(self, topic: str | None) -> ProtocolState:
        """Return the state with only the events of a topic; None: of all topics. Raises ValueError for an invalid name
        of a topic, and for an event that belongs to no topic."""
        return self if topic is None else replace(self, topic=full_topic(self.event, topic))

    @property
    def name(self) -> str:
        """The name as a user writes it."""
        return f"{self.event}{MORE if self.from_now else ''}"

    @property
    def of_topic(self) -> str:
        return f" of {self.topic}" if self.topic else ""

    def __str__(self) -> str:
        return f"{self.name} {self.count}{self.of_topic}"


def full_topic(event: str, topic: str) -> str:
    """Return the full name of the topic whose events are waited for. Raises ValueError for an invalid name, and for an
    event that belongs to no topic."""
    if not PROTOCOL_EVENTS[event].is_of_topics:
        raise ValueError(f"{event} belongs to no topic: omit the topic")
    return str(TopicName.parse(topic))
