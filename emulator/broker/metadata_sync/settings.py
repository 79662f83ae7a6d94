"""The region's configuration of metadata sync, and the paths that it shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emulator.config.compatibility import Compatibility
from emulator.config.region import RegionConfig
from emulator.core.metadata.event import is_synced, readable
from emulator.core.metadata.merge import LocalCluster, MetadataTransaction
from emulator.core.metadata.outbox import EventOutbox
from emulator.core.metadata.record import UPSTREAM, Rule
from emulator.errors import ProtocolError, ServerError
from emulator.model.stored_keys import NamespacePath, PartitionedTopicPath, TopicPoliciesPath
from emulator.model.values import TopicName
from emulator.storage.configuration.contract import ConfigurationRows

SUBSCRIPTION = "metadata-syncer"
"""Subscription of the event topic: acknowledges what the sync leader has applied."""


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """Implements `metadata.SharedPaths`."""

    here: LocalCluster
    topic: str
    """The event topic."""
    excluded: tuple[str, ...]
    """Prefixes of paths that each cluster keeps to itself, as a person writes them: `namespace/acme/`."""
    regions: dict[str, str]
    """The cluster of each region."""
    region: str
    wall_clock_ms: Callable[[], int]
    draw: Callable[[], int]
    """Returns a random number of 32 bits."""
    publishes_first: bool = False
    """The proposal's order: a change is published, then made (decision 0024)."""
    lost_clusters: tuple[str, ...] = ()
    """Clusters that the topology declares lost."""
    outbox: type[EventOutbox] = EventOutbox
    requires_topic: bool = False
    """No change is made while the event topic accepts no messages."""

    @classmethod
    def of(
        cls,
        config: RegionConfig,
        wall_clock_ms: Callable[[], int],
        draw: Callable[[], int],
        rule: Rule,
        outbox: type[EventOutbox] = EventOutbox,
    ) -> SyncSettings | None:
        """`rule`: which event wins, unless the region follows upstream. None: nothing is shared."""
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
        excluded = _listed(config.settings.metadata_sync_excluded_paths)
        return cls(
            here,
            str(TopicName.parse(topic)),
            excluded,
            regions,
            config.region,
            wall_clock_ms,
            draw,
            publishes_first=compatibility.follows_upstream("metadata_order"),
            lost_clusters=_listed(config.settings.metadata_sync_lost_clusters),
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
        """ProtocolError for a client that publishes to the event topic: other clusters apply what a region publishes
        there, and cannot see which of its clients it came from. Also for one that uses the sync leader's subscription,
        because it could acknowledge messages that the leader has not seen."""
        if topic != self.topic:
            return
        if not subscription:
            sentence = f"{topic} is the metadata event topic: only regions may publish to it"
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        if subscription == SUBSCRIPTION:
            sentence = f"subscription {subscription} of {topic} is reserved for regions: choose another name"
            raise ProtocolError(ServerError.NotAllowedError, sentence)

    def covers(self, path: str) -> bool:
        return is_synced(path) and not self._is_own(path)

    def _is_own(self, path: str) -> bool:
        """Excluded by the setting, or needed by the event topic itself: deleting that in one cluster would cut the
        others off from all further events."""
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
        """Time and randomness are read now: the work itself runs elsewhere, and reads neither."""
        now_ms, incarnation = self.wall_clock_ms(), f"{self.draw():08x}"

        def whole(rows: ConfigurationRows) -> None:
            transaction = MetadataTransaction(rows, self.here, now_ms, incarnation)
            work(transaction)
            transaction.finish()

        return whole


def _listed(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list."""
    return tuple(filter(None, (one.strip() for one in text.split(","))))
