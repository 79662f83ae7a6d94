"""The network between simulated hosts: names, one link per direction, and the faults of links.

Every host has a location: a region's host its own, a client's host that of the region in which it runs. Two locations
are connected by one link per direction, and each location has a link to itself; links are created on first use.
Clients connect to hosts by name.

`cut`, `hold` and `heal` mean the same as in `emulator.runtimes.contract`; `emulator.simulation.link` describes their
effect on connections.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from emulator.config.link_shape import LinkShape
from emulator.simulation.connection import Endpoint
from emulator.simulation.link import NetworkSettings, Pipe, SegmentKind, SimulatedLink
from emulator.simulation.loop import HostLoop
from emulator.simulation.virtual_time import VirtualTime

LOCAL_ADDRESSES = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})
"""Names and addresses by which every host reaches itself, or listens."""
FIRST_FREE_PORT = 49_152


class SimulatedNetwork:
    def __init__(self, time: VirtualTime, random: Random, settings: NetworkSettings | None = None) -> None:
        self.time = time
        self.settings = settings or NetworkSettings()
        self._random = random
        self._hosts: dict[str, HostNetwork] = {}
        self._aliases: dict[str, str] = {}
        self._links: dict[tuple[str, str], SimulatedLink] = {}

    # Links and their faults.

    def link(self, source: str, target: str) -> SimulatedLink:
        """Return the link from one location to another, or the link within a location if both are the same."""
        link = self._links.get((source, target))
        if link is None:
            shape = self.settings.within_location if source == target else self.settings.between_locations
            link = self._links[source, target] = SimulatedLink(
                source, target, shape, self.settings, self._random
            )
        return link

    def shape(self, source: str, target: str, shape: LinkShape) -> None:
        """Set the shape of one direction, including its state, from now on."""
        self.link(source, target).shape = shape

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Drop all traffic from `source` to `target`, and back unless `one_way`."""
        self._set_state("cut", source, target, one_way)

    def hold(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Queue traffic from `source` to `target`, and back unless `one_way`; `heal` delivers it in order."""
        self._set_state("held", source, target, one_way)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo `cut` and `hold` in both directions between two locations, on all links of one location, or on
        all links."""
        for link in list(self._links.values()):
            ends = {link.source, link.target}
            named = (source is None or source in ends) and (target is None or target in ends)
            if named and link.state != "up":
                self._note(f"heal {link.source} -> {link.target}")
                link.set_state("up")

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two locations; both sides are notified at once."""
        self._note(f"reset {one} - {other}")
        for host in self._hosts.values():
            for endpoint in list(host.endpoints):
                if {host.location, self._hosts[endpoint.peer_name[0]].location} == {one, other}:
                    endpoint.reset()

    def _set_state(self, state: str, source: str, target: str, one_way: bool) -> None:
        self._note(f"{state} {source} -> {target}{'' if one_way else ' and back'}")
        self.link(source, target).set_state(state)
        if not one_way:
            self.link(target, source).set_state(state)

    def _note(self, what: str) -> None:
        self.time.trace.event(self.time.now, "network", what)

    # Hosts.

    def add_host(self, name: str, index: int, location: str) -> HostNetwork:
        assert name not in self._hosts, f"there is a host {name!r} already"
        assert name not in LOCAL_ADDRESSES, f"a host cannot be called {name!r}"
        host = self._hosts[name] = HostNetwork(self, name, index, location)
        return host

    def host(self, name: str) -> HostNetwork:
        """Return the host of this name. Raises OSError if there is none."""
        host = self._hosts.get(name)
        if host is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no simulated host is called {name!r}")
        return host

    def set_alias(self, name: str, host: str) -> None:
        """Let `name` resolve to `host` from now on. Open connections are unaffected."""
        self._aliases[name] = host

    def resolve(self, name: str) -> HostNetwork:
        """Return the host that a client reaches by this name. Raises OSError if there is none."""
        return self.host(self._aliases.get(name, name))

    def update_links(self, host: HostNetwork) -> None:
        """Update the links to a host whose machine was powered on or off."""
        for link in list(self._links.values()):
            if link.target == host.location:
                link.changed()


class HostNetwork:
    """One host's access to the network: implements `emulator.net.network.Network`."""

    def __init__(self, network: SimulatedNetwork, name: str, index: int, location: str) -> None:
        self.name = name
        self.index = index
        self.location = location
        self.settings = network.settings
        self.loop: HostLoop
        """The loop of the program's current incarnation. Set by the host."""
        self.machine_is_up = True
        self.endpoints: dict[Endpoint, None] = {}
        """The kernel's connections that are not closed, oldest first."""
        self._network = network
        self._servers: dict[int, SimulatedServer] = {}
        self._next_port = FIRST_FREE_PORT

    # Methods of emulator.net.network.Network.

    async def listen(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> SimulatedServer:
        if host not in LOCAL_ADDRESSES and host != self.name:
            raise OSError(errno.EADDRNOTAVAIL, f"host {self.name!r} cannot listen on the address of {host!r}")
        port = port or self._free_port()
        if port in self._servers:
            raise OSError(errno.EADDRINUSE, f"port {port} of host {self.name!r} is in use")
        server = self._servers[port] = SimulatedServer(self, protocol_factory, port)
        return server

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        network = self._network
        target = self if host in LOCAL_ADDRESSES else network.resolve(host)
        endpoint = Endpoint(self, (self.name, self._free_port()), (target.name, port))
        link, back = (
            network.link(self.location, target.location),
            network.link(target.location, self.location),
        )
        endpoint.pipe = Pipe(network.time, endpoint, target, link, back)
        endpoint.connecting = self.loop.create_future()
        endpoint.pipe.send(SegmentKind.SYN)
        try:
            await endpoint.connecting
            protocol = endpoint.transport.begin(protocol_factory)
        except BaseException:
            endpoint.abandon_connect()
            raise
        return endpoint.transport, protocol

    def round_trip_seconds(self, host: str) -> float:
        """Return the maximum round trip to a host while the links are up."""
        target, network = self._network.resolve(host), self._network
        ways = (
            network.link(self.location, target.location).shape,
            network.link(target.location, self.location).shape,
        )
        return sum(way.latency_ms + way.jitter_ms for way in ways) / 1000

    def _free_port(self) -> int:
        while True:
            port = self._next_port
            self._next_port = port + 1 if port < 65_535 else FIRST_FREE_PORT
            in_use = any(endpoint.socket_name[1] == port for endpoint in self.endpoints)
            if port not in self._servers and not in_use:
                return port

    # The kernel's half.

    def handle_syn(self, pipe: Pipe) -> None:
        """Handle a connection request; refuse it if no program listens. The kernel of a paused program responds,
        too."""
        initiator = pipe.sender
        assert isinstance(initiator, Endpoint)
        network = self._network
        endpoint = Endpoint(self, initiator.peer_name, initiator.socket_name)
        pipe.receiver = endpoint
        far_host = network.host(initiator.socket_name[0])
        endpoint.pipe = Pipe(network.time, endpoint, far_host, pipe.back, pipe.link)
        endpoint.pipe.receiver = initiator
        if initiator.peer_name[1] in self._servers:
            endpoint.pipe.send(SegmentKind.SYN_ACK)
        else:
            endpoint.refuse()

    def accept(self, endpoint: Endpoint) -> None:
        """Let the program accept a connection whose handshake is complete; refuse it if no program listens any more."""
        server = self._servers.get(endpoint.socket_name[1])
        if server is None:
            endpoint.refuse()
        else:
            self.loop.call_soon(endpoint.transport.begin, server.protocol_factory)

    def program_died(self, *, silently: bool) -> None:
        """End all connections and listeners of the killed program. `silently`: the machine lost power."""
        self._servers.clear()
        for endpoint in list(self.endpoints):
            endpoint.die(silently=silently)
        if silently:
            self.machine_is_up = False
            self._network.update_links(self)

    def power_on(self) -> None:
        if not self.machine_is_up:
            self.machine_is_up = True
            self._network.update_links(self)

    def server_closed(self, server: SimulatedServer) -> None:
        if self._servers.get(server.port) is server:
            del self._servers[server.port]


class SimulatedServer(asyncio.AbstractServer):
    """A port on which a program listens. Implements asyncio's Server and `emulator.net.network.Listener`."""

    def __init__(
        self, host: HostNetwork, protocol_factory: Callable[[], asyncio.Protocol], port: int
    ) -> None:
        self.port = port
        self.protocol_factory = protocol_factory
        self._host = host
        self._serving = True

    @property
    def sockets(self) -> tuple[_ListeningSocket, ...]:
        return (_ListeningSocket((self._host.name, self.port)),) if self._serving else ()

    def close(self) -> None:
        self._serving = False
        self._host.server_closed(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._host.loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        pass

    async def serve_forever(self) -> None:
        try:
            await self._host.loop.create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        pass


class _ListeningSocket(NamedTuple):
    """The part of a listening socket that programs use: its address."""

    address: tuple[str, int]

    def getsockname(self) -> tuple[str, int]:
        return self.address
