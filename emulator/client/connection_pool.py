"""Connections of a client: service URLs, topic lookup and one connection per broker address."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

from emulator.client.connection import BrokerConnection
from emulator.client.types import FINAL_ERRORS, ClientError, ClientSettings
from emulator.errors import ServerError
from emulator.model.values import PARTITIONS_MAX
from emulator.net.credentials import NO_CREDENTIALS, Credentials
from emulator.net.network import Network
from emulator.net.tls import Certificates, network_with
from emulator.wire.commands.connections import (
    Lookup,
    LookupResponse,
    PartitionMetadata,
    PartitionMetadataResponse,
)

T = TypeVar("T")
Address = tuple[str, int]
PLAIN: Final = "pulsar"
SECURED: Final = "pulsar+ssl"


DEFAULT_PORTS: Final = {PLAIN: 6650, SECURED: 6651}


def scheme_of(url: str) -> str:
    """Return the scheme of a service URL. Raises ValueError for any other one."""
    scheme, separator, _ = url.partition("://")
    if scheme not in DEFAULT_PORTS or not separator:
        raise ValueError(f"service URL {url!r} must begin with pulsar:// or pulsar+ssl://")
    return scheme


def parse_service_url(url: str) -> list[Address]:
    """Parse `pulsar://host:port[,host:port…]` to addresses. Raises ValueError that names the problem."""
    scheme = scheme_of(url)
    hosts = url.removeprefix(f"{scheme}://")
    addresses = []
    for host in hosts.rstrip("/").split(","):
        parts = urlsplit(f"//{host}")
        if not parts.hostname:
            raise ValueError(f"service URL {url!r} names no host")
        addresses.append((parts.hostname, parts.port or DEFAULT_PORTS[scheme]))
    return addresses


class Handle(Protocol):
    """A producer or consumer of the client."""

    async def close(self) -> None: ...


class ConnectionPool:
    """Connections to one region at a time; the next service URL is used when a connection fails."""

    def __init__(
        self,
        service_url: str | Sequence[str],
        network: Network | None,
        settings: ClientSettings | None,
        chance: random.Random | None,
        wall_clock_ms: Callable[[], int] | None,
        tls: Certificates | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        """ValueError for an invalid URL."""
        urls = [service_url] if isinstance(service_url, str) else list(service_url)
        schemes = {scheme_of(url) for url in urls}
        if len(schemes) > 1:
            raise ValueError(f"service URLs {', '.join(urls)} must all be with TLS or all without")
        self._secured = schemes == {SECURED}
        if self._secured and tls is None:
            raise ValueError(
                f"service URL {urls[0]} needs `tls`, the files with which its certificate is verified"
            )
        self._addresses = [address for url in urls for address in parse_service_url(url)]
        self._current = 0
        self.settings = settings or ClientSettings()
        self.chance = chance or random.Random()
        """The source of every random choice, except secrets."""
        self.secret_bytes = os.urandom if chance is None else chance.randbytes
        """Function that returns a number of unpredictable bytes; in simulations they derive from the seed."""
        self.wall_clock_ms = wall_clock_ms or (lambda: time.time_ns() // 1_000_000)
        """Clock of the publish times of messages."""
        self.closed = False
        self._network = network or network_with(tls if self._secured else None)
        self._connections: dict[Address, BrokerConnection] = {}
        self._connecting: dict[Address, asyncio.Task[BrokerConnection]] = {}
        self._handles: dict[Handle, None] = {}
        self._next_id = 0
        self._credentials = credentials

    @property
    def service_address(self) -> Address:
        """The address that lookups are currently sent to."""
        return self._addresses[self._current]

    def new_id(self) -> int:
        """Return a new id for a request, producer or consumer."""
        self._next_id += 1
        return self._next_id

    async def connection_for(self, topic: str) -> BrokerConnection:
        """Look the topic up and connect to the broker that serves it, or use the service URL if the response requires
        that. Raises ClientError when one of these fails; if no connection to the service URL could be opened, the next
        call tries the next one."""
        connection = await self.service_connection()
        found = await connection.ask(Lookup(self.new_id(), topic), LookupResponse)
        if found.proxy_through_service_url:
            return connection
        url = found.service_url_tls if self._secured else found.service_url
        try:
            addresses = parse_service_url(url or "")
        except ValueError as problem:
            sentence = f"the lookup of {topic} returned {url!r}: {problem}"
            raise ClientError(sentence, definite=True) from None
        return await self.connect(addresses[0])

    async def partitions_of(self, topic: str, *, may_create: bool = False) -> int:
        """Return the number of partitions of the topic (`<topic>-partition-0` and so on); 0: it is not partitioned.
        `may_create`: a missing topic is created as its namespace's policy says. Raises ClientError when the broker
        rejects the request or does not respond, or its response is invalid."""
        connection = await self.service_connection()
        command = PartitionMetadata(self.new_id(), topic, may_create=may_create)
        count = (await connection.ask(command, PartitionMetadataResponse)).partitions or 0
        if count > PARTITIONS_MAX:
            sentence = f"the region reports {count} partitions of {topic}; the maximum is {PARTITIONS_MAX}"
            raise ClientError(sentence, definite=True, code=ServerError.NotAllowedError)
        return count

    async def service_connection(self) -> BrokerConnection:
        """Return a connection to any host of the region, for requests that concern no single topic. Raises ClientError
        (definite) when connecting fails; the next call tries the next service URL."""
        try:
            return await self.connect(self.service_address)
        except ClientError:
            self._current = (self._current + 1) % len(self._addresses)
            raise

    async def connect(self, address: Address) -> BrokerConnection:
        """Return the connection to an address; open it if there is none."""
        if self.closed:
            raise ClientError("the client is closed", definite=True)
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open_connection(address))
            self._connecting[address] = task
            task.add_done_callback(lambda task: self._connecting_done(address, task))
        return await asyncio.shield(task)

    def _connecting_done(self, address: Address, task: asyncio.Task[BrokerConnection]) -> None:
        del self._connecting[address]
        if not task.cancelled():
            task.exception()  # Mark as retrieved: the caller may have stopped waiting.

    async def _open_connection(self, address: Address) -> BrokerConnection:
        try:
            connection = BrokerConnection(address, self.settings, self._remove, self._credentials)
        except OSError as failure:
            raise ClientError(f"cannot read the credentials: {failure}", definite=True) from None
        try:
            async with asyncio.timeout(self.settings.connect_timeout_seconds):
                await self._network.connect(lambda: connection, *address)
                await connection.connected
        except (OSError, TimeoutError) as failure:
            connection.abort()
            where = f"{address[0]}:{address[1]}"
            raise ClientError(f"cannot connect to {where}: {failure or 'timed out'}", definite=True) from None
        self._connections[address] = connection
        return connection

    def _remove(self, connection: BrokerConnection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        deadline_seconds: float | None,
        also_retried: Collection[ServerError] = (),
    ) -> T:
        """Repeat an attempt with back-off until it succeeds. Raises a final error, except for those in `also_retried`,
        the last error when the deadline passes (None: no deadline), and any error of a closed client."""
        loop = asyncio.get_running_loop()
        give_up_at = None if deadline_seconds is None else loop.time() + deadline_seconds
        backoff = self.settings.backoff_seconds
        while True:
            try:
                return await attempt()
            except ClientError as failure:
                if self.closed or (failure.code in FINAL_ERRORS and failure.code not in also_retried):
                    raise
                pause = backoff * self.chance.uniform(0.8, 1.2)
                if give_up_at is not None and loop.time() + pause > give_up_at:
                    raise
            await asyncio.sleep(pause)
            backoff = min(backoff * 2, self.settings.backoff_seconds_max)

    def forget_handle(self, handle: Handle) -> None:
        """Forget a producer or consumer that was closed."""
        self._handles.pop(handle, None)

    async def close(self) -> None:
        """Close all producers, consumers and connections. Sends without a receipt fail with an indefinite error."""
        if self.closed:
            return
        for handle in list(self._handles):
            await handle.close()
        self.closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close()
