"""The replicators of one topic: one for each remote region that its policies name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from emulator.broker.environment import RegionServices
from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.received_updates import ReplicatedTopic
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.subscriptions import Subscriptions
from emulator.core.policies.limits import REPLICATOR_DISPATCH_RATE
from emulator.core.policies.topic_policies import TopicPolicies
from emulator.core.policies.topics import REPLICATION_CLUSTERS
from emulator.errors import StorageError
from emulator.model.reasons import Cause, ReasonRow
from emulator.model.stored_keys import PendingWorkKey
from emulator.model.values import TopicName

if TYPE_CHECKING:
    from emulator.broker.replication.link import PeerLink
    from emulator.broker.topic.publishing import TopicPublishing

logger = logging.getLogger(__name__)

OBEYS = (REPLICATION_CLUSTERS, REPLICATOR_DISPATCH_RATE)
"""Policies that this module acts upon (PO1)."""


class TopicOfReplicators(ReplicatedTopic, Protocol):
    """The topic, as this module needs it."""

    @property
    def subscriptions(self) -> Subscriptions: ...
    @property
    def publishing(self) -> TopicPublishing: ...


def remote_regions(policies: TopicPolicies, own: str, peers: Mapping[str, PeerLink]) -> list[str]:
    """Return the regions that a topic is replicated to, without removed ones: none when the policies do not name this
    region."""
    regions = policies[REPLICATION_CLUSTERS]
    if own not in regions or len(regions) == 1:
        return []
    return [name for name in regions if name in peers and not peers[name].is_removed]


async def note_owing(region: RegionServices, topic: TopicName) -> None:
    """Store that a persistent topic must be loaded after a restart (D3). Called before a topic with replicators is
    served, so before an entry that must be replicated is acknowledged. StorageError."""
    key = PendingWorkKey(str(topic)).text
    if topic.is_persistent and region.store.get(key) is None:
        await region.store.put(key, b"")


class Replicators(dict[str, Replicator]):
    """Replicators of one topic, by remote region."""

    def __init__(
        self, topic: TopicOfReplicators, peers: Mapping[str, PeerLink], replicator_type: type[Replicator]
    ) -> None:
        super().__init__()
        self._topic = topic
        self._peers = peers
        self._replicator_type = replicator_type
        self._regions_lock: asyncio.Lock | None = None
        """Serialises changes of the set of regions; created at the first one."""

    def apply(self, old: TopicPolicies | None, new: TopicPolicies) -> None:
        """Apply changed policies. The first replicators are added when the topic is loaded."""
        if new.differs(old, REPLICATOR_DISPATCH_RATE):
            for replicator in self.values():
                replicator.rate.set(new[REPLICATOR_DISPATCH_RATE])
        if old is not None and new.differs(old, REPLICATION_CLUSTERS):
            self._topic.region.spawn(self._change_regions())

    def add(self, remote: str) -> None:
        """Add a replicator. It continues where a former one to this region ended, or begins with the log's first
        entry."""
        self[remote] = self._replicator_type(self._topic, self._peers[remote])

    def serve(self) -> None:
        """Connect to the remote regions; called when the topic accepts clients."""
        for replicator in self.values():
            replicator.peer.add(replicator)

    async def _change_regions(self) -> None:
        """Start and stop replicators according to the current policies."""
        topic = self._topic
        if self._regions_lock is None:
            self._regions_lock = asyncio.Lock()
        async with self._regions_lock:
            if topic.closed:
                return
            wanted = remote_regions(topic.policies, topic.region.config.region, self._peers)
            try:
                if wanted:
                    await note_owing(topic.region, topic.name)
                await self._stop_others(wanted)
            except StorageError as failure:
                topic.failed(failure)
                return
            if not topic.closed:
                self._start(wanted)

    async def _stop_others(self, wanted: list[str]) -> None:
        for remote in [name for name in self if name not in wanted]:
            await self[remote].flush()
            if self._topic.closed:
                return
            replicator = self.pop(remote)
            replicator.close()
            # This replicator's pending write must not overtake those of a later replicator with the same row.
            await replicator.settled()

    def _start(self, wanted: list[str]) -> None:
        topic = self._topic
        if topic.subscriptions.replicated is not None:
            topic.subscriptions.replicated.snapshots.remotes_changed(wanted)
        elif wanted and topic.keeps_messages and topic.subscriptions.are_replicable:
            topic.subscriptions.replicated = ReplicatedSubscriptions(topic, wanted)
            for subscription in topic.subscriptions.values():
                if subscription.cursor.replicated:
                    topic.subscriptions.replicated.subscription_added(subscription)
        for remote in wanted:
            if remote not in self:
                self.add(remote)
                self[remote].peer.add(self[remote])
        logger.info("topic %s is replicated to: %s", topic.full_name, ", ".join(wanted) or "no region")

    # Connectivity.

    def disconnected(self, remotes: frozenset[str]) -> frozenset[str]:
        """Return the regions to which this topic's replicator is disconnected, and those of `remotes` whose replicator
        is not connected to this topic."""
        without_producer = {
            name for name, replicator in self.items() if not replicator.lifecycle.is_connected
        }
        return frozenset(without_producer | {name for name in remotes if not self._receives_from(name)})

    def confirmed(self, remote: str) -> int | None:
        """Return the entry id up to which a remote region has confirmed the log; None: the topic is not replicated to
        it."""
        replicator = self.get(remote)
        return None if replicator is None else replicator.progress.confirmed

    def unreachable(self, remotes: frozenset[str]) -> dict[str, ReasonRow]:
        """Return why entries do not pass to or from `remotes`, by region; connected regions are omitted."""
        return {region: cause for region in remotes if (cause := self._why_unreachable(region)) is not None}

    def _receives_from(self, region: str) -> bool:
        """Return whether the region's replicator is connected to this topic: snapshot responses arrive through it."""
        return any(producer.source_region == region for producer in self._topic.publishing.producers.values())

    def _why_unreachable(self, region: str) -> ReasonRow | None:
        """Return why snapshot requests do not reach a region, or its responses this one; None: nothing prevents
        them."""
        replicator = self.get(region)
        if replicator is not None and not replicator.peer.connected:
            return Cause.SNAPSHOT_LINK_TO_DOWN
        if replicator is not None and not replicator.lifecycle.is_connected:
            return Cause.SNAPSHOT_REPLICATOR_DOWN
        if self._receives_from(region):
            return None
        if self._topic.region.is_linked_from(region):
            return Cause.SNAPSHOT_ONE_WAY
        return Cause.SNAPSHOT_LINK_FROM_DOWN
