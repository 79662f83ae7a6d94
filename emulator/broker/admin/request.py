"""Requests to the admin API: their region, arguments, and the objects that their path names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from emulator.broker.authentication.sender import ANY_CLIENT, Authenticate, Sender, accept_all
from emulator.broker.authorizer import Requirement
from emulator.broker.connection.service_ports import ServiceUrls
from emulator.broker.links.emulation import EmulatedLink
from emulator.broker.region import Region
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.authorization.rule import Target, topic_target
from emulator.core.partitions import partition_names
from emulator.errors import GoneMeanwhile, ProtocolError
from emulator.model.stored_keys import NamespacePath, StoredKey
from emulator.model.values import PERSISTENT, TopicName, is_valid_name
from emulator.net.addresses import in_url
from emulator.net.http_server import HttpError

Authorize = Callable[[Sender, Requirement], None]
"""Checks that the sender of a request has a permission. ProtocolError (AuthorizationError)."""
Content = Any
"""The result of a handler: content of the response, as JSON, or as text if the operation declares text; None for 204
without a body; or a complete `http_server.Response`."""


def allow_all(sender: Sender, requirement: Requirement) -> None:
    """Permit everything, in a region without authorization."""


def full_topic_name(names: Mapping[str, str]) -> str:
    """Return the full name of the topic in a path."""
    domain = names.get("domain", PERSISTENT)
    return f"{domain}://{names['tenant']}/{names['namespace']}/{names['topic']}"


@dataclass(slots=True)
class AdminContext:
    """The context that all requests to a region share. Created by `Admin`."""

    region: Region
    links: dict[str, EmulatedLink]
    """Peer region -> the emulated link to it; empty in a region without emulated links."""
    authorize: Authorize = allow_all
    authenticate: Authenticate = accept_all
    port: int = 0
    """The server's port without TLS; 0 before it listens, or if it is closed."""
    port_tls: int = 0
    """The server's port with TLS; 0: there is none."""

    def target(self, names: Mapping[str, str]) -> Target:
        """Return the object that a path with these names addresses. HttpError 412 for an invalid name: if names
        contained slashes, two different paths would address the same topic."""
        for kind in ("tenant", "namespace"):
            if not is_valid_name(names.get(kind, "none")):
                raise HttpError(412, f"{names[kind]!r} is not a valid {kind} name")
        tenant = names.get("tenant", "")
        if "namespace" not in names:
            return Target(tenant)
        if "topic" not in names:
            return Target(tenant, f"{tenant}/{names['namespace']}")
        try:
            topic = TopicName.parse(full_topic_name(names))
        except ValueError as problem:
            raise HttpError(412, str(problem)) from None
        return topic_target(topic, names.get("subscription", ""))


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request that was routed, authorized and parsed."""

    context: AdminContext
    names: Mapping[str, str]
    """The named segments of the row's path, unquoted."""
    query: Mapping[str, Any]
    """Parsed query parameters of the request, as far as the operation declares them."""
    body: Any
    """The parsed body; None if the operation takes none, or the request has none."""
    host: str
    """The client's Host header."""
    local_address: str = ""
    """The address of the region that the client connected to."""
    accept: str = ""
    """The client's Accept header."""
    sender: Sender = ANY_CLIENT

    @property
    def region(self) -> Region:
        return self.context.region

    @property
    def url(self) -> str:
        """The URL of the HTTP port for external clients: the one without TLS, if it is open."""
        plain, secured = self.urls
        return plain or secured

    @property
    def urls(self) -> tuple[str, str]:
        """The URLs of the HTTP ports for external clients, without and with TLS; empty: there is no such port."""
        config, context = self.region.config, self.context
        host = in_url(config.advertised_host or self.local_address)
        plain = context.port and (config.advertised_admin_port or context.port)
        secured = context.port_tls and (config.advertised_admin_port_tls or context.port_tls)
        return f"http://{host}:{plain}" if plain else "", f"https://{host}:{secured}" if secured else ""

    @property
    def service_urls(self) -> ServiceUrls:
        """The service URLs of the region for external clients."""
        return self.region.clients.ports.service_urls(self.local_address)

    @property
    def service_url(self) -> str:
        """The service URL of the region for external clients: the one without TLS, if the port is open."""
        urls = self.service_urls
        return urls.plain or urls.secured

    def flag(self, name: str) -> bool:
        """Return the value of a Boolean parameter; False if the request has none."""
        return bool(self.query.get(name, False))

    def required_body(self, expected: str) -> Any:
        """Return the body. HttpError 400 if the request has none."""
        if self.body is None:
            raise HttpError(400, f"the body must be {expected}")
        return self.body

    # The namespace.

    def namespace(self) -> str:
        """Return the full name of the namespace in the path. HttpError 404 when it does not exist."""
        name = f"{self.names['tenant']}/{self.names['namespace']}"
        if not self.region.policies.has_namespace(name):
            missing = "Namespace" if self.names["tenant"] in self.region.policies.tenants() else "Tenant"
            raise HttpError(404, f"{missing} does not exist")
        return name

    def namespace_path(self) -> NamespacePath:
        """Return the stored path of the namespace's policies. HttpError 404 when the namespace does not exist."""
        return NamespacePath(self.namespace())

    # The topic.

    def topic_name(self) -> TopicName:
        """Return the name of the topic in the path. ProtocolError for an invalid name or a missing namespace."""
        return self.region.check_topic(full_topic_name(self.names))

    def existing_topic(self) -> TopicName:
        """Return the name of the topic in the path, partitioned or not. HttpError 404 when it does not exist."""
        topic = self.topic_name()
        if self.region.partitioned.get(topic) is None and not self.region.directory.exists(str(topic)):
            raise HttpError(404, f"Topic {topic} not found")
        return topic

    def topic_policies_path(self) -> StoredKey:
        """Return the stored path of the topic's policies: for all regions of the cluster with `?isGlobal`."""
        return self.region.policies.topic_policies_path(self.topic_name(), everywhere=self.flag("isGlobal"))

    def partition_names(self) -> list[str]:
        """Return the full name of the topic, or those of its partitions, existing or not."""
        name = self.topic_name()
        found = self.region.partitioned.get(name)
        return [str(name)] if found is None else partition_names(name, found.count)

    async def load(self, name: str = "", mode: OpenMode = OpenMode.EXISTING) -> Topic:
        """Load the topic in the path, or the one with this full name. ProtocolError when it cannot be loaded."""
        return await self.region.directory.acquire(name or full_topic_name(self.names), mode)

    async def load_partitions(self, mode: OpenMode = OpenMode.EXISTING) -> list[Topic]:
        """Load the topic, or its partitions. ProtocolError when one of them cannot be loaded."""
        return [await self.load(name, mode) for name in self.partition_names()]

    async def load_single(self) -> Topic:
        """Load the topic. HttpError 405 for a partitioned one: a position is valid in one partition only."""
        names, topic = self.partition_names(), self.topic_name()
        if self.region.partitioned.get(topic) is not None:
            raise HttpError(405, f"{topic} has partitions: name one of them, such as {names[0]}")
        return await self.load(names[0])

    # The subscription.

    async def subscriptions(self) -> list[tuple[Topic, Subscription]]:
        """Return the subscriptions with the name in the path: of the topic, or of the partitions that have one.
        HttpError 404 for none."""
        name = self.names["subscription"]
        topics = await self.load_partitions()
        pairs = [(topic, topic.subscriptions.get(name)) for topic in topics]
        found = [(topic, one) for topic, one in pairs if one is not None and not one.closed]
        if not found:
            raise self.subscription_not_found()
        return found

    async def subscription(self) -> tuple[Topic, Subscription]:
        """Return the subscription in the path. HttpError 404 when it does not exist, 405 for a partitioned topic."""
        topic = await self.load_single()
        found = topic.subscriptions.get(self.names["subscription"])
        if found is None or found.closed:
            raise self.subscription_not_found()
        return topic, found

    def subscription_not_found(self) -> HttpError:
        """Return the error for a missing subscription: 404, or 412 for the name of a replicator's cursor in Pulsar."""
        name = self.names["subscription"]
        if name.startswith("pulsar.repl."):
            return HttpError(
                412, f"{name}: a replicator cannot skip messages; remove its region from replication_clusters"
            )
        return HttpError(404, f"Subscription {name} not found for topic {full_topic_name(self.names)}")

    # Objects that are deleted during a request. Requests for many topics or subscriptions skip such objects.

    async def ignoring_deletion(
        self, topic: Topic, subscription: Subscription, work: Awaitable[None]
    ) -> None:
        """Await `work`, and ignore that the subscription or its topic was deleted. GoneMeanwhile if the subscription
        still exists, because its topic was loaded again."""
        try:
            await work
        except GoneMeanwhile:
            with suppress(ProtocolError):
                if subscription.name in (await self.load(topic.full_name)).subscriptions:
                    raise

    async def gone_error(self, problem: GoneMeanwhile) -> HttpError:
        """Return or raise 404 with Pulsar's reason if the object in the path no longer exists; return 409 if it was
        loaded again. ProtocolError if its topic cannot be loaded."""
        if "topic" in self.names:
            for topic in await self.load_partitions():
                if "subscription" in self.names and self.names["subscription"] not in topic.subscriptions:
                    return self.subscription_not_found()
        elif "namespace" in self.names:
            self.namespace()
        return HttpError(409, f"{problem}: it was loaded again during the request; repeat the request")
