"""One region: a broker with its topics, its clients and its links to the other regions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from emulator.broker.connection.commands import TABLE
from emulator.broker.connection.connection import ClientConnection
from emulator.broker.environment import Environment
from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.schemas import Schemas
from emulator.broker.metadata.tenancy import Tenancy
from emulator.broker.metadata_sync.event_publisher import EventPublisher
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.broker.metadata_sync.synchronizer import Synchronizer
from emulator.broker.replication.entry_forms import ReplicatedEntryCache
from emulator.broker.replication.link import PeerLink
from emulator.broker.topic.entry_cache import TailPool
from emulator.broker.topic.metrics import AccessFigures
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_assembly import Assembly
from emulator.broker.topic_directory.deletions import refusal
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.housekeeper import Housekeeper
from emulator.broker.topic_directory.listing import TopicLists
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.broker.topic_directory.log_kinds import LogKind, kind_of
from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.broker.transactions.contract import TransactionAuthority
from emulator.broker.transactions.coordinators import TransactionCoordinators
from emulator.config.region import RegionConfig
from emulator.core.policies.limits import MAX_TOPICS
from emulator.errors import ProtocolError, ServerError, StorageDamaged, StorageError, StorageFenced
from emulator.model.reasons import Cause, Reason
from emulator.model.stored_keys import (
    FORMAT_KEY,
    STARTS_KEY,
    STORE_FORMAT,
    NamespacePath,
    OwesKey,
    parse_key,
    parse_path,
)
from emulator.model.values import Change, TopicName
from emulator.net.addresses import in_url
from emulator.net.network import Listener
from emulator.storage.contract import Replaceable, Store

logger = logging.getLogger(__name__)

OBEYS = (MAX_TOPICS,)
"""Policies that this module acts upon (P1)."""

FLUSH_SECONDS = 2.0
"""How long a stopping region waits for its pending writes. Together with the time that the store's `close` may take it
must stay below the 10 s after which the region is killed."""


class Region:
    """One region: `start` it, let it serve, `stop` it. The owner of the environment creates it."""

    def __init__(
        self, config: RegionConfig, environment: Environment, *, topic_type: type[Topic] = Topic
    ) -> None:
        """`topic_type`: class of the topics. It can be replaced like those in `broker.components`, which may not import
        this class."""
        self.config = config
        self.environment = environment
        self.store: Store = environment.store
        self.metadata = environment.components.metadata.metadata(environment.configuration, self.spawn)
        self.policies = Policies(self.metadata, config.region)
        self.connections: dict[ClientConnection, None] = {}
        self.memory = MemoryBudget("region")
        """Memory of the region; all other budgets are below it."""
        self.access_figures = AccessFigures()
        self.tails = TailPool(MemoryBudget("newest entries", self.memory, config.settings.region_tail_bytes))
        self.forms = ReplicatedEntryCache(config.region, MemoryBudget("replicated forms", self.memory))
        self.client_memory = MemoryBudget("clients", self.memory)
        """Memory of connections. 0 once all clients are gone (B1)."""
        self.peers: dict[str, PeerLink] = {peer.region: PeerLink(self, peer) for peer in config.peers}
        self.fenced = asyncio.Event()
        """Set when a newer owner fenced the log: this process must end."""
        self.is_over = asyncio.Event()
        """Set when the process must end: it is fenced, or an admin call stops it."""
        self.deletions = environment.components.lifetime.deletions(self.store)
        self.housekeeper = Housekeeper(self, self._delete_unused)
        self._starts = 0
        self.partitioned = PartitionedTopics(
            self.metadata,
            self.policies,
            self.peers,
            creates_by_default=config.settings.allow_auto_topic_creation,
            is_news=environment.components.metadata.is_news,
        )
        self._assembly = Assembly(
            self,
            self.policies,
            self.peers,
            self._send_away,
            topic_type,
            self.housekeeper,
            self.deletions,
            lambda: self._starts,
            self.partitioned.count,
        )
        self.schemas = Schemas(
            self.metadata,
            self.policies,
            environment.wall_clock_ms,
            bytes_max=config.settings.schema_bytes_max,
            versions_max=config.settings.schema_versions_max,
            check_follows=environment.components.metadata.check_follows,
        )
        self.tenancy = Tenancy(self.metadata, self.partitioned, self.schemas)
        self.directory = TopicDirectory(
            self._assembly,
            self.store,
            self.spawn,
            check=self.check_topic,
            may_create=self._may_be_created,
            was_deleted=self._was_deleted,
            idle_seconds=config.settings.topic_idle_ms / 1000,
        )
        self.coordinators = TransactionCoordinators(self)
        self.transactions: TransactionAuthority = self.coordinators
        """The coordinators, as transaction participants see them."""
        self.topic_lists = TopicLists(self.directory)
        self.synchronizer: Synchronizer | None = None
        """Shares metadata with other clusters; None when there is no other cluster, or it is not enabled."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._listener: Listener | None = None
        self._internal_listener: Listener | None = None
        self._producer_names = 0

    # Starting and stopping.

    async def start(self) -> None:
        """Begin to serve, and load topics with pending work in the background (D3). OSError when a port is not
        available; StorageError when the store is not."""
        if isinstance(self.store, Replaceable):
            self.store.fenced.add_done_callback(lambda fenced: self.topic_failed("", fenced.result()))
        await self._check_format()
        await self._count_start()
        await self.metadata.open()
        self._share_metadata()
        await self.policies.start(self.config.tenants, self.config.namespaces)
        self.schemas.start()
        self.metadata.watch(NamespacePath.prefix(), self._namespace_changed)
        self._tell_of_strangers()
        await self.coordinators.start()
        config = self.config
        self._listener = await self.environment.network.listen(
            lambda: ClientConnection(self, TABLE), config.bind_host, config.service_port
        )
        if config.internal_host:
            self._internal_listener = await self.environment.network.listen(
                lambda: ClientConnection(self, TABLE, internal=True),
                config.bind_host,
                config.internal_port,
            )
        for peer in self.peers.values():
            peer.start()
        self.coordinators.go_on()
        if self.synchronizer is not None:
            self.spawn(self.synchronizer.run())
        owing = self._owing()
        self.spawn(self.directory.open_owing(owing))
        self.directory.idle.start()
        logger.info(
            "region %s listens on port %d; %d topics have work left and are loaded",
            config.region,
            self.service_port,
            len(owing),
        )

    def _share_metadata(self) -> None:
        environment = self.environment
        draw = environment.random.getrandbits
        settings = SyncSettings.of(
            self.config,
            environment.wall_clock_ms,
            lambda: draw(32),
            environment.components.metadata.metadata_rule,
            environment.components.metadata.metadata_outbox,
        )
        if settings is not None:
            self.metadata.shared = settings
            self.synchronizer = Synchronizer(self, settings)
            if settings.publishes_first or settings.requires_topic:
                self.metadata.announcing = EventPublisher(self, self.metadata, settings)

    def _owing(self) -> list[str]:
        keys = [parse_key(text) for text, _ in self.store.scan(OwesKey.prefix())]
        owing = [key.topic for key in keys if isinstance(key, OwesKey)]
        kept = self.housekeeper.concerned(self.policies, self._with_policies())
        return list(dict.fromkeys([*owing, *kept]))

    def _with_policies(self) -> list[str]:
        """Return the topics whose namespaces exist."""
        namespaces = self.policies.namespaces()
        return [name for namespace in namespaces for name in self.directory.names(namespace)]

    def _tell_of_strangers(self) -> None:
        """D5: log the logs that no client can reach; they do not prevent the start."""
        known = tuple(f"{LogKind.MESSAGES.value}://{namespace}/" for namespace in self.policies.namespaces())
        strangers = []
        for name in self.store.log_names():
            if name.startswith(known):
                continue
            kind = kind_of(name)
            if kind is None:
                strangers.append(f"{name!r} is not a topic name")
            elif kind is LogKind.MESSAGES:
                strangers.append(f"the namespace of {name} was deleted")
        if strangers:
            logger.warning(
                "the store has %d logs of unknown or invalid topic names, which are not changed: %s",
                len(strangers),
                "; ".join(strangers),
            )

    async def _check_format(self) -> None:
        """StorageError for a store in a format that this program cannot read."""
        stored = self.store.get(FORMAT_KEY.text)
        if stored is None and self.store.get(STARTS_KEY.text) is None:
            await self.store.put(FORMAT_KEY.text, str(STORE_FORMAT).encode())
            return
        found = stored.value.decode() if stored is not None else "1"
        if found != str(STORE_FORMAT):
            raise StorageError(
                f"the store of region {self.config.region} has format {found}, this geoemu reads format "
                f"{STORE_FORMAT}: start a new run, or use the geoemu that wrote it",
                definite=True,
            )

    async def _count_start(self) -> None:
        stored = self.store.get(STARTS_KEY.text)
        if stored is not None and not stored.value.isdigit():
            raise StorageDamaged(f"{STARTS_KEY.text} is damaged ({stored.value!r} is no number)")
        self._starts = int(stored.value) + 1 if stored else 0
        await self.store.put(STARTS_KEY.text, str(self._starts).encode())

    async def stop(self) -> None:
        """Stop in an orderly way: write everything pending, as far as the store accepts it, then close the store."""
        for listener in (self._listener, self._internal_listener):
            if listener is not None:
                listener.close()
        self.coordinators.close()
        if self.synchronizer is not None:
            await self.synchronizer.close()
        written = await self._flush()
        for peer in self.peers.values():
            peer.close()
        for connection in list(self.connections):
            connection.close()
        topics = list(self.directory.serving.values())
        self.directory.close()
        self.housekeeper.close()
        if written:
            await self._within_flush_seconds(
                [self._assembly.forget_owing_when_settled(topic) for topic in topics]
            )
        for task in list(self._tasks):
            task.cancel()
        await self.metadata.close()
        await self.store.close()

    async def _flush(self) -> bool:
        topics = self.directory.serving.values()
        return await self._within_flush_seconds([self._assembly.write_pending(topic) for topic in topics])

    async def _within_flush_seconds(self, flushing: list[Coroutine[Any, Any, Any]]) -> bool:
        """Limit the time of pending writes: a store that is fenced or away must not keep the region from stopping."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                outcomes = await asyncio.gather(*flushing, return_exceptions=True)
        except TimeoutError:
            logger.warning("pending writes were not stored within %g s", FLUSH_SECONDS)
            return False
        for failure in outcomes:
            if isinstance(failure, StorageError):
                logger.warning("not stored before the region stopped: %s", failure)
            elif isinstance(failure, BaseException):
                raise failure
        return True

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work that no caller waits for. It ends with the region; an exception is a bug of ours and is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task failed", exc_info=task.exception())

    @property
    def service_port(self) -> int:
        return self._listener.port if self._listener is not None else self.config.service_port

    def service_url(self, came_by: str) -> str:
        """The address in lookup responses for a client that connected to our address `came_by`."""
        port = self.config.advertised_service_port or self.service_port
        return f"pulsar://{in_url(self.config.advertised_host or came_by)}:{port}"

    @property
    def internal_url(self) -> str:
        """The address in lookup responses on the internal port."""
        port = self._internal_listener.port if self._internal_listener else self.config.internal_port
        return f"pulsar://{in_url(self.config.internal_host)}:{port}"

    def new_producer_name(self) -> str:
        """A name that is unique over all regions and restarts, because deduplication by name includes other regions."""
        self._producer_names += 1
        return f"{self.config.region}-{self._starts}-{self._producer_names}"

    # Topics.

    def check_topic(self, name: str) -> TopicName:
        """Return the parsed name of a topic that this region may have. ProtocolError otherwise."""
        try:
            parsed = TopicName.parse(name)
        except ValueError as problem:
            raise ProtocolError(ServerError.InvalidTopicName, str(problem)) from None
        if not self.policies.has_namespace(parsed.full_namespace):
            raise ProtocolError(
                ServerError.TopicNotFound,
                f"namespace {parsed.full_namespace} does not exist in region {self.config.region}; "
                f"it has: {', '.join(self.policies.namespaces())}",
            )
        return parsed

    def check_open_to_clients(self, topic: str, subscription: str = "") -> None:
        """ProtocolError for a client that would publish to an internal topic of the regions, or consume messages that
        are meant for the region. `subscription`: the one that it wants to consume; empty: it wants to publish."""
        if self.synchronizer is not None:
            self.synchronizer.settings.check_client(topic, subscription)

    def _may_be_created(self, topic: TopicName) -> bool:
        """Whether a request may create the topic. ProtocolError when its namespace has too many topics."""
        if topic.full_namespace in self.tenancy.closing or not self.partitioned.may_be_created(topic):
            return False
        if not self.store.has_log(str(topic)):
            self.check_room(topic, 1)
        return True

    def check_room(self, topic: TopicName, more: int) -> None:
        """ProtocolError when `more` additional topics are too many for the namespace."""
        namespace = topic.full_namespace
        most = self.policies.of_namespace(namespace, MAX_TOPICS)
        if not most:
            return
        if self.directory.count(namespace) + more > most:
            raise ProtocolError(
                ServerError.NotAllowedError, f"Exceed maximum number of topics in namespace: {most}"
            )

    def _namespace_changed(self, change: Change) -> None:
        """Close the topics of a namespace that another region of the cluster deleted. Their logs stay as they are
        (D5)."""
        key = parse_path(change.path)
        if change.value is None and isinstance(key, NamespacePath):
            for name in (*self.directory.names(key.name), *self.directory.non_persistent_names(key.name)):
                self.spawn(self.directory.unload(name, "its namespace was deleted"))

    def check_not_deleted(self, topic: TopicName, peer: str) -> None:
        """Region `peer` replicates a topic to us. ProtocolError when a user deleted it here."""
        if self.directory.exists(str(topic)):
            return
        if self._was_deleted(topic):
            raise refusal(str(topic.partitioned or topic), self.config.region, peer)

    def _was_deleted(self, topic: TopicName) -> bool:
        """Whether a user deleted it, and no client has used it here since."""
        return str(topic) in self.deletions or self.partitioned.was_deleted(topic)

    async def _delete_unused(self, name: str) -> None:
        """Delete an unused topic because its policy requires it. It is created again when it is used, here or in
        another region."""
        with contextlib.suppress(ProtocolError):
            await self.directory.delete(name, force=False, for_good=False)

    async def every_topic(self) -> list[Topic]:
        """Load and return all topics, except those that cannot be loaded now."""
        topics = []
        for name in self.directory.all_names():
            with contextlib.suppress(ProtocolError, StorageError):
                topics.append(await self.directory.acquire(name, OpenMode.EXISTING))
        return topics

    def topic_failed(self, full_name: str, failure: BaseException) -> None:
        if isinstance(failure, StorageFenced):
            logger.error("fenced: another process owns this region's log: %s", failure)
            self.fenced.set()
            self.is_over.set()
        self.directory.failed(full_name, failure, again=not self.fenced.is_set())

    def _send_away(self, topic: Topic) -> None:
        for connection in list(self.connections):
            connection.topic_closed(topic)

    # Readiness.

    def is_linked_from(self, region: str) -> bool:
        return any(one.peer is not None and one.peer.region == region for one in self.connections)

    def links_changed(self) -> None:
        """A link connected or disconnected; snapshots may become possible."""
        for topic in self.directory.serving.values():
            if topic.subscriptions.replicated is not None:
                topic.subscriptions.replicated.links_changed()

    def waiting_for(self, expected_peers: set[str]) -> list[Reason]:
        """Return why clients should not be admitted yet, a sentence each. Only expected peers are waited for."""
        return [
            Cause.READINESS_LINK(region=name, reason=peer.why_not)
            for name, peer in sorted(self.peers.items())
            if name in expected_peers and not peer.connected
        ]
