"""One region: a broker with its topics, its clients and its links to the other regions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from emulator.broker.connection import ClientConnection
from emulator.broker.environment import Environment
from emulator.broker.peer import PeerLink
from emulator.broker.replicator import Replicator
from emulator.broker.requests import HANDLERS
from emulator.broker.subscription import cursor_key
from emulator.broker.subscription_sync import SubscriptionSync
from emulator.broker.topic import Topic
from emulator.core.cursor import Cursor
from emulator.errors import ProtocolError, ServerError, StorageError, StorageFenced
from emulator.model import TopicName
from emulator.network import Listener
from emulator.region_config import NamespaceConfig, RegionConfig
from emulator.storage.contract import Replaceable, Store

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0
"""How long a region that stops waits for a store that does not take what is left to write. Together with what the
store's `close` may take it must stay below the 10 s after which who stops a region kills it."""
STARTS_KEY = "region/starts"
"""How often this region was started: makes generated producer names unique for ever."""


class Region:
    """Start it, let it serve, stop it. Made by whoever owns the environment."""

    def __init__(self, config: RegionConfig, environment: Environment) -> None:
        self.config = config
        self.environment = environment
        self.store: Store = environment.store
        self.namespaces: dict[str, NamespaceConfig] = {n.name: n for n in config.namespaces}
        self.topics: dict[str, Topic] = {}
        self.connections: dict[ClientConnection, None] = {}
        self.peers: dict[str, PeerLink] = {peer.region: PeerLink(self, peer) for peer in config.peers}
        self.fenced = asyncio.Event()
        """Set when a newer owner took the log: this process must end."""
        self._opening: dict[str, asyncio.Future[Topic]] = {}
        self._leaving: dict[str, Topic] = {}
        """Closed topics, by name, that may still have something under way to the store."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._listener: Listener | None = None
        self._internal_listener: Listener | None = None
        self._starts = 0
        self._producer_names = 0
        self._stopping = False

    # Life.

    async def start(self) -> None:
        """Recover every topic, then serve. OSError when the port cannot be had; StorageError when the log cannot."""
        if isinstance(self.store, Replaceable):
            self.store.fenced.add_done_callback(lambda fenced: self.topic_failed("", fenced.result()))
        await self._count_start()
        for name in self.store.log_names():
            await self.topic(name)
        config = self.config
        self._listener = await self.environment.network.listen(
            lambda: ClientConnection(self, HANDLERS), config.bind_host, config.service_port
        )
        if config.internal_host:
            self._internal_listener = await self.environment.network.listen(
                lambda: ClientConnection(self, HANDLERS, internal=True),
                config.bind_host,
                config.internal_port,
            )
        for peer in self.peers.values():
            peer.start()
        logger.info(
            "region %s serves %d topics on port %d", config.region, len(self.topics), self.service_port
        )

    async def _count_start(self) -> None:
        stored = self.store.get(STARTS_KEY)
        self._starts = int(stored.value) + 1 if stored else 0
        await self.store.put(STARTS_KEY, str(self._starts).encode())

    async def stop(self) -> None:
        """End in an orderly way: what is known is written, as far as the store takes it, then the store is closed."""
        self._stopping = True
        for listener in (self._listener, self._internal_listener):
            if listener is not None:
                listener.close()
        await self._flush()
        for peer in self.peers.values():
            peer.close()
        for connection in list(self.connections):
            connection.close()
        for topic in list(self.topics.values()):
            topic.close("the region stops")
        for task in list(self._tasks):
            task.cancel()
        await self.store.close()

    async def _flush(self) -> None:
        """A store that was taken over, or is away, must not keep the region from ending."""
        flushing = []
        for topic in self.topics.values():
            flushing += [subscription.flush() for subscription in topic.subscriptions.values()]
            flushing += [replicator.flush() for replicator in topic.replicators.values()]
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                outcomes = await asyncio.gather(*flushing, return_exceptions=True)
        except TimeoutError:
            logger.warning("the store did not take everything within %g s", FLUSH_SECONDS)
            return
        for failure in outcomes:
            if isinstance(failure, StorageError):
                logger.warning("not written before the end: %s", failure)
            elif isinstance(failure, BaseException):
                raise failure

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work that nobody waits for. It ends with the region; its failure is our bug and is logged."""
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

    @property
    def service_url(self) -> str:
        """What lookups tell clients."""
        port = self.config.advertised_service_port or self.service_port
        return f"pulsar://{self.config.advertised_host}:{port}"

    @property
    def internal_url(self) -> str:
        """What lookups tell those who came by the internal port."""
        port = self._internal_listener.port if self._internal_listener else self.config.internal_port
        return f"pulsar://{self.config.internal_host}:{port}"

    def new_producer_name(self) -> str:
        """Unique over all regions and restarts, because deduplication by name travels."""
        self._producer_names += 1
        return f"{self.config.region}-{self._starts}-{self._producer_names}"

    # Topics.

    def check_topic(self, name: str) -> TopicName:
        """The parsed name of a topic that may live here. ProtocolError otherwise."""
        try:
            parsed = TopicName.parse(name)
        except ValueError as problem:
            raise ProtocolError(ServerError.InvalidTopicName, str(problem)) from None
        if parsed.domain != "persistent":
            raise ProtocolError(ServerError.NotAllowedError, "non-persistent topics are not offered yet")
        if parsed.full_namespace not in self.namespaces:
            raise ProtocolError(
                ServerError.TopicNotFound,
                f"namespace {parsed.full_namespace} does not exist in region {self.config.region}; "
                f"it has: {', '.join(sorted(self.namespaces))}",
            )
        return parsed

    async def topic(self, name: str, *, create: bool = True) -> Topic:
        """Find, load or create a topic. ProtocolError when it cannot be had."""
        parsed = self.check_topic(name)
        full_name = str(parsed)
        topic = self.topics.get(full_name)
        if topic is not None:
            return topic
        if self._stopping:
            raise ProtocolError(ServerError.ServiceNotReady, "the region is stopping")
        opening = self._opening.get(full_name)
        if opening is None:
            opening = asyncio.ensure_future(self._open_topic(parsed, create))
            self._opening[full_name] = opening
            opening.add_done_callback(lambda _: self._opening.pop(full_name, None))
        return await asyncio.shield(opening)

    async def _open_topic(self, name: TopicName, create: bool) -> Topic:
        leaving = self._leaving.get(str(name))
        if leaving is not None:
            await leaving.settled()
            del self._leaving[str(name)]
        may_create = create and self.config.settings.allow_auto_topic_creation
        log = await self.store.open_log(str(name), create=may_create)
        if log is None:
            raise ProtocolError(ServerError.TopicNotFound, f"topic {name} does not exist")
        namespace = self.namespaces[name.full_namespace]
        topic = await Topic.load(self, name, log, deduplicates=namespace.deduplication)
        remotes = [region for region in namespace.regions if region in self.peers]
        if remotes:
            topic.sync = SubscriptionSync(topic, remotes)
        self._restore_subscriptions(topic)
        self.topics[str(name)] = topic
        for remote in remotes:
            topic.replicators[remote] = Replicator(topic, self.peers[remote])
            self.peers[remote].add(topic.replicators[remote])
        return topic

    def _restore_subscriptions(self, topic: Topic) -> None:
        prefix = cursor_key(topic.full_name, "")
        for key, stored in self.store.scan(prefix):
            name = key.removeprefix(prefix)
            subscription = topic.create_subscription(name, Cursor.from_bytes(stored.value))
            if topic.sync is not None and subscription.cursor.replicated:
                topic.sync.subscription_added(subscription)

    def topic_names(self, namespace: str) -> list[str]:
        """Full names of the topics of a namespace, sorted."""
        return sorted(name for name, topic in self.topics.items() if topic.name.full_namespace == namespace)

    def topic_failed(self, full_name: str, failure: BaseException) -> None:
        """The store did not keep something of this topic. What we have in memory may be wrong now: send everybody
        away and load the topic again from what the store really has."""
        topic = self.topics.get(full_name)
        if isinstance(failure, StorageFenced):
            logger.error("fenced: a newer owner has this region's log: %s", failure)
            self.fenced.set()
        if topic is None or self._stopping:
            return
        logger.error("storage of %s failed: %s", full_name, failure)
        self.topics.pop(topic.full_name, None)
        for connection in list(self.connections):
            connection.topic_closed(topic)
        topic.close("its storage failed")
        self._leaving[topic.full_name] = topic
        if not self.fenced.is_set():
            self.spawn(self._load_again(topic.full_name))

    async def _load_again(self, name: str) -> None:
        """Replication of what is stored must go on even if no client comes back."""
        delay_seconds = 0.05
        while not self._stopping:
            await asyncio.sleep(delay_seconds)
            try:
                await self.topic(name)
            except (StorageError, ProtocolError) as failure:
                logger.warning("cannot load %s yet: %s", name, failure)
                delay_seconds = min(delay_seconds * 2, 2.0)
            else:
                return

    def put_in_background(self, key: str, value: bytes) -> None:
        """Store something whose loss only costs time after a restart."""
        future = self.store.put(key, value)
        future.add_done_callback(self._background_put_done)

    def _background_put_done(self, done: asyncio.Future[int]) -> None:
        failure = done.exception()
        if failure is not None:
            logger.warning("checkpoint not written: %s", failure)

    # Readiness.

    def links_changed(self) -> None:
        """A link came up or went down; snapshots may become possible."""
        for topic in self.topics.values():
            if topic.sync is not None:
                topic.sync.links_changed()

    def waiting_for(self, expected_peers: set[str]) -> list[str]:
        """Why clients should not be let in yet, a sentence each. Peers that are not expected are not waited for."""
        return [
            f"link to {name}: {peer.why_not}"
            for name, peer in sorted(self.peers.items())
            if name in expected_peers and not peer.connected
        ]
