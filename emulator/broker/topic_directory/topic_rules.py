"""The rules for the topics of a region, and for the requests that may create or use one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.tenancy import Tenancy
from emulator.broker.metadata_sync.synchronizer import Synchronizer
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.broker.topic_directory.stored_topics import Deletions
from emulator.config.region import RegionConfig
from emulator.core.policies.limits import MAX_TOPICS
from emulator.errors import ProtocolError, ServerError
from emulator.model.values import TopicName
from emulator.storage.contract import Store

OBEYS = (MAX_TOPICS,)
"""Policies that this module enforces (PO1)."""


class RuledRegion(Protocol):
    """The region, as this module needs it."""

    config: RegionConfig
    store: Store
    policies: Policies
    partitioned: PartitionedTopics
    tenancy: Tenancy
    directory: TopicDirectory
    synchronizer: Synchronizer | None


class TopicRules:
    """The topic rules of one region. Implements `contract.CreationRules`."""

    def __init__(self, region: RuledRegion, deletions: Deletions) -> None:
        self._region = region
        self.deletions = deletions

    def may_create(self, topic: TopicName) -> bool:
        region = self._region
        return topic.full_namespace not in region.tenancy.closing and region.partitioned.may_be_created(topic)

    def was_deleted(self, topic: TopicName) -> bool:
        return topic.text in self.deletions or self._region.partitioned.was_deleted(topic)

    def check_room(self, topic: TopicName) -> None:
        topics_max, tenant_max = self._maxima(topic)
        if (topics_max or tenant_max) and not self._region.store.has_log(topic.text):
            self._check_room(topic, [topic.text])

    @contextmanager
    def reserve(self, topic: TopicName, names: Iterable[str]) -> Iterator[None]:
        """Reserve room for partitions of a topic, so that concurrent requests count them until the block ends.
        ProtocolError when there is none."""
        partitions = list(names)
        self._check_room(topic, partitions)
        with self._region.directory.counts.reserving(partitions):
            yield

    def _check_room(self, topic: TopicName, names: Collection[str]) -> None:
        """Raise ProtocolError when topics of these full names, if missing, exceed a maximum."""
        counts = self._region.directory.counts
        topics_max, tenant_max = self._maxima(topic)
        if topics_max and counts.exceed(names, [topic.full_namespace], topics_max):
            raise ProtocolError(
                ServerError.NotAllowedError, f"Exceed maximum number of topics in namespace: {topics_max}"
            )
        if tenant_max and counts.exceed(names, self._region.tenancy.namespaces(topic.tenant), tenant_max):
            raise ProtocolError(
                ServerError.NotAllowedError,
                f"Exceed maximum number of topics of tenant {topic.tenant}: {tenant_max}",
            )

    def _maxima(self, topic: TopicName) -> tuple[int, int]:
        """Return the maximum numbers of topics of the topic's namespace and of its tenant; 0: no limit."""
        region = self._region
        topics_max = region.policies.of_namespace(topic.full_namespace, MAX_TOPICS)
        return topics_max or 0, region.config.settings.topics_per_tenant_max

    def check_not_deleted(self, topic: TopicName, peer: str) -> None:
        """Raise ProtocolError for a topic that a user deleted here, that does not exist here again, and that region
        `peer` replicates to this region."""
        if not self._region.directory.exists(topic.text) and self.was_deleted(topic):
            here, name = self._region.config.region, topic.partitioned or topic
            sentence = f"{name} was deleted in {here}: delete it in {peer}, too, or create it in {here} again"
            raise ProtocolError(ServerError.TopicNotFound, sentence)

    def check_open_to_clients(self, topic: str, subscription: str = "") -> None:
        """Raise ProtocolError for a client that requests to publish to the metadata event topic, or to consume a
        subscription of it that is reserved for the region. `subscription`: its name; empty for a producer."""
        if self._region.synchronizer is not None:
            self._region.synchronizer.settings.check_client(topic, subscription)
