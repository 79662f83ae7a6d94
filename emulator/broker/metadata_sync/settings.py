"""The region's configuration of metadata sync: the paths that it shares, and the clusters that it shares them with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from emulator.broker.metadata.store import Metadata
from emulator.config.compatibility import Compatibility
from emulator.config.region import RegionConfig
from emulator.core.metadata.event import is_synced, readable
from emulator.core.metadata.merge import LocalCluster, MetadataTransaction
from emulator.core.metadata.messages import EventOutbox
from emulator.core.metadata.record import UPSTREAM, Rule
from emulator.core.metadata.stored import (
    BY_OPERATOR,
    BY_TOPOLOGY,
    Excluded,
    LossDeclaration,
    not_covered,
    stored_excluded,
)
from emulator.core.metadata.version_vector import stored_vector
from emulator.errors import ProtocolError, ServerError, StorageDamaged
from emulator.model.stored_keys import (
    SYNC_SEEN_TO_PATH,
    NamespacePath,
    PartitionedTopicPath,
    SyncExcludedPath,
    SyncLossPath,
    TopicPoliciesPath,
)
from emulator.model.values import TopicName
from emulator.storage.configuration.contract import ConfigurationRows

SUBSCRIPTION = "metadata-syncer"
"""The subscription by which the sync leader consumes the event topic."""


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """The configuration of metadata sync in one region. Implements `SharedPaths` of `broker.metadata.store`."""

    here: LocalCluster
    topic: str
    """Full name of the event topic."""
    excluded: tuple[str, ...]
    """Prefixes of the paths that this cluster does not share, in readable form: `namespace/acme/`."""
    regions: dict[str, str]
    """Region -> its cluster, for this region and its peers."""
    region: str
    wall_clock_ms: Callable[[], int]
    draw: Callable[[], int]
    """Returns a random number of 32 bits."""
    publishes_first: bool = False
    """Whether a change is published before it is made, as in the proposal (decision 0024)."""
    lost_clusters: tuple[str, ...] = ()
    """Clusters that the topology declares lost."""
    outbox: type[EventOutbox] = EventOutbox
    requires_topic: bool = False
    """Whether a change is made only after the event topic has accepted a message."""

    @classmethod
    def of(
        cls,
        config: RegionConfig,
        wall_clock_ms: Callable[[], int],
        draw: Callable[[], int],
        rule: Rule,
        outbox: type[EventOutbox] = EventOutbox,
    ) -> SyncSettings | None:
        """Return the settings of a region; None if it has no event topic, or no peer in another cluster. `rule`:
        decides which event wins, unless the region follows upstream."""
        topic = config.settings.configuration_metadata_sync_event_topic
        regions = {peer.region: peer.cluster for peer in config.peers} | {config.region: config.cluster}
        if not topic or set(regions.values()) == {config.cluster}:
            return None
        compatibility = Compatibility(config.compatibility)
        upstream = compatibility.follows_upstream("metadata_conflicts")
        here = LocalCluster(
            config.cluster,
            rule=UPSTREAM if upstream else rule,
            is_hybrid=config.settings.metadata_sync_hybrid_clocks,
            clock_ahead_ms_max=config.settings.metadata_sync_clock_ahead_ms_max,
        )
        excluded = _split(config.settings.metadata_sync_excluded_paths)
        return cls(
            here,
            str(TopicName.parse(topic)),
            excluded,
            regions,
            config.region,
            wall_clock_ms,
            draw,
            publishes_first=compatibility.follows_upstream("metadata_order"),
            lost_clusters=_split(config.settings.metadata_sync_lost_clusters),
            outbox=outbox,
            requires_topic=config.settings.metadata_sync_requires_event_topic,
        )

    @property
    def clusters(self) -> set[str]:
        """The other clusters."""
        return set(self.regions.values()) - {self.here.cluster}

    @property
    def is_alone(self) -> bool:
        """Whether this cluster has no other region."""
        return list(self.regions.values()).count(self.here.cluster) == 1

    def check_client(self, topic: str, subscription: str) -> None:
        """Raise ProtocolError for a producer of the event topic (`subscription` is empty), because other clusters apply
        the messages of a region and cannot see which client published them. Also for a consumer of the sync leader's
        subscription, which could acknowledge messages that the leader has not applied."""
        if topic != self.topic:
            return
        if not subscription:
            sentence = f"{topic} is the metadata event topic: only regions may publish to it"
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        if subscription == SUBSCRIPTION:
            sentence = f"subscription {subscription} of {topic} is reserved for regions: choose another name"
            raise ProtocolError(ServerError.NotAllowedError, sentence)

    def covers(self, path: str) -> bool:
        return is_synced(path) and not self._is_excluded(path)

    def _is_excluded(self, path: str) -> bool:
        """Whether a path is excluded by the setting, or belongs to the event topic itself: a deletion of such a path in
        one cluster would cut the others off from all further events."""
        topic = TopicName.parse(self.topic)
        if path in (
            NamespacePath(topic.full_namespace).text,
            TopicPoliciesPath(self.topic).text,
            PartitionedTopicPath(self.topic).text,
        ):
            return True
        return bool(self.excluded) and readable(path).startswith(self.excluded)

    def changing(
        self, path: str, value: bytes | None, *, is_seed: bool, touched: Iterable[str]
    ) -> Callable[[ConfigurationRows], None]:
        return self.transaction(lambda one: one.change(path, value, is_seed=is_seed, touched=touched))

    def transaction(self, work: Callable[[MetadataTransaction], None]) -> Callable[[ConfigurationRows], None]:
        """Return the work of a transaction of metadata sync. It reads time and randomness in advance, because the work
        runs in the store."""
        now_ms, incarnation = self.wall_clock_ms(), f"{self.draw():08x}"

        def whole(rows: ConfigurationRows) -> None:
            transaction = MetadataTransaction(rows, self.here, now_ms, incarnation)
            work(transaction)
            transaction.finish()

        return whole


def _split(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list."""
    return tuple(filter(None, (one.strip() for one in text.split(","))))


