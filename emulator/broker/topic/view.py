"""Interfaces through which the parts of a topic read its state and report to it.

A topic creates its parts, so importing `Topic` there would be a cycle (TS4). Each part takes the narrowest of these
protocols. `Topic` implements the first two, and `Subscriptions` the third:

    TopicView            state, reading, facts of the topic      subscriptions, replicators, retention, compaction
    PublishingTopic      + appending, waiting for appends        parts that write markers or wait for sends
    SubscriptionsView    limits, events of subscriptions         a subscription, a replicator

The ends of `TopicState`, all exclusive, and each only grows:

    stored_end       entries below are durable and applied to the topic's state
    readable_end     entries below may be sent to consumers       (<= stored_end)
    replicable_end   entries below may be sent to other regions   (<= stored_end)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.broker.environment import RegionServices
from emulator.broker.topic.reading import Readable, TopicReading
from emulator.core.dispatch.types import DispatchLimits
from emulator.core.flow.rate_limit import FairQueue, RateLimit, Throttle
from emulator.model.markers import Marker
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.topic.checkpoints import Checkpoints
    from emulator.broker.topic.metrics import TopicMetrics
    from emulator.broker.topic.pending_publish import Attachment, Pending
    from emulator.broker.topic.stored_entry import StoredEntry
    from emulator.core.policies.topic_policies import TopicPolicies
    from emulator.core.topic.state import TopicState
    from emulator.storage.contract import Log
    from emulator.wire.message_metadata import EntryInfo


class TopicView(Protocol):
    """One topic, as its parts see it."""

    region: RegionServices
    name: TopicName
    full_name: str
    log: Log
    is_new: bool
    """Whether the topic was created when it was loaded: then the store has no row of it."""
    ledger_id: int
    """Ledger id of the topic's log: the first half of every position here."""
    policies: TopicPolicies
    state: TopicState
    checkpoints: Checkpoints
    reading: TopicReading
    metrics: TopicMetrics
    closed: bool

    @property
    def keeps_messages(self) -> bool:
        """Whether messages are stored; if not, cursors cannot move back."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the topic was terminated and no transaction is open: no more entries become readable."""
        ...

    @property
    def compacted(self) -> Readable:
        """Source of messages for consumers that read the compacted topic."""
        ...

    @property
    def subscriptions(self) -> SubscriptionsView: ...

    def failed(self, failure: BaseException) -> None:
        """Load the topic again after a storage failure."""
        ...


class PublishingTopic(TopicView, Protocol):
    """The topic, as parts see it that append to it or wait for appends."""

    @property
    def is_terminated(self) -> bool:
        """Whether the topic was terminated: publishing has ended permanently."""
        ...

    def append_own(
        self, attachment: Attachment, data: bytes, info: EntryInfo, marker: Marker | None = None
    ) -> None:
        """Append an entry that the region itself writes, after all entries admitted before. The batch is issued at
        once."""
        ...

    def append_own_soon(self, attachment: Attachment, data: bytes, info: EntryInfo) -> Sequence[Pending]:
        """Append an entry that the region itself writes, in one write with all entries admitted in this iteration of
        the event loop. Return this batch."""
        ...

    def flush(self) -> None:
        """Issue all admitted entries, without duplicates, as one append. A closed topic drops them."""
        ...

    async def issued_so_far(self) -> None:
        """Issue all admitted entries, and wait until every issued append is durable or has failed."""
        ...


class SubscriptionsView(Protocol):
    """All subscriptions of a topic, as a subscription or a replicator sees them."""

    @property
    def limits(self) -> DispatchLimits:
        """Dispatch limits of each subscription; they change with the policies."""
        ...

    @property
    def throttle(self) -> Throttle | None:
        """Rate limit of all consumers of the topic together; None: no limit."""
        ...

    @property
    def fair_queue(self) -> FairQueue:
        """Subscriptions that wait for the topic's dispatch rate."""
        ...

    def rate_of(self, name: str) -> RateLimit:
        """Return the dispatch rate of a subscription."""
        ...

    def remove(self, name: str) -> None:
        """Remove a subscription: it was deleted, or it is not durable and its last consumer left."""
        ...

    def entries_read(self, name: str, entries: Sequence[StoredEntry]) -> None:
        """Find snapshots among entries, markers included, that were read for a replicated subscription's consumers."""
        ...

    def entries_claimed(self, name: str, entries: Sequence[StoredEntry]) -> None:
        """Acknowledge what other regions claim of entries that were read for a subscription's consumers."""
        ...

    def mark_delete_moved(self, name: str) -> None:
        """Replicate a mark-delete position that a subscription's consumers moved."""
        ...

    def consumers_left(self, name: str) -> None:
        """Handle a subscription that lost its last consumer."""
        ...

    def cursor_reset(self, name: str) -> None:
        """Handle a cursor that a consumer or an administrator reset. CheckpointDamaged: see
        `TopicReading.remember_from`."""
        ...

    def skipped(self, name: str) -> None:
        """Handle entries that the broker acknowledged instead of consumers, for example because they expired."""
        ...

    def links_changed(self) -> None:
        """Handle a replicator to or from a remote region that connected."""
        ...

    def link_lost(self, remote: str) -> None:
        """Handle a replicator to or from a remote region that lost its connection."""
        ...
