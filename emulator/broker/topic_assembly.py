"""Loads a topic: its log, policies, subscriptions and replicators; disconnects it, and deletes its stored data.

The topic directory decides when this happens (`broker/topic_directory/directory.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from emulator.broker.compaction.compacted_log import log_names_of
from emulator.broker.components import SubscriptionComponents
from emulator.broker.connection.connection import ClientConnections
from emulator.broker.environment import RegionServices
from emulator.broker.incarnation import Incarnation
from emulator.broker.metadata.policies import Policies
from emulator.broker.replication.link import PeerLink
from emulator.broker.subscription.cursor_store import StoredCursor, cursors_of_topic, stored_cursors
from emulator.broker.subscription.pending_acks import PendingAcksOfSubscription, pending_rows_of_topic
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.non_persistent.topic import NonPersistentTopic
from emulator.broker.topic.replicators import note_owing, remote_regions
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.housekeeper import Housekeeper
from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.broker.topic_directory.topic_rules import TopicRules
from emulator.core.policies.topic_policies import TopicPolicies
from emulator.core.policies.topics import DEDUPLICATION, REPLICATION_CLUSTERS
from emulator.errors import CheckpointDamaged, ProtocolError, ServerError
from emulator.model.stored_keys import CursorKey, PendingAckKey, PendingWorkKey, keys_of_topic, parse_key
from emulator.model.values import TopicName
from emulator.storage.contract import Log, Store

logger = logging.getLogger(__name__)

NON_PERSISTENT_BITS: Final = 24
"""Bits of a ledger id that number the non-persistent topics of one start of a region. After 2**24 topics the ids are
those of the next start."""


class AssemblingRegion(RegionServices, Protocol):
    """The region, as this module needs it."""

    policies: Policies
    peers: dict[str, PeerLink]
    partitioned: PartitionedTopics
    topic_rules: TopicRules
    incarnation: Incarnation
    clients: ClientConnections
    housekeeper: Housekeeper


class Assembly:
    """Loads, creates and deletes topics. Implements `topic_directory.contract.TopicOpener`."""

    def __init__(self, region: AssemblingRegion, topic_type: type[Topic]) -> None:
        self._region = region
        self._topic_type = topic_type
        self._non_persistent_count = 0
        """Number of non-persistent topics created since the region was started."""

    async def open(self, name: TopicName, *, create: bool) -> Topic | None:
        if not self._region.policies.has_namespace(name.full_namespace):
            raise ProtocolError(ServerError.TopicNotFound, f"namespace {name.full_namespace} does not exist")
        if not name.is_persistent:
            return await self._create_non_persistent(name) if create else None
        is_new = not self._region.store.has_log(name.text)
        log = await self._region.store.open_log(name.text, create=create)
        if log is None:
            return None
        if name.text in (deletions := self._region.topic_rules.deletions):
            await deletions.forget(name.text)
        base = name.partitioned
        if base is None and is_new and log.next_entry_id == 0:
            if self._remotes(self._region.policies.of_topic(name)):
                await note_owing(self._region, name)
            return self._create(name, log, self._region.policies.of_topic(name))  # D6: no log, no rows
        if base is not None and name.partition_index < self._region.partitioned.count(base):
            await inherit_subscriptions(
                self._region.store, name, log, self._region.environment.components.subscriptions
            )
        try:
            return await self._load(name, log)
        except CheckpointDamaged as damage:
            logger.warning("%s: %s is loaded again", damage, name)
            return await self._load(name, log)

    async def _create_non_persistent(self, name: TopicName) -> Topic:
        await self._region.topic_rules.deletions.forget(str(name))
        self._non_persistent_count += 1
        ledger_id = (self._region.incarnation.starts + 1 << NON_PERSISTENT_BITS) + self._non_persistent_count
        topic = await NonPersistentTopic.make(self._region, name, ledger_id, self._region.peers)
        self._set_up(topic)
        return topic

    def begin_creating(self, name: TopicName) -> asyncio.Future[Log] | None:
        if not name.is_persistent or name.partitioned is not None:
            return None
        if self._local_policies(name) is None or name.text in self._region.topic_rules.deletions:
            return None
        return self._region.store.create_log(name.text)

    def created(self, name: TopicName, log: Log) -> Topic | None:
        policies = self._local_policies(name)
        return None if policies is None or log.next_entry_id else self._create(name, log, policies)

    def _local_policies(self, name: TopicName) -> TopicPolicies | None:
        """Return the policies of a topic that has no pending work to note: it may exist, and is not replicated."""
        if name.full_namespace not in self._region.policies.existing:
            return None
        policies = self._region.policies.of_topic(name)
        return None if self._remotes(policies) else policies

    def _create(self, name: TopicName, log: Log, policies: TopicPolicies) -> Topic:
        """Return a persistent topic whose log was created just now."""
        topic = self._topic_type.create(
            self._region, name, log, deduplicates=policies[DEDUPLICATION], peers=self._region.peers
        )
        try:
            self._set_up(topic)
        except BaseException:
            topic.close("it cannot be served")
            raise
        return topic

    async def _load(self, name: TopicName, log: Log) -> Topic:
        """Load a persistent topic. CheckpointDamaged when a cursor needs an unreadable part of the checkpoint, which is
        then discarded: the next attempt loads the topic from its log."""
        if self._remotes(self._region.policies.of_topic(name)):
            await note_owing(self._region, name)
        deduplicates = self._region.policies.of_topic(name)[DEDUPLICATION]
        topic = await self._topic_type.load(
            self._region, name, log, deduplicates=deduplicates, peers=self._region.peers
        )
        try:
            self._set_up(topic)
        except CheckpointDamaged:
            topic.close("its checkpoint is damaged")
            await topic.checkpoints.discard()
            raise
        except BaseException:
            topic.close("it cannot be served")
            raise
        return topic

    def _set_up(self, topic: Topic) -> None:
        """Apply the topic's policies, now and whenever they change, restore its subscriptions, and add its replicators
        and its housekeeping."""
        self._region.policies.attach(topic)
        try:
            remotes = self._remotes(topic.policies)
            if remotes and topic.keeps_messages and topic.subscriptions.are_replicable:
                topic.subscriptions.replicated = ReplicatedSubscriptions(topic, remotes)
            if not topic.is_new:
                self._restore_subscriptions(topic)
            for remote in remotes:
                topic.replicators.add(remote)
        except BaseException:
            self._region.policies.detach(topic)
            raise
        if topic.keeps_messages:
            self._region.housekeeper.follow(topic)

    def _remotes(self, policies: TopicPolicies) -> list[str]:
        return remote_regions(policies, self._region.config.region, self._region.peers)

    def _restore_subscriptions(self, topic: Topic) -> None:
        parts_type = self._region.environment.components.subscriptions.cursor_parts
        store = topic.region.store
        pending_rows = pending_rows_of_topic(store, topic.full_name)
        for stored in cursors_of_topic(store, topic.full_name, parts_type):
            subscription = topic.subscriptions.add(stored)
            rows = pending_rows.pop(subscription.name, None)
            if rows is not None:
                subscription.pending_acks = PendingAcksOfSubscription(subscription)
                subscription.pending_acks.load(rows)
            if topic.subscriptions.replicated is not None and subscription.cursor.replicated:
                topic.subscriptions.replicated.subscription_added(subscription)
        # An interrupted deletion left these rows. If deleting them fails now, the next load finds them again.
        for name, rows in pending_rows.items():
            for row in rows:
                key = PendingAckKey(topic.full_name, name, str(row)).text
                store.delete(key).add_done_callback(lambda done: done.exception())

    def serve(self, topic: Topic) -> None:
        if not topic.is_new:
            topic.access.start()
            topic.transactions.end_orphans()
            for subscription in topic.subscriptions.values():
                if subscription.pending_acks is not None:
                    subscription.pending_acks.end_orphans()
        topic.replicators.serve()
        if topic.started_compaction is not None:
            topic.started_compaction.serve()

    def send_away(self, topic: Topic) -> None:
        self._region.policies.detach(topic)
        self._region.housekeeper.forget(topic)
        topic.access.close()  # before the producers are detached, so that they keep their grants
        self._region.clients.topic_closed(topic)

    # Pending work.

    def owes(self, topic: Topic) -> bool:
        compaction = topic.started_compaction
        if (compaction is not None and compaction.is_running) or self._region.housekeeper.has_work(topic):
            return True
        if not topic.replicators or not topic.keeps_messages:
            return False
        # Entries that became durable after the topic was closed count too: they have no receipt, but are in the log.
        last = max(topic.log.next_entry_id, topic.state.stored_end) - 1
        for replicator in topic.replicators.values():
            if replicator.progress.confirmed < last or replicator.announces_partition:
                return True
        # A replicated subscription requires snapshots, and sends its position to other regions.
        return any(one.cursor.replicated for one in topic.subscriptions.values())

    async def forget_owing(self, topic: Topic) -> bool:
        if self.owes(topic):
            return False
        if topic.replicators:
            store, key = self._region.store, PendingWorkKey(topic.full_name).text
            store.get(key)  # after a failed write the store rejects the key until it is read (S5)
            await store.delete(key)
        return True

    async def forget_pending_work_when_settled(self, topic: Topic) -> None:
        """Forget pending work that a topic no longer has when the region stops, once its writes are settled."""
        await topic.settled()
        await self.forget_owing(topic)

    # Disassembling.

    async def write_pending(self, topic: Topic) -> None:
        writing = [subscription.flush() for subscription in topic.subscriptions.values()]
        writing += [replicator.flush() for replicator in topic.replicators.values()]
        writing.append(topic.access.stored_queue.flush())
        await asyncio.gather(*writing)

    async def erase(self, name: str, *, for_good: bool) -> None:
        store = self._region.store
        if for_good and self._is_shared(name):
            await self._region.topic_rules.deletions.remember(name, self._region.environment.wall_clock_ms())
        for compacted in log_names_of(store, TopicName.parse(name)):
            await store.delete_log(compacted)
        keys = [
            key for prefix in keys_of_topic(name) for key, _ in store.scan(prefix) if _belongs_to(key, name)
        ]
        for key in keys:
            store.get(key)  # after a failed write the store rejects the key until it is read (S5)
            await store.delete(key)
        await store.delete_log(name)

    def _is_shared(self, name: str) -> bool:
        """Whether another region may have the topic, and replicate it to this region."""
        clusters = self._region.policies.of_topic(TopicName.parse(name))[REPLICATION_CLUSTERS]
        return any(region in self._region.peers for region in clusters)


def _belongs_to(text: str, name: str) -> bool:
    key = parse_key(text)
    return key is not None and getattr(key, "topic", None) == name


async def inherit_subscriptions(
    store: Store, name: TopicName, log: Log, components: SubscriptionComponents
) -> None:
    """Create each durable subscription of partition 0 in this new partition, at its first entry. StorageError.

    So consumers also receive messages that were published to a new partition before they discovered it
    (docs/components/partitions.md, N4). An empty partition gets the subscriptions whenever it is opened, before any
    producer can publish to it. So a crash, and other regions, where the first request opens the partition, need no
    special handling."""
    if not components.inherits(name.partition_index, log.first_entry_id, log.next_entry_id):
        return
    for inherited in _stored_subscriptions(store, f"{name.partitioned}-partition-0", components):
        key = CursorKey(str(name), inherited.key.subscription)
        if store.get(key.text) is None:
            cursor = components.cursor(log.first_entry_id - 1)
            cursor.set_replicated(inherited.cursor.replicated)
            if inherited.cursor.replication_disabled:
                cursor.disable_replication()
            await _put(store, StoredCursor(key, components.cursor_parts(cursor)))


def _stored_subscriptions(store: Store, topic: str, components: SubscriptionComponents) -> list[StoredCursor]:
    """Return the stored subscriptions of a topic, from their head rows only. The parts with individual acknowledgements
    are not read, because the topic may be writing them."""
    heads = [(parse_key(text), versioned.value) for text, versioned in store.scan(CursorKey.prefix(topic))]
    return list(stored_cursors(heads, components.cursor_parts).values())


async def _put(store: Store, stored: StoredCursor) -> None:
    for step in stored.take_changes().puts:
        for key, value in step.items():
            await store.put(key, value)
