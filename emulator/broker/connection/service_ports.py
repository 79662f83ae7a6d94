"""The ports of a region for Pulsar clients, and their addresses in lookup responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from emulator.broker.environment import Environment
from emulator.config.region import RegionConfig
from emulator.net.addresses import in_url
from emulator.net.network import Listener, Network


class ServicePort(NamedTuple):
    """One of the ports of a region for Pulsar clients."""

    internal: bool = False
    """For clients in the region's own network."""
    secured: bool = False
    """With TLS."""


class ServiceUrls(NamedTuple):
    """The addresses of a region for Pulsar clients."""

    plain: str
    """Empty: the port without TLS is closed."""
    secured: str
    """With TLS; empty: there is none."""

    @classmethod
    @lru_cache(
        maxsize=64
    )  # nearly all clients use the same address, but each may choose its own of 127.0.0.0/8
    def of(cls, host: str, plain: int, secured: int) -> ServiceUrls:
        """Return the URLs of two ports; 0: there is no such port."""
        return cls(
            f"pulsar://{in_url(host)}:{plain}" if plain else "",
            f"pulsar+ssl://{in_url(host)}:{secured}" if secured else "",
        )


class ServicePorts:
    """The ports at which one region accepts clients."""

    def __init__(self, config: RegionConfig, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self._listeners: dict[ServicePort, Listener] = {}

    async def listen(self, connection_at: Callable[[ServicePort], asyncio.Protocol]) -> None:
        """Accept clients. OSError when a port is not available."""
        config, environment = self._config, self._environment
        if config.has_plain_ports:
            ports = config.service_port, config.internal_port
            await self._listen_on(environment.network, *ports, connection_at)
        if environment.tls_network is not None:
            ports = config.service_port_tls, config.internal_port_tls
            await self._listen_on(environment.tls_network, *ports, connection_at, secured=True)

    async def _listen_on(
        self,
        network: Network,
        external: int,
        internal: int,
        connection_at: Callable[[ServicePort], asyncio.Protocol],
        *,
        secured: bool = False,
    ) -> None:
        for is_internal, port in ((False, external), (True, internal)):
            if is_internal and not self._config.internal_host:
                continue
            kind = ServicePort(is_internal, secured)
            self._listeners[kind] = await network.listen(
                partial(connection_at, kind), self._config.bind_host, port
            )

    def stop_listening(self) -> None:
        for listener in self._listeners.values():
            listener.close()

    @property
    def service_port(self) -> int:
        """The port without TLS; 0: it is closed."""
        config = self._config
        return self._port(ServicePort(), config.service_port if config.has_plain_ports else 0)

    @property
    def service_port_tls(self) -> int:
        """The port with TLS; 0: there is none."""
        config = self._config
        return self._port(
            ServicePort(secured=True), config.service_port_tls if config.security.tls is not None else 0
        )

    def _port(self, kind: ServicePort, configured: int) -> int:
        listener = self._listeners.get(kind)
        return configured if listener is None else listener.port

    def service_urls(self, local_address: str) -> ServiceUrls:
        """Return the URLs in lookup responses for a client that connected to our address `local_address`."""
        config = self._config
        plain, secured = self.service_port, self.service_port_tls
        return ServiceUrls.of(
            config.advertised_host or local_address,
            plain and (config.advertised_service_port or plain),
            secured and (config.advertised_service_port_tls or secured),
        )

    @property
    def internal_urls(self) -> ServiceUrls:
        """The URLs in lookup responses on the internal ports."""
        config = self._config
        ports = (
            self._port(ServicePort(internal=True, secured=secured), configured)
            for secured, configured in ((False, config.internal_port), (True, config.internal_port_tls))
        )
        plain, tls = ports
        return ServiceUrls.of(
            config.internal_host,
            plain if config.has_plain_ports else 0,
            tls if config.security.tls is not None else 0,
        )
