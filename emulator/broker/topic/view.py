"""What subscriptions, replicators and replicated subscriptions may read of a topic, and which events they report to it.

A topic creates them, so knowing the Topic itself would be a circle (TS4). Each takes the narrowest of these protocols;
`Topic` implements all of them. None may write to a topic, except for the markers of replicated subscriptions.

    TopicView            ends, reading, facts of ids             all
    SubscriptionHost     + events of a subscription              Subscription
    ReplicatorHost       + events of a replicator                Replicator
    PositionsHost        + subscriptions, links, markers         ReplicatedSubscriptions

The ends, all exclusive, and each only grows:

    stored_end       everything below is durable and was folded into the topic's state
    readable_end     entries below may be sent to consumers       (<= stored_end)
    replicable_end   entries below may be sent to other regions   (<= stored_end)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Protocol

from emulator.broker.environment import RegionServices
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch import DispatchLimits
from emulator.core.flow.fair_queue import Turns
from emulator.core.flow.rate_limit import RateLimit, Throttle
from emulator.core.topic.state import LastData
from emulator.model.markers import Marker
from emulator.model.reasons import ReasonRow
from emulator.model.values import Position, TopicName

if TYPE_CHECKING:
    from emulator.broker.topic.entry_cache import StoredEntry
    from emulator.broker.topic.metrics import TopicMetrics
    from emulator.broker.topic.pending_publish import Attachment
    from emulator.core.admission import EntrySizeLimits
    from emulator.core.policies.topic_policies import TopicPolicies
    from emulator.core.topic.state import TopicState
    from emulator.wire.message_metadata import EntryInfo


class Readable(Protocol):
    """Where messages are read from: a topic, or a topic as it is read compacted (broker.compaction.reading)."""

    @property
    def ledger_id(self) -> int:
        """Ledger id of the topic's log: the first half of every position here."""
        ...

    @property
    def first_entry_id(self) -> int:
        """The first entry that is left."""
        ...

    @property
    def readable_end(self) -> int: ...
    @property
    def last_data(self) -> LastData | None: ...

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        """Return readable entries from an id on, from memory; None when the store must be read."""
        ...

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Return readable entries from an id on, from memory or the store. StorageError when the store fails."""
        ...


class TopicView(Readable, Protocol):
    """Facts and entries of one topic."""

    @property
    def region(self) -> RegionServices: ...
    @property
    def name(self) -> TopicName: ...
    @property
    def full_name(self) -> str: ...
    @property
    def keeps_messages(self) -> bool:
        """False: cursors cannot move back."""
        ...

    @property
    def stored_end(self) -> int: ...
    @property
    def replicable_end(self) -> int: ...
    @property
    def is_over(self) -> bool:
        """It was terminated, and no transaction is open: no more entries become readable."""
        ...

    @property
    def hidden_ids(self) -> IdSet:
        """Ids of markers: consumers never receive them."""
        ...

    @property
    def last_position(self) -> Position:
        """Position of the newest readable entry, marker or not; (ledger, -1) when there is none."""
        ...

    def failed(self, failure: BaseException) -> None:
        """A write of this topic failed: load it again."""
        ...

    @property
    def metrics(self) -> TopicMetrics: ...


class SubscriptionHost(TopicView, Protocol):
    """A subscription's topic. It forwards events to the replicated subscriptions (PIP-33), if there are any."""

    @property
    def closed(self) -> bool: ...

    @property
    def compacted(self) -> Readable:
        """Source for consumers that read compacted."""
        ...

    @property
    def subscriptions(self) -> SiblingSubscriptions: ...


class SiblingSubscriptions(Protocol):
    """All subscriptions of the topic, as one of them sees them."""

    @property
    def limits(self) -> DispatchLimits:
        """Dispatch limits of each subscription; they change with the policies."""
        ...

    @property
    def throttle(self) -> Throttle | None:
        """Rate limit of all consumers of the topic together; None: no limit."""
        ...

    @property
    def turns(self) -> Turns:
        """Subscriptions that wait for the rate limit."""
        ...

    def rate_of(self, name: str) -> RateLimit:
        """Return how fast a subscription may send."""
        ...

    def ended(self, name: str) -> None:
        """Its last consumer left and it is not durable, or it was deleted."""
        ...

    def entries_read(self, name: str, entries: Sequence[StoredEntry]) -> None:
        """Entries were read for its consumers, markers included."""
        ...

    def mark_delete_moved(self, name: str) -> None:
        """Its consumers acknowledged messages."""
        ...

    def sought(self, name: str) -> None:
        """A consumer or an administrator moved its cursor."""
        ...


class ReplicatorHost(TopicView, Protocol):
    """A replicator's topic."""

    @property
    def policies(self) -> TopicPolicies: ...

    @property
    def subscriptions(self) -> LinkObserver: ...


class LinkObserver(Protocol):
    """The subscriptions of the topic, as a replicator sees them."""

    def links_changed(self) -> None:
        """The remote region has opened our producer."""
        ...

    def link_lost(self, remote: str) -> None:
        """The link to the remote region broke, or its producer there was closed."""
        ...


class CarriedSubscription(Protocol):
    """A subscription, as the replicated subscriptions see it."""

    @property
    def name(self) -> str: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def consumers(self) -> Sized: ...
    @property
    def durable(self) -> bool: ...
    @property
    def closed(self) -> bool: ...

    def move(self, change: Callable[[Cursor], object]) -> None:
        """Change its cursor for a cause other than its consumers."""
        ...

    async def persisted(self) -> None:
        """Wait until its cursor, as it is now, is durable. StorageError when the store fails."""
        ...


class Connectivity(Protocol):
    """The replicators of a topic, as its replicated subscriptions see them."""

    def disconnected(self, remotes: frozenset[str]) -> frozenset[str]:
        """Return the regions that have a replicator, or are among `remotes`, to or from which no entries pass now."""
        ...

    def unreachable(self, remotes: frozenset[str]) -> Mapping[str, ReasonRow]:
        """Return the reason for each of `remotes` to or from which no entries pass now."""
        ...


class CarriedSubscriptions(Protocol):
    """The subscriptions of a topic, as its replicated subscriptions see them."""

    def get(self, name: str, /) -> CarriedSubscription | None: ...
    def items(self) -> Iterable[tuple[str, CarriedSubscription]]: ...

    def create(self, name: str, cursor: Cursor) -> CarriedSubscription:
        """Add a durable one that does not exist yet."""
        ...

    def replicate(self, subscription: CarriedSubscription) -> None:
        """Send its position to the other regions from now on."""
        ...


class Terminable(Protocol):
    @property
    def is_over(self) -> bool:
        """The topic was terminated: nothing more is published."""
        ...


class EntryLimits(Protocol):
    @property
    def limits(self) -> EntrySizeLimits:
        """Maximum size of an entry for another region."""
        ...


class PositionsHost(TopicView, Protocol):
    """The topic of replicated subscriptions, which carry positions to other regions and back."""

    @property
    def subscriptions(self) -> CarriedSubscriptions: ...
    @property
    def state(self) -> TopicState: ...
    @property
    def publishing(self) -> EntryLimits: ...
    @property
    def ending(self) -> Terminable: ...

    @property
    def replicators(self) -> Connectivity: ...

    def append_own(
        self, attachment: Attachment, data: bytes, info: EntryInfo, marker: Marker | None = None
    ) -> None:
        """Append an entry of our own, behind everything admitted before."""
        ...
