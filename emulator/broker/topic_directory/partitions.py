"""The partitioned topics of a cluster, as one of its regions reads and changes them (docs/components/partitions.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, Protocol

from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.store import Metadata
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.partitions import Partitioned, is_news, partition_names
from emulator.core.policies.topics import AUTO_TOPIC_CREATION
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import DeletedPartitionedTopicPath, PartitionedTopicPath, parse_path
from emulator.model.values import Change, TopicName
from emulator.storage.configuration.contract import Conflict

logger = logging.getLogger(__name__)

OBEYS = (AUTO_TOPIC_CREATION,)
PEER_RESPONSE_SECONDS: Final = 2.0
CONCURRENT_OPENS_MAX: Final = 32


ReserveTopics = Callable[[TopicName, Iterable[str]], AbstractContextManager[None]]
"""Reserves room for partitions of a topic, by their full names, until the block ends. ProtocolError: there is none."""


class Exists(Exception):
    """The name is already used by another topic (N1)."""


class PartitionCountPeer(Protocol):
    """The link to another region."""

    def request_partitions(self, topic: str) -> asyncio.Future[int]:
        """Request the number of partitions in that region; 0 if the topic is missing or not partitioned. The future
        fails with ProtocolError if the link breaks before the response."""
        ...


class PartitionedTopics:
    """One region's access to the partitioned topics of its cluster."""

    def __init__(
        self,
        metadata: Metadata,
        policies: Policies,
        peers: Mapping[str, PartitionCountPeer],
        directory: TopicDirectory,
        *,
        creates_by_default: bool,
        is_news: Callable[[int, int], bool] = is_news,
    ) -> None:
        self._metadata = metadata
        self._policies = policies
        self._peers = peers
        self._directory = directory
        self._creates_by_default = creates_by_default
        self._is_news = is_news
        self._known: set[str] | None = None
        """Full names of the topics with a value in the store; None before `start`. Most topics have no partitions, and
        each opening asks several times."""

    def start(self) -> None:
        """Read and watch the partitioned topics in the store, which is open."""
        prefix, self._known = PartitionedTopicPath.prefix(), set()
        for change in self._metadata.list(prefix):
            self._changed(change)
        self._metadata.watch(prefix, self._changed)

    def _changed(self, change: Change) -> None:
        key = parse_path(change.path)
        assert self._known is not None
        if isinstance(key, PartitionedTopicPath):
            (self._known.discard if change.value is None else self._known.add)(key.topic)

    # Queries.

    def count(self, topic: TopicName) -> int:
        """Return the number of partitions; 0 for a topic that is not partitioned, for a partition, and for an invalid
        stored value."""
        found = self.get(topic)
        return 0 if found is None else found.count

    def get(self, topic: TopicName) -> Partitioned | None:
        if self._known is not None and topic.text not in self._known:
            return None
        change = self._metadata.get(PartitionedTopicPath.text_of(topic.text))
        if change is None or change.value is None:
            return None
        try:
            return Partitioned.decode(change.value)
        except ValueError as problem:
            logger.warning(
                "the value of %s in the configuration store is invalid and ignored: %s", change.path, problem
            )
            return None

    def was_deleted(self, topic: TopicName) -> bool:
        """Whether the topic is a partition of a topic that a user deleted in this cluster."""
        base = topic.partitioned
        if base is None or self.count(base):
            return False
        change = self._metadata.get(DeletedPartitionedTopicPath(str(base)).text)
        return change is not None and change.value is not None

    def names(self, namespace: str) -> list[str]:
        """Return the full names of a namespace's partitioned topics, sorted."""
        keys = [parse_path(change.path) for change in self._metadata.list(PartitionedTopicPath.prefix())]
        topics = [key.topic for key in keys if isinstance(key, PartitionedTopicPath)]
        return sorted(name for name in topics if TopicName.parse(name).full_namespace == namespace)

    def may_be_created(self, topic: TopicName) -> bool:
        """Whether a request may create a topic or partition of this name (N1, N2)."""
        if self.get(topic) is not None:
            return False
        base = topic.partitioned
        if base is not None and (known := self.count(base)):
            return topic.partition_index < known
        return self.creates(topic)

    def creates(self, topic: TopicName) -> bool:
        """Whether requests may create topics in the topic's namespace, by its policy or else the region's setting."""
        policy = self._policies.of_namespace(topic.full_namespace, AUTO_TOPIC_CREATION)
        return self._creates_by_default if policy is None else policy.allowed

    def creates_partitions(self, topic: TopicName) -> bool:
        """Whether a request that creates the topic creates it with partitions, by the policy of its namespace."""
        policy = self._policies.of_namespace(topic.full_namespace, AUTO_TOPIC_CREATION)
        return policy is not None and bool(policy.partitions) and policy.allowed and topic.partitioned is None

    # Changes.

    async def create(self, topic: TopicName, count: int, properties: Mapping[str, str] | None = None) -> None:
        """Create a partitioned topic and its partitions. Exists for a used name; ValueError for an invalid number of
        partitions or the name of a partition; StorageError; ProtocolError when a partition cannot be opened."""
        partitioned = Partitioned(count, properties or {})
        self._check_free(topic)
        deleted = DeletedPartitionedTopicPath(str(topic)).text
        if self._metadata.get(deleted) is not None:
            await self._metadata.put(deleted, None)
        try:
            await self._metadata.put(PartitionedTopicPath(str(topic)).text, partitioned.encode(), expected=-1)
        except Conflict:
            raise Exists(f"partitioned topic {topic} exists already") from None
        await self._open(topic, count)

    def _check_free(self, topic: TopicName) -> None:
        if topic.partitioned is not None:
            raise ValueError(f"{topic} is the name of a partition, which has none of its own")
        if self.get(topic) is not None:
            raise Exists(f"partitioned topic {topic} exists already")
        if self._directory.exists(str(topic)):
            raise Exists(f"topic {topic} exists already, and has no partitions")

    async def grow(self, topic: TopicName, count: int) -> None:
        """Increase the number of partitions to `count`, and open them all. ValueError if it is not larger or invalid;
        ProtocolError when the topic does not exist or a partition cannot be opened; StorageError."""
        await self._change(topic, lambda present: present.grown_to(count))
        await self._open(topic, count)

    async def set_properties(
        self, topic: TopicName, changed: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Change the properties of a partitioned topic. ProtocolError when it does not exist; StorageError."""
        await self._change(topic, lambda present: replace(present, properties=changed(present.properties)))

    async def _change(self, topic: TopicName, changed: Callable[[Partitioned], Partitioned]) -> None:
        def change(present: bytes | None) -> bytes:
            if present is None:
                raise _not_found(topic)
            return changed(Partitioned.decode(present)).encode()

        await self._metadata.update(PartitionedTopicPath(str(topic)).text, change)

    async def open_all(self, topic: TopicName) -> None:
        """Open all partitions, so that each of them exists. StorageError or ProtocolError when one fails."""
        await self._open(topic, self.count(topic))

    async def delete(self, topic: TopicName, *, force: bool) -> None:
        """Delete a partitioned topic and its partitions. ProtocolError when it does not exist, or a partition is in use
        and `force` is not set; StorageError."""
        found = self.get(topic)
        if found is None:
            raise _not_found(topic)
        names = [name for name in partition_names(topic, found.count) if self._directory.exists(name)]
        if not force:
            for name in names:
                if (await self._directory.acquire(name, OpenMode.EXISTING)).is_used:
                    raise ProtocolError(
                        ServerError.NotAllowedError, f"topic {name} has producers or consumers"
                    )
        # The mark of the deletion comes first: another region's replicator may send a request between the two writes.
        await self._metadata.put(DeletedPartitionedTopicPath(str(topic)).text, b"{}")
        # Then the document with the number of partitions: without it no request can create a partition again while the
        # other partitions are being deleted.
        await self._metadata.put(PartitionedTopicPath(str(topic)).text, None)
        for name in names:
            await self._directory.delete(name, force=force)

    async def _open(self, topic: TopicName, count: int) -> None:
        """Open all partitions, so that each exists and its replicators create it in other regions. StorageError or
        ProtocolError when one fails: their number stays stored, and the next request opens the failed partition."""
        names = partition_names(topic, count)
        failures: list[ProtocolError | StorageError] = []
        for first in range(0, count, CONCURRENT_OPENS_MAX):
            opening = [
                self._directory.acquire(name, OpenMode.CREATE)
                for name in names[first : first + CONCURRENT_OPENS_MAX]
            ]
            for outcome in await asyncio.gather(*opening, return_exceptions=True):
                if isinstance(outcome, ProtocolError | StorageError):
                    logger.warning("a partition of %s could not be created yet: %s", topic, outcome)
                    failures.append(outcome)
                elif isinstance(outcome, BaseException):
                    raise outcome
        if failures:
            raise failures[0]

    async def created_on_use(self, topic: TopicName, reserve: ReserveTopics) -> int:
        """Create the partitioned topic if AUTO_TOPIC_CREATION requires partitions, and return their number; 0 if it is
        not partitioned. For a request that may create the topic. `reserve` raises ProtocolError when the namespace has
        no room for the partitions. ProtocolError, StorageError."""
        policy = self._policies.of_namespace(topic.full_namespace, AUTO_TOPIC_CREATION)
        if policy is None or not self.creates_partitions(topic):
            return 0
        try:
            with reserve(topic, partition_names(topic, policy.partitions)):
                await self.create(topic, policy.partitions)
        except Exists:  # created meanwhile
            return self.count(topic)
        return policy.partitions

    # Other clusters.

    async def learn(self, region: str, partition: TopicName) -> None:
        """Make a topic partitioned here, too, before `region` replicates a partition of it to this region.
        ProtocolError when a topic without partitions has the name here, or `region` does not return the number of
        partitions in time; StorageError."""
        base, index = partition.partitioned, partition.partition_index
        if base is None or region not in self._peers or not self._is_news(index, self.count(base)):
            return
        if self._directory.exists(str(base)):
            sentence = f"{base} has partitions in {region} and is a topic of its own here: delete one of them"
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        try:
            async with asyncio.timeout(PEER_RESPONSE_SECONDS):
                count = await self._peers[region].request_partitions(str(base))
        except (ProtocolError, TimeoutError) as problem:
            raise ProtocolError(
                ServerError.ServiceNotReady,
                f"{region} was asked how many partitions {base} has: {problem or 'no answer'}",
            ) from None
        if index < count:
            await self._store_count(base, count)

    async def _store_count(self, topic: TopicName, count: int) -> None:
        """Store a peer's number of partitions, unless the stored one is larger. ProtocolError for an invalid number."""
        try:
            Partitioned(count)
        except ValueError as problem:
            raise ProtocolError(ServerError.NotAllowedError, f"of {topic}: {problem}") from None

        def raise_count(present: bytes | None) -> bytes | None:
            known = None if present is None else Partitioned.decode(present)
            if known is None:
                return Partitioned(count).encode()
            return (known if known.count >= count else known.grown_to(count)).encode()

        await self._metadata.update(PartitionedTopicPath(str(topic)).text, raise_count)


def _not_found(topic: TopicName) -> ProtocolError:
    return ProtocolError(ServerError.TopicNotFound, f"Partitioned Topic {topic} not found")
