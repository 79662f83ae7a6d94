"""The rules and state machines that a broker is assembled from.

The broker creates instances through `environment.components`, never by naming these classes. The defaults are the
shipped implementations. The simulation replaces single components by mutants, to show that its checkers detect them
(docs/components/swarm.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from emulator.broker.connection.flow_control import FlowControl
from emulator.broker.connection.liveness import Liveness
from emulator.broker.debounced_writer import DebouncedWriter
from emulator.broker.metadata.store import Metadata
from emulator.broker.replication.entry_forms import RemoteSchemaVersions
from emulator.broker.replication.peer_auth import publisher_of
from emulator.broker.topic.non_persistent.store import nothing_kept
from emulator.broker.topic_directory.inactivity import InactivityTracker
from emulator.broker.topic_directory.stored_topics import Deletions
from emulator.broker.transactions.journal import TransactionJournal
from emulator.core.access.machine import Access
from emulator.core.admission import EntrySizeLimits, Peer, Publisher, Refusal, Scanned, check, is_limited
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts
from emulator.core.dispatch.dispatcher import Dispatcher, StrategyFactory, strategy_for
from emulator.core.flow.meters import Drops
from emulator.core.flow.rate_limit import ThrottleFactory, throttle_of
from emulator.core.metadata.messages import EventOutbox
from emulator.core.metadata.record import LATEST, Rule
from emulator.core.partitions import inherits, is_news
from emulator.core.policies.lifetime import Quotas
from emulator.core.replication.individual_acks import IndividualAcks
from emulator.core.replication.progress import Forwarding, ReplicationProgress, forwarding
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import (
    Applied,
    ReplicatedSubscription,
    apply_update,
    check_replicable,
    never_reaches,
    own_entry_id,
    takes_updates,
)
from emulator.core.schemas.compatibility import CompatibilityStrategy as Compatibility
from emulator.core.schemas.compatibility import check_follows
from emulator.core.topic.compaction import LatestOfKeys
from emulator.core.topic.deduplication import ProducerDeduplication, SourceWatermarks
from emulator.core.topic.limits import TopicLimits
from emulator.core.topic.retention import Ages, Backlog, Exceeded, Trimming, backlog_bytes, exceeded
from emulator.core.topic.state import TopicState
from emulator.core.transactions.coordinator import Coordinator
from emulator.core.transactions.keys import KeyBook
from emulator.core.transactions.pending_acks import PendingAcks
from emulator.model.markers import Marker, SubscriptionUpdate
from emulator.model.values import Schema
from emulator.storage.contract import Store
from emulator.wire.message_metadata import EntryInfo, scan_entry


@dataclass(frozen=True, slots=True)
class ConnectionComponents:
    """The limits of one client's connection, and the identity of its producers."""

    flow_control: type[FlowControl] = FlowControl
    liveness: type[Liveness] = Liveness
    publisher_of: Callable[[Peer | None, str, str], Publisher] = publisher_of
    """(authenticated region or None, name of the producer, address of the client): the publisher of its entries."""


@dataclass(frozen=True, slots=True)
class StorageComponents:
    """The writers of small durable states, and the store of non-persistent topics."""

    debounced_writer: type[DebouncedWriter] = DebouncedWriter
    """Writes cursors, the progress of replicators and other small states."""
    transaction_journal: type[TransactionJournal] = TransactionJournal
    """Makes the decisions of a coordinator durable."""
    non_persistent_store: Callable[[Store], Store] = nothing_kept
    """(the region's store): the store for the state of a non-persistent topic."""


@dataclass(frozen=True, slots=True)
class TopicComponents:
    """The checks of publishes and producers of a topic, and the state that it derives from its log."""

    scan_entry: Callable[..., EntryInfo] = scan_entry
    """(entry, verify=whether to check its checksum): the message metadata that a broker needs. ProtocolError when the
    entry cannot be decoded."""
    check_entry: Callable[[Publisher, Scanned, Marker | None, int, EntrySizeLimits], Refusal | None] = check
    """(publisher, metadata, decoded marker, bytes of the entry, limits): why the entry is rejected, or None."""
    is_limited: Callable[[Publisher], bool] = is_limited
    """(publisher): whether the limits, quotas and rates of a topic apply to it."""
    access: type[Access] = Access
    topic_state: type[TopicState] = TopicState
    deduplication: type[ProducerDeduplication] = ProducerDeduplication
    watermarks: type[SourceWatermarks] = SourceWatermarks
    topic_limits: Callable[[int, int, int, int], TopicLimits] = TopicLimits
    """(producers, consumers, consumers of a subscription, subscriptions): the maximum numbers of a topic."""
    throttle_of: ThrottleFactory = throttle_of
    """(rate, now in ms): the limiter of that rate."""
    drops: type[Drops] = Drops
    """Counts messages of non-persistent topics that were not delivered."""


