"""One topic of a region: its log, who publishes to it, who reads it.

Keeps the order of docs/ARCHITECTURE.md, "Durable, visible, applied":
admitted → issued → durable → applied → visible → acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from emulator.broker.compaction.compaction import Compaction
from emulator.broker.compaction.reading import CompactedReading
from emulator.broker.environment import RegionServices
from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.cursor_store import StoredCursor
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.checkpoints import Checkpoints
from emulator.broker.topic.entry_cache import StoredEntry, TailCache
from emulator.broker.topic.exclusive_access import TopicAccess
from emulator.broker.topic.policy_application import apply_limits
from emulator.broker.topic.publishing import (
    Attachment,
    CheckedEntry,
    PendingPublish,
    hold_back,
    limits_of,
    slow_down,
)
from emulator.broker.topic.reading import TopicReading
from emulator.broker.topic.recovery import check_is_whole, replay
from emulator.broker.topic.replicators import Replicators
from emulator.broker.topic.storing import Storing
from emulator.broker.topic.termination import Ending
from emulator.broker.topic.traffic import Traffic
from emulator.broker.topic.transactions import TopicTransactions
from emulator.broker.topic.trimming import Trimmer
from emulator.broker.topic.view import CarriedSubscription
from emulator.core.admission import check
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch import Limits as DispatchLimits
from emulator.core.flow.fair_queue import Turns
from emulator.core.flow.rate_limit import Pace, Throttle
from emulator.core.policies.inactivity import COMPACTION_THRESHOLD
from emulator.core.policies.limits import DISPATCH_RATES_BY_SUBSCRIPTION, SUBSCRIPTION_DISPATCH_RATE
from emulator.core.policies.topic_policies import DEFAULTS, TopicPolicies
from emulator.core.policies.topics import DEDUPLICATION, EXCLUSIVE_HOME, KEEP_ALIVE_INTERVAL
from emulator.core.replication.subscription_updates import Applied
from emulator.core.topic.limits import NO_CAPS, Arrivals
from emulator.core.topic.state import LastData
from emulator.core.transactions.names import TxnId
from emulator.errors import CheckpointDamaged, ProtocolError, StorageError
from emulator.model.markers import Marker
from emulator.model.stored_keys import CursorKey
from emulator.model.values import Position, TopicName
from emulator.storage.contract import Log
from emulator.wire.codec import SendCommand
from emulator.wire.markers import encode_marker
from emulator.wire.message_metadata import EntryInfo

OBEYS = (COMPACTION_THRESHOLD, DEDUPLICATION, EXCLUSIVE_HOME, KEEP_ALIVE_INTERVAL)
"""Policies that this module acts upon (P1)."""

if TYPE_CHECKING:
    from emulator.broker.replication.link import PeerLink
    from emulator.broker.subscription.replicated import ReplicatedSubscriptions
    from emulator.broker.topic.producer import Producer

logger = logging.getLogger(__name__)

_attachment: Final = attrgetter("attachment")


async def _nothing() -> None:
    """What has to be done before a producer attaches, where no policy says more."""


class Topic:
    """Owned by its Region; made by `Topic.load`."""

    keeps_messages = True
    """False for a non-persistent topic: it has no places to go back to, and nothing to catch up with."""
    access_type: type[TopicAccess] = TopicAccess
    """Applies the rules of access: which clients may publish."""
    replicator_type: type[Replicator] = Replicator
    """Sends entries of the topic to one remote region."""

    def __init__(
        self,
        region: RegionServices,
        name: TopicName,
        log: Log,
        *,
        deduplicates: bool,
        peers: Mapping[str, PeerLink],
    ) -> None:
        self.region = region
        self.name = name
        self.full_name = str(name)
        self.policies = DEFAULTS
        """What applies to it; replaced by `apply`."""
        self.log = log
        self.ledger_id = log.ledger_id
        self.tail = TailCache(log.next_entry_id, region.tails)
        parts = region.environment.components
        self.state = parts.topic_state(
            region.config.region,
            deduplicates=deduplicates,
            deduplication=parts.deduplication,
            watermarks=parts.watermarks,
        )
        self.checkpoints = Checkpoints(region.store, self.full_name, log.ledger_id, self.state)
        self.reading = TopicReading(self)
        self.producers: dict[str, Producer] = {}
        """Connected producers by name, inbound replicators included."""
        self.subscriptions: dict[str, Subscription] = {}
        self.replicators = Replicators(self, peers)
        self.trimmer = Trimmer(self)
        """Lets go of the log's oldest entries, and knows who still needs them."""
        self.quota_refusal: ProtocolError | None = None
        """What producers of clients are told because a backlog is over its quota; None: they may come."""
        self.before_producers: Callable[[], Coroutine[Any, Any, None]] = _nothing
        """Awaited before a client's producer attaches; `quota_refusal` is as it is now afterwards."""
        self.access = self.access_type(self)
        """Which clients may publish."""
        self.ending = Ending(self)
        """Whether somebody terminated it."""
        self.transactions = TopicTransactions(self)
        """Which of its messages are not readable yet, and whoever ends that."""
        self.sync: ReplicatedSubscriptions | None = None
        """Replicated subscriptions (PIP-33); present when the topic is replicated at all."""
        self.compaction = Compaction(self)
        self.trimmer.needs.add("compaction", self.compaction.needs)
        self.trimmer.needs.add("transactions", self.transactions.needs)
        self.closed = False
        self.limits = self.client_limits = limits_of(region.config)
        """What an entry may weigh; of another region, and of a client."""
        self.caps = NO_CAPS
        """How many may use it at once."""
        self.arrivals = Arrivals()
        """How often each consumer came."""
        self.publish_throttle: Throttle | None = None
        self.dispatch_throttle: Throttle | None = None
        """Of all its consumers. None: as fast as they can."""
        self.dispatch_turns = Turns()
        """Its subscriptions that wait for that."""
        settings = region.config.settings
        self.dispatch_limits = DispatchLimits(
            settings.max_unacked_messages_per_consumer,
            settings.failover_delay_ms,
            partition_index=name.partition_index,
        )
        self._batch: list[PendingPublish] = []
        """Admitted, not yet issued."""
        self.loaded_end_entry_id = log.next_entry_id
        """Where the log ended when the topic was loaded."""
        self.loaded_ms = region.environment.wall_clock_ms()
        self.published = Traffic(asyncio.get_running_loop().time())
        """What producers and other regions sent."""
        self.storing = Storing(asyncio.get_running_loop().time())
        self.published_ms = 0
        """When something was published last, by the region's clock; 0: not since it is in memory."""
        self._issued = 0
        """Groups issued and not yet durable."""
        self._last_issued: asyncio.Future[int] | None = None
        self._entries_since_checkpoint = 0
        self._switching_deduplication = asyncio.Lock()
        """One change after the other; the last one counts."""

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> int:
        """Follow `new` from this step on; `old` is None when the topic was loaded. Return the number of objects that
        may have been visited."""
        self.policies = new
        if new is not old:
            if new.differs(old, EXCLUSIVE_HOME):
                home = new[EXCLUSIVE_HOME]
                self.access.move_home("" if home == self.region.config.region else home)
            if new.differs(old, KEEP_ALIVE_INTERVAL):
                for producer in (*self.producers.values(), *self.access.line):
                    producer.connection.liveness.hurry(new[KEEP_ALIVE_INTERVAL])
            if self.keeps_messages and new.differs(old, COMPACTION_THRESHOLD):
                self.compaction.set_threshold(new[COMPACTION_THRESHOLD])
            apply_limits(self, old, new)
            switches = (
                self.deduplicates != new[DEDUPLICATION] if old is None else new.differs(old, DEDUPLICATION)
            )
            if self.keeps_messages and switches:
                self.region.spawn(self._switch_deduplication())
            self.replicators.apply(old, new)
            if self.keeps_messages:
                self.region.housekeeper.policies_changed(self.full_name)
        return 1 + len(self.subscriptions) + len(self.producers)

    # Loading.

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
        """Rebuild what is known of the log. CheckpointDamaged when it does not go back to its beginning, and the
        checkpoint cannot be read."""
        topic = cls(region, name, log, deduplicates=deduplicates, peers=peers)
        try:
            at = topic.checkpoints.restore(log.next_entry_id)
        except CheckpointDamaged as damage:
            check_is_whole(log, name, damage)
            logger.warning("topic %s: %s is rebuilt from the log", damage, name)
            topic.close("its checkpoint is damaged")
            topic = cls(region, name, log, deduplicates=deduplicates, peers=peers)
            at = 0
        try:
            topic._entries_since_checkpoint = await replay(topic, at)
        except BaseException:
            topic.close("its log cannot be read")
            raise
        return topic

    def _checkpoint(self) -> None:
        """Let a restart begin here, and let go of what every cursor has passed."""
        self._entries_since_checkpoint = 0
        self.checkpoints.write()
        needed = [subscription.cursor.mark_delete + 1 for subscription in self.subscriptions.values()]
        needed += [replicator.progress.confirmed + 1 for replicator in self.replicators.values()]
        self.state.visibility.forget_below(min([*needed, self.readable_end]))

    # Publishing.

    def publish(
        self,
        attachment: Attachment,
        send: SendCommand | None,
        data: bytes,
        info: CheckedEntry,
        marker: Marker | None,
    ) -> None:
        """Admit one entry into the current batch; `flush` issues it."""
        duplicate = not self.state.admit(attachment.publisher, info)
        self._batch.append(PendingPublish(attachment, send, data, info, marker, duplicate))

    def write_marker(self, attachment: Attachment, marker: Marker, replicate_to: Sequence[str]) -> None:
        """Append a marker of our own, for these regions; empty: for all. Not to a topic that was terminated."""
        if self.ending.is_over:
            return
        data, info = encode_marker(marker, self.region.environment.wall_clock_ms(), replicate_to)
        refusal = check(attachment.publisher, info, marker, len(data), self.limits)
        assert refusal is None, refusal
        self.append_own(attachment, data, info, marker)

    def append_own(
        self, attachment: Attachment, data: bytes, info: EntryInfo, marker: Marker | None = None
    ) -> None:
        """Append an entry of our own, behind everything admitted before."""
        checked = cast(CheckedEntry, info)
        self._batch.append(PendingPublish(attachment, None, data, checked, marker, False))
        self.flush()

    def append_own_soon(self, attachment: Attachment, data: bytes, info: EntryInfo) -> None:
        """The same, as one write with what else is admitted in this turn of the loop."""
        if not self._batch:
            asyncio.get_running_loop().call_soon(self.flush)
        self._batch.append(PendingPublish(attachment, None, data, cast(CheckedEntry, info), None, False))

    def end_partition(self, txn: TxnId, committed: bool, low_watermark: int) -> asyncio.Future[None]:
        """What a transaction published here is readable from now on, or never will be. Done when that is durable."""
        self.transactions.over_upto(txn.most, low_watermark)
        return self.transactions.end(txn, committed=committed)

    def flush(self) -> None:
        """Issue everything admitted as one group."""
        batch, self._batch = self._batch, []
        if not batch or self.closed:
            return
        if self.publish_throttle is not None:
            slow_down(self.publish_throttle, batch, self.producers.values())
        fresh = [publish.data for publish in batch if not publish.duplicate]
        if fresh:
            self._issued += 1
            future = self.log.append(fresh)
            self.storing.follow(fresh, future)
        elif self._issued and self._last_issued is not None:
            # Acknowledge duplicates only after everything issued before them: wait behind it.
            self._issued += 1
            future = self._last_issued
        else:
            self._acknowledge(batch)
            return
        self._last_issued = future
        future.add_done_callback(lambda done: self._stored(batch, done))

    async def issued_so_far(self) -> None:
        """Wait until everything admitted before has its outcome."""
        self.flush()
        if self._issued and self._last_issued is not None:
            await asyncio.wait([self._last_issued])

    async def settled(self) -> None:
        """After `close`: wait until whatever was under way has its outcome. What is loaded before that is not what the
        store will hold: an append that is still under way would be stored behind our back."""
        await self.issued_so_far()
        for subscription in self.subscriptions.values():
            await subscription.settled()
        for replicator in self.replicators.values():
            await replicator.settled()
        await self.access.settled()
        await self.compaction.settled()
        await self.trimmer.settled()

    def _stored(self, batch: list[PendingPublish], done: asyncio.Future[int]) -> None:
        self._issued -= 1
        failure = done.exception()
        if self.closed:
            return
        if failure is not None:
            self.failed(failure)
            return
        entries: list[StoredEntry] = []
        next_id, fold = done.result(), self.state.fold
        for publish in batch:
            if not publish.duplicate:
                publish.entry_id = next_id
                entries.append(StoredEntry(next_id, publish.data, publish.info, publish.marker))
                fold(next_id, publish.info)
                next_id += 1
        if entries:
            self.tail.extend(entries)
        self._acknowledge(batch)
        self._notify(entries)

    def _acknowledge(self, batch: list[PendingPublish]) -> None:
        """Tell each attachment, in the order of its sends."""
        by_attachment: dict[Attachment, list[PendingPublish]] = {}
        for attachment, publishes in groupby(batch, _attachment):
            by_attachment.setdefault(attachment, []).extend(publishes)
        for attachment, its_publishes in by_attachment.items():
            attachment.stored(its_publishes)

    def _notify(self, entries: list[StoredEntry]) -> None:
        """The entries are visible: let whoever waits for them have them."""
        self.pump()
        if self.closed:  # what it handed out made it fail: the next life says what is true
            return
        if self.sync is not None and entries:
            self.sync.entries_stored(entries)
        if self.compaction.threshold_bytes:
            self.compaction.grew(entries)
        self._entries_since_checkpoint += len(entries)
        if self._entries_since_checkpoint >= self.region.config.settings.state_checkpoint_entries:
            self._checkpoint()

    def pump(self) -> None:
        """Let consumers and replicators go on."""
        for subscription in list(self.subscriptions.values()):
            subscription.handing_out.pump()
        for replicator in self.replicators.values():
            replicator.pump()

    def create_subscription(self, name: str, cursor: Cursor, *, durable: bool = True) -> Subscription:
        """Add a subscription that does not exist yet. Not durable before its `persisted` returns."""
        assert name not in self.subscriptions
        parts = self.region.environment.components.cursor_parts(cursor)
        return self.add_subscription(StoredCursor(CursorKey(self.full_name, name), parts), durable=durable)

    def add_subscription(self, stored: StoredCursor, *, durable: bool = True) -> Subscription:
        """Add one whose cursor the store may have. CheckpointDamaged: see `TopicReading.remember_from`."""
        name = stored.key.subscription
        subscription = Subscription(self, name, stored, durable=durable)
        self.reading.remember_from(subscription.cursor.mark_delete + 1)
        self.subscriptions[name] = subscription
        return subscription

    def replicate_subscription(self, subscription: CarriedSubscription) -> None:
        """From now on the subscription's position is carried to the other regions, and theirs here (PIP-33).
        ProtocolError when it is not durable."""
        self.check_replicable(subscription)
        subscription.move(lambda cursor: cursor.set_replicated(True))
        if self.sync is not None:
            self.sync.subscription_added(subscription)

    def check_replicable(self, subscription: CarriedSubscription) -> None:
        """ProtocolError when it cannot be replicated."""
        parts = self.region.environment.components
        parts.check_replicable(subscription.name, durable=subscription.durable)

    def disable_replication(self, subscription: CarriedSubscription) -> None:
        """From now on no position of the subscription is sent or applied, until an administrator turns it on again."""
        subscription.move(lambda cursor: cursor.disable_replication())
        if self.sync is not None:
            self.sync.subscription_removed(subscription.name)

    # What its subscriptions and replicators tell (broker.topic.view).

    def subscription_rate_of(self, name: str) -> Pace:
        """Return how fast a subscription may send: its own rate, else that of all subscriptions."""
        rates = self.policies[DISPATCH_RATES_BY_SUBSCRIPTION]
        return rates.get(name, self.policies[SUBSCRIPTION_DISPATCH_RATE])

    def subscription_ended(self, name: str) -> None:
        self.subscriptions.pop(name, None)
        if self.sync is not None:
            self.sync.subscription_removed(name)

    def entries_read(self, name: str, entries: Sequence[StoredEntry]) -> None:
        subscription = self.subscriptions.get(name)
        if self.sync is not None and subscription is not None and subscription.cursor.replicated:
            self.sync.entries_read(subscription, entries)

    def mark_delete_moved(self, name: str) -> None:
        subscription = self.subscriptions.get(name)
        if self.sync is not None and subscription is not None and subscription.cursor.replicated:
            self.sync.mark_delete_moved(subscription)

    def sought(self, name: str) -> None:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return
        self.reading.remember_from(subscription.cursor.mark_delete + 1)
        if self.sync is not None:
            self.sync.sought(subscription)

    def replicator_ready(self, remote: str) -> None:
        if self.sync is not None:
            self.sync.links_changed()

    def replicator_lost(self, remote: str) -> None:
        if self.sync is not None:
            self.sync.link_lost(remote)

    @property
    def is_over(self) -> bool:
        # What is open may be committed yet: consumers must not be told that there is nothing more.
        return self.ending.is_over and self.state.buffer.open_from is None

    @property
    def deduplicates(self) -> bool:
        return self.state.deduplicates

    async def _switch_deduplication(self) -> None:
        """Store each message once from now on, or not, as the policies say. What was known of producers is forgotten
        first, and durably: while nothing was judged they may have begun to count anew."""
        async with self._switching_deduplication:
            wanted = self.policies[DEDUPLICATION]
            if self.closed or self.deduplicates == wanted:
                return
            self.state.forget_producers()
            try:
                await self.checkpoints.write_durably()
            except StorageError as failure:
                self.failed(failure)
                return
            self.state.deduplicates = wanted and not self.closed

    # Its producers.

    def last_sequence_id(self, producer_name: str) -> int:
        """Of a client's producer: its highest durable number, -1 for none."""
        return self.state.last_sequence_id(producer_name)

    def attach(self, producer: Producer) -> None:
        """A producer is connected; its name was free."""
        self.producers[producer.producer_name] = producer
        if self.publish_throttle is not None:
            hold_back(self.publish_throttle, [producer])
        if producer.source_region is not None and self.sync is not None:
            self.sync.links_changed()

    def detach(self, producer: Producer, why: str) -> None:
        """It left, unless another one took its name before."""
        if self.producers.get(producer.producer_name) is not producer:
            return
        del self.producers[producer.producer_name]
        if producer.source_region is None:
            self.access.left(producer, why)
        elif self.sync is not None:
            self.sync.link_lost(producer.source_region)

    def publish_rate(self) -> tuple[float, float]:
        """Return the messages and bytes that are published per second."""
        now = asyncio.get_running_loop().time()
        return self.published.message_rate(now), self.published.byte_rate(now)

    def note_published(self, messages: int, bytes_: int) -> None:
        """So much became durable; for figures."""
        self.published.add(messages, bytes_)
        self.published_ms = self.region.environment.wall_clock_ms()

    # Reading.

    @property
    def first_entry_id(self) -> int:
        return max(self.log.first_entry_id, self.trimmer.floor)

    @property
    def is_used(self) -> bool:
        """By clients or by other regions' replicators."""
        if self.producers or self.access.is_in_use:
            return True
        return any(one.consumers for one in self.subscriptions.values())

    @property
    def stored_end(self) -> int:
        return self.state.stored_end

    @property
    def end_entry_id(self) -> int:
        """What consumers may read ends here."""
        return self.state.readable_end

    @property
    def readable_end(self) -> int:
        return self.state.readable_end

    @property
    def replicable_end(self) -> int:
        return self.state.replicable_end

    @property
    def last_data(self) -> LastData | None:
        return self.state.last_data

    @property
    def hidden_ids(self) -> IdSet:
        return self.state.visibility.hidden

    def follow(self, cursor: Cursor, source: str, own_entry_id: int, named: Collection[str]) -> Applied:
        parts = self.region.environment.components
        return self.state.follow(
            cursor, source, own_entry_id, named=named, never=parts.never_reaches, apply=parts.apply_update
        )

    def recent(self, from_entry_id: int, entries_max: int) -> list[StoredEntry] | None:
        return self.reading.recent(from_entry_id, entries_max)

    @property
    def last_position(self) -> Position:
        """Of the newest applied entry, marker or not; (ledger, -1) when there is none."""
        return Position(self.ledger_id, self.end_entry_id - 1)

    async def read(self, from_entry_id: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        return await self.reading.read(from_entry_id, entries_max, bytes_max)

    @property
    def compacted(self) -> CompactedReading:
        return self.compaction.reading

    # Leaving.

    def close(self, why: str) -> None:
        """Stop serving this topic. Whatever is in flight stays unanswered: clients reconnect and send it again."""
        if self.closed:
            return
        self.closed = True
        logger.info("topic %s closed: %s", self.full_name, why)
        self.access.close()
        self.transactions.close()
        for replicator in self.replicators.values():
            replicator.close()
        if self.sync is not None:
            self.sync.close()
        for subscription in list(self.subscriptions.values()):
            subscription.close()
        self.tail.close()

    def failed(self, failure: BaseException) -> None:
        """The store did not keep something of this topic, so what we have in memory may be wrong."""
        if not self.closed:
            self.region.topic_failed(self.full_name, failure)
