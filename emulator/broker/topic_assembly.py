"""What a topic is put together from, and how it is taken apart: its log, its cursors, its replicators.

The directory decides when (`broker/topic_directory/directory.py`); this file knows what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from emulator.broker.compaction.stored import log_names_of
from emulator.broker.environment import RegionServices
from emulator.broker.metadata import dispatch_policies, policy_application
from emulator.broker.metadata.policies import Effective, Policies
from emulator.broker.replication.link import PeerLink
from emulator.broker.subscription.cursor_store import cursors_of_topic
from emulator.broker.subscription.pending_acks import PendingAcksOfSubscription, pending_rows_of_topic
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.non_persistent.topic import NonPersistentTopic
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.deletions import Deletions
from emulator.broker.topic_directory.housekeeper import Housekeeper
from emulator.broker.topic_directory.partition_subscriptions import begin_like_the_first
from emulator.core.policies.inactivity import COMPACTION_THRESHOLD
from emulator.core.policies.topics import (
    DEDUPLICATION,
    EXCLUSIVE_HOME,
    KEEP_ALIVE_INTERVAL,
    REPLICATION_CLUSTERS,
)
from emulator.errors import CheckpointDamaged, ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import OwesKey, PendingAckKey, keys_of_topic, parse_key
from emulator.model.values import TopicName
from emulator.storage.contract import Log

logger = logging.getLogger(__name__)

VOLATILE_BITS: Final = 24
"""So many non-persistent topics can be made between two starts of a region before ids repeat."""

OBEYS = (COMPACTION_THRESHOLD, DEDUPLICATION, EXCLUSIVE_HOME, KEEP_ALIVE_INTERVAL, REPLICATION_CLUSTERS)
"""Policies that this module acts upon (P1)."""


class Assembly:
    """Implements `topic_directory.Opener`."""

    def __init__(
        self,
        region: RegionServices,
        policies: Policies,
        peers: Mapping[str, PeerLink],
        send_away: Callable[[Topic], None],
        topic_type: type[Topic],
        housekeeper: Housekeeper,
        deletions: Deletions,
        starts: Callable[[], int],
        partitions: Callable[[TopicName], int],
    ) -> None:
        """`starts`: how often the region was started. `partitions`: how many a topic has, 0 for none."""
        self._region = region
        self._policies = policies
        self._peers = peers
        self._topic_type = topic_type
        self._housekeeper = housekeeper
        self._deletions = deletions
        self._starts = starts
        self._partitions = partitions
        self._volatile_made = 0
        """Non-persistent topics, since the region was started."""
        self._send_away = send_away
        self._effective: dict[Topic, Effective] = {}
        """Of open topics."""
        self._following: dict[Topic, asyncio.Lock] = {}
        """One change of a topic's regions after the other."""

    async def open(self, name: TopicName, *, create: bool) -> Topic | None:
        if not self._policies.has_namespace(name.full_namespace):
            raise ProtocolError(ServerError.TopicNotFound, f"namespace {name.full_namespace} does not exist")
        if not name.is_persistent:
            return await self._make_volatile(name) if create else None
        log = await self._region.store.open_log(str(name), create=create)
        if log is None:
            return None
        await self._deletions.forget(str(name))
        base = name.partitioned
        if base is not None and name.partition_index < self._partitions(base):
            await begin_like_the_first(self._region.store, name, log, self._region.environment.components)
        try:
            return await self._load(name, log)
        except CheckpointDamaged as damage:
            logger.warning("%s: %s is loaded again", damage, name)
            return await self._load(name, log)

    async def _make_volatile(self, name: TopicName) -> Topic:
        await self._deletions.forget(str(name))
        self._volatile_made += 1
        ledger_id = (self._starts() + 1 << VOLATILE_BITS) + self._volatile_made
        effective = self._policies.of_topic(name)
        try:
            topic = await NonPersistentTopic.make(self._region, name, ledger_id)
            self._obey(topic, effective)
        except BaseException:
            effective.close()
            raise
        self._effective[topic] = effective
        return topic

    async def _load(self, name: TopicName, log: Log) -> Topic:
        """CheckpointDamaged when a cursor needs a part of the checkpoint that cannot be read. It is discarded then, and
        the topic can be made from its log."""
        effective = self._policies.of_topic(name)
        try:
            if self._remotes(effective):
                await self._note_owing(str(name))
            load = self._topic_type.load
            topic = await load(self._region, name, log, deduplicates=effective[DEDUPLICATION])
            try:
                self._obey(topic, effective)
            except CheckpointDamaged:
                topic.close("its checkpoint is damaged")
                await topic.discard_checkpoint()
                raise
            except BaseException:
                topic.close("it cannot be served")
                raise
        except BaseException:
            effective.close()
            raise
        self._effective[topic] = effective
        return topic

    def _obey(self, topic: Topic, effective: Effective) -> None:
        """From this step on the topic follows its policies."""

        def home_changed() -> None:
            home = effective[EXCLUSIVE_HOME]
            topic.access.move_home("" if home == self._region.config.region else home)

        def keep_alive_changed() -> None:
            topic.set_keep_alive(effective[KEEP_ALIVE_INTERVAL])

        def threshold_changed() -> None:
            topic.compaction.set_threshold(effective[COMPACTION_THRESHOLD] if topic.keeps_messages else 0)

        for policy, changed in (
            (EXCLUSIVE_HOME, home_changed),
            (KEEP_ALIVE_INTERVAL, keep_alive_changed),
            (COMPACTION_THRESHOLD, threshold_changed),
        ):
            changed()  # it may have changed while the topic was loaded
            effective.on_change(policy, changed)
        dispatch_policies.follow(topic, effective)
        policy_application.follow(topic, effective)
        switch = self._switch_deduplication
        effective.on_change(DEDUPLICATION, lambda: self._region.spawn(switch(topic, effective)))
        if topic.deduplicates != _deduplicates(topic, effective):  # it changed while the topic was loaded
            self._region.spawn(switch(topic, effective))
        effective.on_change(
            REPLICATION_CLUSTERS, lambda: self._region.spawn(self._replicate_elsewhere(topic, effective))
        )
        remotes = self._remotes(effective)
        if remotes and topic.keeps_messages:
            topic.sync = ReplicatedSubscriptions(topic, remotes)
        self._restore_subscriptions(topic)
        for remote in remotes:
            topic.replicators[remote] = topic.replicator_type(topic, self._peers[remote])
        if topic.keeps_messages:
            self._housekeeper.follow(topic, effective)

    def _remotes(self, effective: Effective) -> list[str]:
        """Whom the topic is replicated to: nobody, when this region does not share the messages itself."""
        sharing = effective[REPLICATION_CLUSTERS]
        if self._region.config.region not in sharing:
            return []
        return [region for region in sharing if region in self._peers]

    def _restore_subscriptions(self, topic: Topic) -> None:
        parts_type = self._region.environment.components.cursor_parts
        store = topic.region.store
        pending_rows = pending_rows_of_topic(store, topic.full_name)
        for stored in cursors_of_topic(store, topic.full_name, parts_type):
            subscription = topic.add_subscription(stored)
            rows = pending_rows.pop(subscription.name, None)
            if rows is not None:
                subscription.pending_acks = PendingAcksOfSubscription(subscription)
                subscription.pending_acks.load(rows)
            if topic.sync is not None and subscription.cursor.replicated:
                topic.sync.subscription_added(subscription)
        # What an interrupted deletion left. What cannot be deleted now is found again.
        for name, rows in pending_rows.items():
            for row in rows:
                key = PendingAckKey(topic.full_name, name, str(row)).text
                store.delete(key).add_done_callback(lambda done: done.exception())

    def serve(self, topic: Topic) -> None:
        topic.access.look_after()
        topic.transactions.look_after()
        for subscription in topic.subscriptions.values():
            if subscription.pending_acks is not None:
                subscription.pending_acks.look_after()
        for remote, replicator in topic.replicators.items():
            self._peers[remote].add(replicator)
        topic.compaction.serve()

    def send_away(self, topic: Topic) -> None:
        self._effective.pop(topic).close()
        self._housekeeper.forget(topic)
        self._following.pop(topic, None)
        topic.access.close()  # before its producers are gone: they lose nothing
        self._send_away(topic)

    async def _switch_deduplication(self, topic: Topic, effective: Effective) -> None:
        """One change after the other; the last one counts."""
        async with self._following.setdefault(topic, asyncio.Lock()):
            wanted = _deduplicates(topic, effective)
            if topic.closed or topic.deduplicates == wanted:
                return
            try:
                await topic.deduplicate(wanted)
            except StorageError as failure:
                topic.failed(failure)

    # Following a change of the regions.

    async def _replicate_elsewhere(self, topic: Topic, effective: Effective) -> None:
        """Start and stop replicators, so that the topic is replicated to whom its policies say now."""
        async with self._following.setdefault(topic, asyncio.Lock()):
            if topic.closed:
                return
            wanted = self._remotes(effective)
            try:
                if wanted:
                    await self._note_owing(topic.full_name)
                await self._stop_replicating(topic, wanted)
            except StorageError as failure:
                topic.failed(failure)
                return
            if not topic.closed:
                self._replicate_to(topic, wanted)
        if wanted != self._remotes(effective):
            await self._replicate_elsewhere(topic, effective)

    async def _stop_replicating(self, topic: Topic, wanted: list[str]) -> None:
        for remote in [name for name in topic.replicators if name not in wanted]:
            await topic.replicators[remote].flush()
            if topic.closed:
                return
            replicator = topic.replicators.pop(remote)
            replicator.close()
            # A replicator that starts later on the same row must not be overtaken by what this one is writing.
            await replicator.settled()

    def _replicate_to(self, topic: Topic, wanted: list[str]) -> None:
        if topic.sync is not None:
            topic.sync.remotes_changed(wanted)
        elif wanted and topic.keeps_messages:
            topic.sync = ReplicatedSubscriptions(topic, wanted)
            for subscription in topic.subscriptions.values():
                if subscription.cursor.replicated:
                    topic.sync.subscription_added(subscription)
        for remote in wanted:
            if remote not in topic.replicators:
                # It goes on where a former replicator to this region got, or begins with the first entry there is.
                topic.replicators[remote] = topic.replicator_type(topic, self._peers[remote])
                self._peers[remote].add(topic.replicators[remote])
        logger.info("topic %s is replicated to: %s", topic.full_name, ", ".join(wanted) or "no region")

    # Use and debt.

    def is_used(self, topic: Topic) -> bool:
        return topic.is_used

    def owes(self, topic: Topic) -> bool:
        if topic.compaction.is_running or self._housekeeper.has_work(topic):
            return True
        if not topic.replicators or not topic.keeps_messages:
            return False
        # What became durable after the topic was closed counts too: nobody was told of it, yet it is in the log.
        last = max(topic.log.next_entry_id, topic.stored_end) - 1
        if any(replicator.progress.confirmed < last for replicator in topic.replicators.values()):
            return True
        # A replicated subscription takes part in snapshots, and tells other regions where it is.
        return any(one.cursor.replicated for one in topic.subscriptions.values())

    async def _note_owing(self, name: str) -> None:
        """D3: before anything is acknowledged that has to be replicated."""
        if not TopicName.parse(name).is_persistent:
            return
        key = OwesKey(name).text
        if self._region.store.get(key) is None:
            await self._region.store.put(key, b"")

    async def forget_owing(self, topic: Topic) -> bool:
        if self.owes(topic):
            return False
        if topic.replicators:
            store, key = self._region.store, OwesKey(topic.full_name).text
            store.get(key)  # a key whose last write failed is refused until somebody looked (S5)
            await store.delete(key)
        return True

    async def forget_owing_when_settled(self, topic: Topic) -> None:
        """The topic was closed because the region stops."""
        await topic.settled()
        await self.forget_owing(topic)

    # Taking apart.

    async def write_pending(self, topic: Topic) -> None:
        writing = [subscription.flush() for subscription in topic.subscriptions.values()]
        writing += [replicator.flush() for replicator in topic.replicators.values()]
        writing.append(topic.access.flush())
        await asyncio.gather(*writing)

    async def erase(self, name: str, *, for_good: bool) -> None:
        store = self._region.store
        if for_good and self._is_shared(name):
            await self._deletions.remember(name, self._region.environment.wall_clock_ms())
        for compacted in log_names_of(store, TopicName.parse(name)):
            await store.delete_log(compacted)
        keys = [
            key for prefix in keys_of_topic(name) for key, _ in store.scan(prefix) if _belongs_to(key, name)
        ]
        for key in keys:
            store.get(key)  # a key whose last write failed is refused until somebody looked (S5)
            await store.delete(key)
        await store.delete_log(name)

    def _is_shared(self, name: str) -> bool:
        """Another region may have the topic, and replicate it to us."""
        return any(region in self._peers for region in self._policies.of_name(name)[REPLICATION_CLUSTERS])


def _deduplicates(topic: Topic, effective: Effective) -> bool:
    """What keeps nothing has nothing to compare with."""
    return effective[DEDUPLICATION] and topic.keeps_messages


def _belongs_to(text: str, name: str) -> bool:
    key = parse_key(text)
    return key is not None and getattr(key, "topic", None) == name