@dataclass(frozen=True, slots=True)
class SubscriptionComponents:
    cursor: type[Cursor] = Cursor
    cursor_parts: type[CursorParts] = CursorParts
    """The stored form of a cursor."""
    dispatcher: type[Dispatcher] = Dispatcher
    strategy_for: StrategyFactory = strategy_for
    """(type, cursor, limits): the strategy that dispatches entries to the consumers of a subscription of that type."""
    inherits: Callable[[int, int, int], bool] = inherits
    """(index of a partition, its first entry id, its next entry id): whether it copies partition 0's subscriptions."""


@dataclass(frozen=True, slots=True)
class ReplicationComponents:
    """Replication of messages, and replicated subscriptions (PIP-33)."""

    forwarding: Callable[[str, str | None, tuple[str, ...], int | None], Forwarding] = forwarding
    """(remote, replicated_from, replicate_to, marker_type): whether an entry is sent to `remote`, and why."""
    replication_progress: type[ReplicationProgress] = ReplicationProgress
    schema_numbers: type[RemoteSchemaVersions] = RemoteSchemaVersions
    """The versions of a topic's schemas in other regions."""
    snapshots: Callable[..., SnapshotController] = SnapshotController
    replicated_subscription: type[ReplicatedSubscription] = ReplicatedSubscription
    own_entry_id: Callable[[SubscriptionUpdate, str, int], int | None] = own_entry_id
    """(update, own region, own ledger): entry id of the update's position in this region's log, or None."""
    apply_update: Callable[[Cursor, int, int, Iterable[int]], Applied] = apply_update
    """(cursor, own entry id, last entry id, ids that the update's source never received): the effect on the cursor."""
    check_replicable: Callable[..., None] = check_replicable
    """(name, durable=whether the cursor is stored): ProtocolError for a subscription that cannot be replicated."""
    takes_updates: Callable[[Cursor, bool, bool], bool] = takes_updates
    """(cursor, is durable, follows upstream): whether an update of another region may move an existing subscription."""
    never_reaches: Callable[..., bool] = never_reaches
    individual_acks: type[IndividualAcks] = IndividualAcks
    """Decides which acknowledged entries of a subscription are sent to other regions."""


@dataclass(frozen=True, slots=True)
class TransactionComponents:
    coordinator: type[Coordinator] = Coordinator
    key_book: type[KeyBook] = KeyBook
    """The holders of transaction keys."""
    pending_acks: type[PendingAcks] = PendingAcks
    """Pending acknowledgements of a subscription."""


@dataclass(frozen=True, slots=True)
class MetadataComponents:
    """The configuration store of a cluster, and the metadata that clusters share."""

    metadata: type[Metadata] = Metadata
    """The cluster's configuration store, as a region uses it."""
    metadata_rule: Rule = LATEST
    """The rule by which one of two metadata events wins."""
    metadata_outbox: type[EventOutbox] = EventOutbox
    """Events that have to be sent to other clusters."""
    check_follows: Callable[[Schema, Schema, Compatibility], None] = check_follows
    """(earlier schema, new schema, strategy): Incompatible or BadSchema when the new schema is not allowed."""
    is_news: Callable[[int, int], bool] = is_news
    """(index of another region's partition, known number of partitions): whether to request the number of partitions
    from that region."""


@dataclass(frozen=True, slots=True)
class LifetimeComponents:
    """Expiry, trimming, compaction and deletion."""

    ages: type[Ages] = Ages
    trimming: type[Trimming] = Trimming
    """(retention, ages, time, bytes of the log): decides which of the log's oldest entries are trimmed."""
    backlog_bytes: Callable[[int, int, int, int], int] = backlog_bytes
    """(bytes of a log, its first entry id, its first unacknowledged entry id, its next entry id): estimated bytes of
    the backlog."""
    exceeded: Callable[[Quotas, Backlog], list[Exceeded]] = exceeded
    """The quotas that a backlog exceeds."""
    inactivity: type[InactivityTracker] = InactivityTracker
    """Decides whether a topic is unused, and since when."""
    deletions: type[Deletions] = Deletions
    """Remembers the topics that were deleted in this region while other regions still have them."""
    latest_of_keys: type[LatestOfKeys] = LatestOfKeys
    """Selects the messages of a topic that compaction keeps."""


@dataclass(frozen=True, slots=True)
class Components:
    """The replaceable components by subject. A component that is a class is used through its constructor (and
    `from_json`, `from_bytes`)."""

    connections: ConnectionComponents = ConnectionComponents()
    storage: StorageComponents = StorageComponents()
    topics: TopicComponents = TopicComponents()
    subscriptions: SubscriptionComponents = SubscriptionComponents()
    replication: ReplicationComponents = ReplicationComponents()
    transactions: TransactionComponents = TransactionComponents()
    metadata: MetadataComponents = MetadataComponents()
    lifetime: LifetimeComponents = LifetimeComponents()

    def with_replaced(self, **components: Any) -> Components:
        """Return a copy with other components, by the names of their fields. TypeError for an unknown name."""
        groups = {}
        for group in fields(self):
            present = getattr(self, group.name)
            names = components.keys() & {component.name for component in fields(present)}
            if names:
                groups[group.name] = replace(present, **{name: components.pop(name) for name in names})
        if components:
            raise TypeError(f"no components of a broker: {', '.join(components)}")
        return replace(self, **groups)


SHIPPED = Components()
"""The default components."""
