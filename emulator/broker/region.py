"""One region: a broker with its topics, its clients and its links to the other regions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from emulator.broker.authentication.gate import ClientGate
from emulator.broker.authorizer import Authorizer
from emulator.broker.connection.commands import TABLE
from emulator.broker.connection.connection import ClientConnections
from emulator.broker.environment import Environment, RegionResources
from emulator.broker.incarnation import Incarnation
from emulator.broker.metadata.policies import Policies
from emulator.broker.metadata.schemas import Schemas
from emulator.broker.metadata.tenancy import Tenancy
from emulator.broker.metadata_sync.event_publisher import EventPublisher
from emulator.broker.metadata_sync.settings import SyncSettings
from emulator.broker.metadata_sync.synchronizer import Synchronizer
from emulator.broker.removed_regions import RemovedRegions
from emulator.broker.replication.link import PeerLink
from emulator.broker.tasks import TaskGroup
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_assembly import Assembly
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.housekeeper import Housekeeper
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.broker.topic_directory.partitions import PartitionedTopics
from emulator.broker.topic_directory.stored_topics import log_unreachable
from emulator.broker.topic_directory.topic_rules import TopicRules
from emulator.broker.transactions.coordinators import TransactionCoordinators
from emulator.config.region import RegionConfig
from emulator.errors import ProtocolError, ServerError, StorageError, StorageFenced
from emulator.model.reasons import Cause, Reason
from emulator.model.stored_keys import NamespacePath, PendingWorkKey, parse_key, parse_path
from emulator.model.values import Change, TopicName
from emulator.storage.contract import Replaceable, Store

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0
"""Seconds that a stopping region waits for its pending writes, before and after it closes its topics. Twice this and
the time limit of the store's `close` together must stay below the 10 s after which the region is killed."""


class RegionEnd(asyncio.Event):
    """Set when the process of the region must end: it is fenced, or an admin call stops it."""

    is_fenced = False
    """True when a newer owner fenced the log."""


