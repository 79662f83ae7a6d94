"""One topic of a region: its log, its producers and its subscriptions.

Each publish passes the stages of docs/ARCHITECTURE.md, "Durable, applied, visible", in order: admitted → issued →
durable → applied → visible → acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from emulator.broker.compaction.compaction import Compaction
from emulator.broker.environment import RegionServices
from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.checkpoints import Checkpoints, check_is_whole, drops_overlaps, replay
from emulator.broker.topic.entry_cache import EntryCache
from emulator.broker.topic.exclusive_access import TopicAccess
from emulator.broker.topic.metrics import TopicMetrics
from emulator.broker.topic.new_entries import NewEntries
from emulator.broker.topic.pending_publish import (
    Attachment,
    CheckedEntry,
    Pending,
    PendingGroup,
    PendingPublish,
    PendingReplicas,
)
from emulator.broker.topic.publishing import PUBLISHING, TopicPublishing
from emulator.broker.topic.reading import Readable, TopicReading
from emulator.broker.topic.replicators import Replicators
from emulator.broker.topic.retention import TopicRetention, Trimmer
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.subscriptions import DISPATCH, Subscriptions
from emulator.broker.topic.termination import TopicTermination
from emulator.broker.topic.transactions import TopicTransactions
from emulator.core.policies.lifetime import COMPACTION_THRESHOLD
from emulator.core.policies.limits import (
    DISPATCH_RATE,
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
)
from emulator.core.policies.topic_policies import DEFAULTS, TopicPolicies
from emulator.core.policies.topics import DEDUPLICATION, EXCLUSIVE_HOME
from emulator.core.topic.limits import TopicLimits
from emulator.core.topic.retention import HoldSource
from emulator.errors import CheckpointDamaged
from emulator.model.markers import Marker
from emulator.model.values import TopicName
from emulator.storage.contract import Log
from emulator.wire.codec_hot.publishing import SendCommand
from emulator.wire.message_metadata import EntryInfo

INITIAL = (EXCLUSIVE_HOME, COMPACTION_THRESHOLD, *DISPATCH, DISPATCH_RATE, *PUBLISHING)
"""Policies by which the components of a new topic have to be changed, besides deduplication."""
LIMITS = (MAX_PRODUCERS, MAX_CONSUMERS, MAX_CONSUMERS_PER_SUBSCRIPTION, MAX_SUBSCRIPTIONS)
OBEYS = (*LIMITS, COMPACTION_THRESHOLD, EXCLUSIVE_HOME)
"""Policies that this module acts upon (PO1)."""

if TYPE_CHECKING:
    from emulator.broker.replication.link import PeerLink
    from emulator.broker.topic.producer import ConnectedProducer

logger = logging.getLogger(__name__)


class Topic:
    """A topic that is loaded in a region, which owns it. `Topic.load` creates persistent ones."""

    keeps_messages = True
    """Whether messages are stored. A non-persistent topic keeps none, and its cursors cannot move back."""
    access_type: type[TopicAccess] = TopicAccess
    """Class of the access control, which decides which clients may publish."""
    subscriptions_type: type[Subscriptions] = Subscriptions
    replicator_type: type[Replicator] = Replicator
    """Class of the replicators; each sends the topic's entries to one remote region."""

    def __init__(
        self,
        region: RegionServices,
        name: TopicName,
        log: Log,
        *,
        deduplicates: bool,
        peers: Mapping[str, PeerLink],
        is_new: bool = False,
    ) -> None:
        self.region = region
        self.is_new = is_new
        self.name = name
        self.full_name = name.text
        self.policies = DEFAULTS
        """The effective policies; replaced by `apply`."""
        self.log = log
        self.ledger_id, end_entry_id = log.ledger_id, log.next_entry_id
        components = region.environment.components.topics
        self.state = components.topic_state(
            region.config.region,
            deduplicates=deduplicates,
            deduplication=components.deduplication,
            watermarks=components.watermarks,
        )
        self.checkpoints = Checkpoints(region.store, self.full_name, self.ledger_id, self.state)
        self.metrics = TopicMetrics(region.environment.wall_clock_ms, end_entry_id)
        self.reading = TopicReading(
            log,
            EntryCache(end_entry_id, region.resources.entry_caches),
            self.state,
            self.checkpoints,
            self.metrics,
            self.failed,
        )
        self.closed = False
        self.transactions = TopicTransactions(self)
        """Checks and ends the topic's transactions; open ones limit `readable_end`."""
        self.access = self.access_type(self, self.transactions)
        """Access control: decides which clients may publish."""
        self.publishing = TopicPublishing(self, self.access)
        self.subscriptions = self.subscriptions_type(self)
        self.replicators = Replicators(self, peers, self.replicator_type)
        self.started_compaction: Compaction | None = None
        """`compaction`, once it was needed."""
        trimmer = Trimmer(self, self.subscriptions, self.replicators, self._other_holds)
        self.retention = TopicRetention(self, self.publishing, trimmer)
        self.termination = TopicTermination(self, self.access, self.publishing, self.subscriptions)

    @property
    def compaction(self) -> Compaction:
        """Compacts the topic. Created at the first use, or as a stored topic is loaded: few topics are compacted."""
        if self.started_compaction is None:
            self.started_compaction = Compaction(self)
            if self.is_new:  # there is nothing to load and to clean up
                self.started_compaction.serve()
        return self.started_compaction

    def _other_holds(self) -> dict[str, HoldSource]:
        return {"compaction": self.compaction.holds, "transactions": self.transactions.holds}

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> int:
        """Apply the policies `new`; `old` is None for a topic that was just loaded. Return an upper bound of the number
        of objects that were visited."""
        self.policies = new
        is_as_created = (
            old is None and self.state.deduplicates == new[DEDUPLICATION] and _follow_defaults(new)
        )
        if new is not old and not is_as_created:
            if new.differs(old, EXCLUSIVE_HOME):
                home = new[EXCLUSIVE_HOME]
                self.access.set_exclusive_region("" if home == self.region.config.region else home)
            if self.keeps_messages and new.differs(old, COMPACTION_THRESHOLD):
                self.compaction.set_threshold(new[COMPACTION_THRESHOLD])
            self.subscriptions.apply(old, new)
            self.publishing.apply(old, new)
            self.replicators.apply(old, new)
            if self.keeps_messages:
                self.region.housekeeper.policies_changed(self.full_name)
        return 1 + len(self.subscriptions) + len(self.producers)

    @property
    def client_limits(self) -> TopicLimits:
        """Maximum numbers of producers, consumers and subscriptions."""
        return _limits_of(self.region.environment.components.topics.topic_limits, self.policies)

    # Loading.

    @classmethod
    def create(
        cls,
        region: RegionServices,
        name: TopicName,
        log: Log,
        *,
        deduplicates: bool,
        peers: Mapping[str, PeerLink],
    ) -> Topic:
        """Return a topic whose log was created just now: nothing of it is stored, so nothing is read."""
        topic = cls(region, name, log, deduplicates=deduplicates, peers=peers, is_new=True)
        topic.state.deduplication.drops_overlaps = drops_overlaps(region.config)
        return topic

    @classmethod
    async def load(
        cls,
        region: RegionServices,
        name: TopicName,
        log: Log,
        *,
        deduplicates: bool,
        peers: Mapping[str, PeerLink],
    ) -> Topic:
        """Load a topic from its checkpoint and its log. CheckpointDamaged when the log has been trimmed and the
        checkpoint cannot be read; StorageError when the store fails or another stored row is damaged."""
        topic = cls(region, name, log, deduplicates=deduplicates, peers=peers)
        try:
            replay_from = topic.checkpoints.restore(log.next_entry_id)
        except CheckpointDamaged as damage:
            check_is_whole(log, name, damage)
            logger.warning("topic %s: %s is rebuilt from the log", damage, name)
            topic.close("its checkpoint is damaged")
            topic = cls(region, name, log, deduplicates=deduplicates, peers=peers)
            replay_from = 0
        try:
            scan = region.environment.components.topics.scan_entry
            topic.checkpoints.entries_since = await replay(region.config, log, topic.state, replay_from, scan)
            await topic.compaction.load()
        except BaseException:
            topic.close("its log cannot be read")
            raise
        return topic

    def _count_towards_checkpoint(self, entries: int) -> None:
        """Count stored entries. After `state_checkpoint_entries` of them write a checkpoint, from which a restart
        begins, and free the state that every cursor and replicator has passed."""
        self.checkpoints.entries_since += entries
        if self.checkpoints.entries_since < self.region.config.settings.state_checkpoint_entries:
            return
        self.checkpoints.write()
        needed = [subscription.cursor.mark_delete + 1 for subscription in self.subscriptions.values()]
        needed += [replicator.progress.confirmed + 1 for replicator in self.replicators.values()]
        self.state.visibility.forget_below(min([*needed, self.state.readable_end]))

    # Publishing.

    def publish(
        self,
        attachment: Attachment,
        send: SendCommand | None,
        data: bytes,
        info: CheckedEntry,
        marker: Marker | None,
    ) -> None:
        """Admit one entry into the current batch, as a duplicate if it was admitted before."""
        duplicate = not self.state.admit(attachment.publisher, info)
        self._admitted(PendingPublish(attachment, send, data, info, marker, duplicate))

    def publish_group(self, group: PendingGroup | PendingReplicas) -> None:
        """Admit plain messages, none of them a duplicate, into the current batch."""
        group.admit(self.state)
        self._admitted(group)

    def _admitted(self, publish: Pending) -> None:
        """Add a publish to the current batch. In the next iteration of the event loop `flush` issues those of all
        connections that were read in this one."""
        if not self.publishing.batch:
            asyncio.get_running_loop().call_soon(self.flush)
        self.publishing.batch.append(publish)

    def append_own(
        self, attachment: Attachment, data: bytes, info: EntryInfo, marker: Marker | None = None
    ) -> None:
        """Append an entry that the region itself writes, after all entries admitted before. The batch is issued at
        once."""
        checked = cast(CheckedEntry, info)
        self.publishing.batch.append(PendingPublish(attachment, None, data, checked, marker, False))
        self.flush()

    def append_own_soon(self, attachment: Attachment, data: bytes, info: EntryInfo) -> Sequence[Pending]:
        """Append an entry that the region itself writes, in one write with all entries admitted in this iteration of
        the event loop. Return this batch."""
        self._admitted(PendingPublish(attachment, None, data, cast(CheckedEntry, info), None, False))
        return self.publishing.batch

    def flush(self) -> None:
        """Issue all admitted entries, without duplicates, as one append. A closed topic drops them. Called before
        anything that has to follow them, and otherwise once per iteration of the event loop."""
        batch, self.publishing.batch = self.publishing.batch, []
        if not batch or self.closed:
            return
        self.publishing.apply_publish_rate(batch)
        fresh: list[bytes] = []
        for publish in batch:
            if not isinstance(publish, PendingPublish):
                fresh += publish.entries
            elif not publish.duplicate:
                fresh.append(publish.data)
        if fresh:
            self.publishing.issued += 1
            future = self.log.append(fresh)
            self.region.resources.appends.issued(future)
        elif self.publishing.issued and self.publishing.last_issued is not None:
            # Acknowledge duplicates only after all entries issued before them.
            self.publishing.issued += 1
            future = self.publishing.last_issued
        else:
            self._acknowledge(batch)
            return
        self.publishing.last_issued = future
        issued_at = asyncio.get_running_loop().time()

        def done(append: asyncio.Future[int]) -> None:
            if fresh and not append.cancelled() and append.exception() is None:
                self.metrics.storing.appended(fresh, asyncio.get_running_loop().time() - issued_at)
            self._stored(batch, append)

        future.add_done_callback(done)

    async def issued_so_far(self) -> None:
        """Issue all admitted entries, and wait until every issued append is durable or has failed."""
        self.flush()
        if self.publishing.issued and self.publishing.last_issued is not None:
            await asyncio.wait([self.publishing.last_issued])

    async def settled(self) -> None:
        """After `close`: wait until every pending append and write is durable or has failed. A topic loaded before that
        would miss an append that becomes durable later."""
        await self.issued_so_far()
        for subscription in self.subscriptions.values():
            await subscription.settled()
        for replicator in self.replicators.values():
            await replicator.settled()
        await self.access.settled()
        await self.termination.settled()
        if self.started_compaction is not None:
            await self.started_compaction.settled()
        await self.retention.trimmer.settled()
        await self.checkpoints.settled()

    def _stored(self, batch: list[Pending], done: asyncio.Future[int]) -> None:
        self.publishing.issued -= 1
        failure = done.exception()
        if self.closed:
            return
        if failure is not None:
            self.failed(failure)
            return
        entries = NewEntries()
        next_id, fold = done.result(), self.state.fold
        for publish in batch:
            if not isinstance(publish, PendingPublish):
                publish.first_entry_id = next_id
                entries.append_group(publish.fold(self.state))
                next_id += publish.messages
            elif not publish.duplicate:
                publish.entry_id = next_id
                entries.append(StoredEntry(next_id, publish.data, publish.info, publish.marker))
                fold(next_id, publish.info)
                next_id += 1
        if entries.entry_count:
            self.reading.cache.extend(entries)
        self._acknowledge(batch)
        self._notify(entries)

    def _acknowledge(self, batch: list[Pending]) -> None:
        """Pass the publishes, stored ones and duplicates, to their attachments, in the order of their sends."""
        by_attachment: dict[Attachment, list[Pending]] = {}
        last, of_last = None, []
        messages = size_bytes = 0
        for publish in batch:
            attachment = publish.attachment
            if attachment is not last:
                last, of_last = attachment, by_attachment.setdefault(attachment, [])
            of_last.append(publish)
            if not isinstance(publish, PendingPublish) or publish.send is not None:
                messages += publish.messages
                size_bytes += publish.size_bytes
        if messages:
            self.metrics.note_published(messages, size_bytes)
        for attachment, publishes in by_attachment.items():
            attachment.stored(publishes)

    def _notify(self, entries: NewEntries) -> None:
        """Dispatch new entries, and pass them to replicated subscriptions and compaction."""
        self._dispatch_to_subscriptions()
        for replicator in self.replicators.values():
            if entries.entry_count:
                replicator.entries_stored(entries)
            else:
                replicator.pump()
        if self.closed:  # dispatch closed the topic: it is loaded again and then dispatches the rest
            return
        if self.subscriptions.replicated is not None and entries.entry_count:
            self.subscriptions.replicated.entries_stored(entries)
        if self.started_compaction is not None and self.started_compaction.threshold_bytes:
            self.started_compaction.bytes_stored(entries.size_bytes)
        self._count_towards_checkpoint(entries.entry_count)

    def pump(self) -> None:
        """Resume dispatch to consumers and replicators."""
        self._dispatch_to_subscriptions()
        for replicator in self.replicators.values():
            replicator.pump()

    def _dispatch_to_subscriptions(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.dispatch_loop.pump()

    @property
    def is_terminated(self) -> bool:
        return self.termination.is_terminated

    @property
    def is_over(self) -> bool:
        # An open transaction may still be committed: consumers must not receive REACHED_END_OF_TOPIC yet.
        return self.termination.is_terminated and self.state.buffer.open_from is None

    @property
    def producers(self) -> dict[str, ConnectedProducer]:
        """Connected producers by name, inbound replicators included."""
        return self.publishing.producers

    @property
    def is_used(self) -> bool:
        """Whether producers, replicators of other regions or consumers are connected, or producers wait for access."""
        if self.producers or self.access.machine.is_in_use:
            return True
        return any(one.consumers for one in self.subscriptions.values())

    @property
    def compacted(self) -> Readable:
        return self.compaction.reading

    # Closing.

    def close(self, why: str) -> None:
        """Stop serving this topic. Sends without a receipt stay without one: clients reconnect and send them again."""
        if self.closed:
            return
        self.closed = True
        logger.info("topic %s closed: %s", self.full_name, why)
        self.access.close()
        self.publishing.close()
        self.transactions.close()
        for replicator in self.replicators.values():
            replicator.close()
        if self.subscriptions.replicated is not None:
            self.subscriptions.replicated.close()
        for subscription in list(self.subscriptions.values()):
            subscription.close()
        self.reading.cache.close()

    def failed(self, failure: BaseException) -> None:
        """Have the region load the topic again: its store failed, so its state in memory may be wrong."""
        if not self.closed:
            self.region.topic_failed(self.full_name, failure)


@lru_cache(maxsize=16)
def _follow_defaults(policies: TopicPolicies) -> bool:
    """Return whether a topic follows these policies as it is created. Computed once for topics that share them."""
    return not policies.differs(DEFAULTS, *INITIAL)


@lru_cache(maxsize=16)
def _limits_of(
    limits_type: Callable[[int, int, int, int], TopicLimits], policies: TopicPolicies
) -> TopicLimits:
    """Return the limits that policies set. Computed once for all topics that share their policies."""
    return limits_type(*(policies[policy] for policy in LIMITS))