# Excluded paths.


class ExclusionDifference(NamedTuple):
    """The difference between the excluded paths of this cluster and of another one."""

    cluster: str
    only_here: list[str]
    only_there: list[str]

    def __str__(self) -> str:
        clauses = []
        if self.only_there:
            clauses.append(f"{', '.join(self.only_there)} is excluded in {self.cluster} but not here")
        if self.only_here:
            clauses.append(f"{', '.join(self.only_here)} is excluded here but not in {self.cluster}")
        return "; ".join(clauses)


def excluded_in(metadata: Metadata, cluster: str) -> Excluded | None:
    """Return the excluded paths in another cluster's newest report; None before its first report."""
    return stored_excluded(metadata.get(SyncExcludedPath(cluster).text))


def differences(metadata: Metadata, settings: SyncSettings) -> Iterator[ExclusionDifference]:
    """Compare this cluster's excluded paths (`metadata_sync_excluded_paths`) with those of the other clusters. A
    cluster whose stored report is damaged is skipped; `DamagedRows` replaces the report."""
    for cluster in sorted(settings.clusters):
        there = None
        with suppress(StorageDamaged):
            there = excluded_in(metadata, cluster)
        if there is not None:
            only_here = not_covered(settings.excluded, there)
            only_there = not_covered(there, settings.excluded)
            if only_here or only_there:
                yield ExclusionDifference(cluster, only_here, only_there)


# Lost clusters.


class LostClusters:
    """The stored declarations of lost clusters: those of this cluster, and those of others that it has processed."""

    def __init__(self, metadata: Metadata, settings: SyncSettings) -> None:
        self._metadata = metadata
        self._settings = settings

    def of(self, cluster: str) -> LossDeclaration:
        """Return this cluster's declaration about another one. StorageDamaged."""
        return LossDeclaration.decode(self._metadata.get(SyncLossPath(cluster).text))

    @property
    def lost(self) -> set[str]:
        return {cluster for cluster in self._settings.clusters if self.of(cluster).is_lost}

    @property
    def expected(self) -> set[str]:
        """The other clusters that are not declared lost."""
        return self._settings.clusters - self.lost

    @property
    def declared(self) -> dict[str, int]:
        """Other cluster -> how often this cluster has declared it lost; without clusters that it never declared."""
        times = {cluster: self.of(cluster).times for cluster in sorted(self._settings.clusters)}
        return {cluster: count for cluster, count in times.items() if count}

    async def declare(self, cluster: str, *, lost: bool) -> None:
        """Declare a cluster lost, or no longer lost, for an operator. StorageError."""
        path = SyncLossPath(cluster).text

        def work(rows: ConfigurationRows) -> None:
            present = LossDeclaration.decode(rows.get(path))
            declared = present.lost(BY_OPERATOR) if lost else present.back()
            if declared != present:
                rows.put(path, declared.encode())

        await self._metadata.transact(work)

    async def declare_losses_of_topology(self) -> None:
        """Declare the clusters lost that the topology names, and revoke earlier declarations of the topology for
        others; an operator's declarations stay. StorageError."""
        for cluster in sorted(self._settings.clusters):
            present = self.of(cluster)
            declared = present
            if cluster in self._settings.lost_clusters:
                declared = present.lost(BY_TOPOLOGY)
            elif present.by == BY_TOPOLOGY:
                declared = present.back()
            if declared != present:
                await self._metadata.put(SyncLossPath(cluster).text, declared.encode())

    @property
    def all_seen_to(self) -> dict[str, int]:
        """Other cluster -> how many of its declarations that this cluster is lost have been processed here."""
        return stored_vector(self._metadata.get(SYNC_SEEN_TO_PATH.text))

    def seen_to(self, cluster: str) -> int:
        """Return the number of a cluster's declarations that have been processed here."""
        return self.all_seen_to.get(cluster, 0)

    def may_apply(self, cluster: str, seen_to: Mapping[str, int]) -> bool:
        """Whether events of another cluster may be applied: only if that cluster has processed every declaration here
        that it is lost. `seen_to`: `all_seen_to` of that cluster."""
        return seen_to.get(self._settings.here.cluster, 0) >= self.of(cluster).times


def note_seen(rows: ConfigurationRows, cluster: str, times: int) -> None:
    """Record a declaration of `cluster` as processed, in the transaction that processes it."""
    seen = stored_vector(rows.get(SYNC_SEEN_TO_PATH.text))
    rows.put(
        SYNC_SEEN_TO_PATH.text,
        json.dumps(seen | {cluster: max(times, seen.get(cluster, 0))}, sort_keys=True).encode(),
    )