class Region:
    """One region, between `start` and `stop`. The program that owns the environment creates it."""

    def __init__(
        self, config: RegionConfig, environment: Environment, *, topic_type: type[Topic] = Topic
    ) -> None:
        """`topic_type`: class of the topics. It can be replaced like those in `broker.components`, which may not import
        `Topic`. Raises OSError or ValueError if keys or users of the authentication cannot be read."""
        settings, components = config.settings, environment.components
        self.config = config
        self.environment = environment
        self.store: Store = environment.store
        self.end = RegionEnd()
        self._tasks = TaskGroup()
        self.resources = RegionResources(config.region, settings)
        self.incarnation = Incarnation(config.region, self.store)
        self.metadata = components.metadata.metadata(environment.configuration, self.spawn)
        self.policies = Policies(self.metadata, config.region, config.broker_policies)
        self.schemas = Schemas(
            self.metadata,
            self.policies,
            environment.wall_clock_ms,
            bytes_max=settings.schema_bytes_max,
            versions_max=settings.schema_versions_max,
            check_follows=components.metadata.check_follows,
        )
        self.peers: dict[str, PeerLink] = {peer.region: PeerLink(self, peer) for peer in config.peers}
        self.removed_regions = RemovedRegions(self)
        self.topic_rules = TopicRules(self, components.lifetime.deletions(self.store))
        self.housekeeper = Housekeeper(self)
        self._assembly = Assembly(self, topic_type)
        self.directory = TopicDirectory(
            self._assembly, self.store, self.spawn, self.topic_rules, check=self.check_topic
        )
        self.partitioned = PartitionedTopics(
            self.metadata,
            self.policies,
            self.peers,
            self.directory,
            creates_by_default=settings.allow_auto_topic_creation,
            is_news=components.metadata.is_news,
        )
        self.tenancy = Tenancy(self.metadata, self.directory, self.partitioned, self.schemas)
        authorization = config.security.authorization
        self.authorizer = (
            None
            if authorization is None
            else Authorizer(authorization, self.policies, self.tenancy.admin_roles)
        )
        """Checks permissions; None: every client may do everything."""
        self.coordinators = TransactionCoordinators(self)
        self.gate = self._open_gate()
        """Authenticates clients; None if the region does not."""
        self.clients = ClientConnections(self, TABLE)
        self.synchronizer: Synchronizer | None = None
        """Shares metadata with other clusters; None when there is no other cluster, or it is not enabled."""

    def _open_gate(self) -> ClientGate | None:
        security = self.config.security
        if security.authentication is None:
            return None
        return ClientGate(
            security,
            self.environment.wall_clock_ms,
            self.resources.refused_authentications,
            self.config.settings.failed_authentications_per_host_max,
        )

    # Starting and stopping.

    async def start(self) -> None:
        """Begin to serve, and load topics with pending work in the background (D3). OSError when the service port is
        not available; StorageError when the store or the configuration store is not."""
        if isinstance(self.store, Replaceable):
            self.store.fenced.add_done_callback(lambda fenced: self.topic_failed("", fenced.result()))
        await self.incarnation.begin()
        await self.metadata.open()
        self.removed_regions.start()
        self._configure_metadata_sync()
        authorization = self.config.security.authorization
        tenant_admins = {} if authorization is None else authorization.tenant_admins
        await self.policies.start(self.config.tenants, self.config.namespaces, tenant_admins)
        self.schemas.start()
        self.partitioned.start()
        self.metadata.watch(NamespacePath.prefix(), self._namespace_changed)
        log_unreachable(self.store, self.policies.namespaces())
        await self.coordinators.start()
        await self.clients.listen()
        for peer in self.peers.values():
            peer.start()
        self.coordinators.resume()
        if self.synchronizer is not None:
            self.spawn(self.synchronizer.run())
        pending = self._topics_with_pending_work()
        self.spawn(self.directory.open_owing(pending))
        self.housekeeper.idle.start()
        logger.info(
            "region %s listens on %s; %d topics have work left and are loaded",
            self.config.region,
            self._ports(),
            len(pending),
        )

    def _ports(self) -> str:
        plain, secured = self.clients.ports.service_port, self.clients.ports.service_port_tls
        ports = [f"port {plain}"] if plain else []
        return " and ".join([*ports, *([f"port {secured} with TLS"] if secured else [])])

    def _configure_metadata_sync(self) -> None:
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
                self.metadata.publisher = EventPublisher(self, self.metadata, settings)

    def _topics_with_pending_work(self) -> list[str]:
        """Return the topics that may have work without clients: recorded pending work, or data to delete by policy."""
        keys = [parse_key(text) for text, _ in self.store.scan(PendingWorkKey.prefix())]
        pending = [key.topic for key in keys if isinstance(key, PendingWorkKey)]
        names = [name for namespace in self.policies.namespaces() for name in self.directory.names(namespace)]
        return list(dict.fromkeys([*pending, *self.housekeeper.concerned(self.policies, names)]))

    async def stop(self) -> None:
        """Stop in an orderly way: write everything pending, as far as the store accepts it, then close the store."""
        self.clients.ports.stop_listening()
        self.coordinators.close()
        if self.synchronizer is not None:
            await self.synchronizer.close()
        topics = list(self.directory.serving.values())
        written = await self._within_flush_seconds(map(self._assembly.write_pending, topics))
        for peer in self.peers.values():
            peer.close()
        self.clients.close()
        topics = list(self.directory.serving.values())
        self.directory.close()
        self.housekeeper.close()
        if written:
            await self._within_flush_seconds(map(self._assembly.forget_pending_work_when_settled, topics))
        self._tasks.close()
        await self.metadata.close()
        await self.store.close()

    async def _within_flush_seconds(self, writes: Iterable[Coroutine[Any, Any, Any]]) -> bool:
        """Wait for pending writes. Return False after FLUSH_SECONDS: a fenced or unavailable store must not keep the
        region from stopping. A StorageError of a write is logged; another error is raised."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                outcomes = await asyncio.gather(*writes, return_exceptions=True)
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
        """Run a coroutine that no caller awaits. It is cancelled when the region stops; an exception is logged."""
        self._tasks.start(work)

    # Topics.

    def check_topic(self, name: str) -> TopicName:
        """Return the parsed name of a topic that this region may have. ProtocolError otherwise."""
        try:
            parsed = TopicName.parse(name)
        except ValueError as problem:
            raise ProtocolError(ServerError.InvalidTopicName, str(problem)) from None
        if parsed.full_namespace not in self.policies.existing:
            raise ProtocolError(
                ServerError.TopicNotFound,
                f"namespace {parsed.full_namespace} does not exist in region {self.config.region}; "
                f"it has: {', '.join(self.policies.namespaces())}",
            )
        return parsed

    def _namespace_changed(self, change: Change) -> None:
        """Unload the topics of a namespace that was deleted, such as by another region of the cluster. Their logs stay
        as they are (D5)."""
        key = parse_path(change.path)
        if change.value is None and isinstance(key, NamespacePath):
            for name in (*self.directory.names(key.name), *self.directory.non_persistent_names(key.name)):
                self.spawn(self.directory.unload(name, "its namespace was deleted"))

    async def every_topic(self) -> list[Topic]:
        """Load and return all topics, except those that cannot be loaded now."""
        topics = []
        for name in self.directory.all_names():
            with contextlib.suppress(ProtocolError, StorageError):
                topics.append(await self.directory.acquire(name, OpenMode.EXISTING))
        return topics

    def topic_failed(self, full_name: str, failure: BaseException) -> None:
        """Unload a topic after one of its writes failed. It is loaded again, unless the log is fenced: then the region
        ends. `full_name` is empty when the store was fenced without a write."""
        if isinstance(failure, StorageFenced):
            logger.error("fenced: another process owns this region's log: %s", failure)
            self.end.is_fenced = True
            self.end.set()
        self.directory.failed(full_name, failure, again=not self.end.is_fenced)

    # Links and readiness.

    def is_linked_from(self, region: str) -> bool:
        return any(one.peer is not None and one.peer.region == region for one in self.clients.connections)

    def links_changed(self) -> None:
        """React to a link that connected or disconnected: snapshots may become possible."""
        for topic in self.directory.serving.values():
            if topic.subscriptions.replicated is not None:
                topic.subscriptions.replicated.snapshots.schedule()

    def waiting_for(self, expected_peers: set[str]) -> list[Reason]:
        """Return why clients should not connect yet: one reason for each expected peer that is not connected. A region
        that was removed itself waits for none, because all refuse it."""
        if self.config.region in self.removed_regions:
            return []
        return [
            Cause.READINESS_LINK(region=name, reason=peer.why_not)
            for name, peer in sorted(self.peers.items())
            if name in expected_peers and not peer.connected and not peer.is_removed
        ]
