"""What the parts of a topic may read of it and report to it.

A topic creates its parts, so knowing the Topic itself would be a circle (TS4). Each takes the narrowest of these
protocols; `Topic` implements both:

    TopicView            state, reading, facts of the topic      subscriptions, replicators, retention, compaction
    PublishingTopic      + appending, waiting for appends        whatever writes markers or orders itself behind sends

The ends of `TopicState`, all exclusive, and each only grows:

    stored_end       everything below is durable and was folded into the topic's state
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
    from emulator.broker.topic.entry_cache import StoredEntry
    from emulator.broker.topic.metrics import TopicMetrics
    from emulator.broker.topic.pending_publish import Attachment
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
        """False: cursors cannot move back."""
        ...

    @property
    def is_over(self) -> bool:
        """It was terminated, and no transaction is open: no more entries become readable."""
        ...

    @property
    def compacted(self) -> Readable:
        """Source for consumers that read compacted."""
        ...

    @property
    def subscriptions(self) -> SubscriptionsView: ...

    def failed(self, failure: BaseException) -> None:
        """A write of this topic failed: load it again."""
        ...


class PublishingTopic(TopicView, Protocol):
    """The topic, as parts see it that append to it, or wait for what was appended."""

    @property
    def is_terminated(self) -> bool:
        """Nothing more is published, for ever."""
        ...

    def append_own(
        self, attachment: Attachment, data: bytes, info: EntryInfo, marker: Marker | None = None
    ) -> None:
        """Append an entry of our own, behind everything admitted before."""
        ...

    def append_own_soon(self, attachment: Attachment, data: bytes, info: EntryInfo) -> None:
        """Append an entry of our own, in one write with everything else admitted in this turn of the event loop."""
        ...

    def flush(self) -> None:
        """Issue everything admitted as one group."""
        ...

    async def issued_so_far(self) -> None:
        """Wait until everything issued before has its outcome."""
        ...


class SubscriptionsView(Protocol):
    """All subscriptions of the topic, as one of them, or a replicator, sees them."""

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

    def links_changed(self) -> None:
        """A replicator to or from a remote region connected."""
        ...

    def link_lost(self, remote: str) -> None:
        """A replicator to or from a remote region lost its connection."""
        ...
