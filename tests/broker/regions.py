"""Regions with memory stores inside the test's event loop; clients run in the same loop.

Regions use real sockets and clocks, or in a test with the fixture `simulation` the simulated network and virtual time.
Then waits for timers take no time, and bounds in seconds hold on any machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from emulator.broker.environment import Environment
from emulator.broker.links.emulation import EmulatedLink, EmulatedNetwork
from emulator.broker.region import Region
from emulator.client import Client, ClientSettings
from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, PeerConfig, RegionConfig
from emulator.config.security import NO_SECURITY, SecurityConfig
from emulator.net.network import Network, SocketNetwork
from emulator.net.tls import TlsNetwork
from emulator.simulation.loop import HostLoop
from emulator.storage.configuration.memory import ConfigurationMemory, MemoryConfiguration
from emulator.storage.memory import MemoryDisk, MemoryStore

if TYPE_CHECKING:
    from emulator.simulation.world import World

DEADLINE_SECONDS = 10
RUN_SECRET = "known to the regions of a test"
FAST = BrokerSettings(snapshot_interval_ms=50, peer_reconnect_backoff_ms=5, failover_delay_ms=20)
QUICK = ClientSettings(backoff_seconds=0.01, backoff_seconds_max=0.1)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Surroundings(NamedTuple):
    """The network, wall clock and ports of regions: real or simulated."""

    network: Callable[[], Network] = SocketNetwork
    wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    free_port: Callable[[], int] = free_port

    @classmethod
    def here(cls) -> Surroundings:
        """Return those of the running program: simulated ones in a test that runs under virtual time."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, HostLoop):
            return cls()
        host, ports = loop.owner, itertools.count(1_024)
        return cls(lambda: host.network, host.wall_clock_ms, lambda: next(ports))


class Regions:
    """Several regions that a test crashes and starts by name; each keeps its disk and port."""

    def __init__(
        self,
        names: Sequence[str],
        settings: BrokerSettings,
        *,
        deduplication: bool,
        of_region: Mapping[str, Mapping[str, object]],
        clusters: Mapping[str, str],
        compatibility: Mapping[str, str],
        surroundings: Surroundings,
    ) -> None:
        self.names = list(names)
        self.surroundings = surroundings
        self.clusters = {name: clusters.get(name, "test") for name in names}
        self.settings = {
            name: replace(settings, **of_region.get(name, {}))  # type: ignore[arg-type]
            for name in names
        }
        self.deduplication = deduplication
        self.compatibility = compatibility
        self.disks = {name: MemoryDisk() for name in names}
        self.configurations = {cluster: ConfigurationMemory() for cluster in self.clusters.values()}
        """Configuration stores by cluster."""
        self.skews_ms = dict.fromkeys(names, 0)
        """Offset of each region's wall clock."""
        self.security: dict[str, SecurityConfig] = {}
        """Security of single regions, from their next start on; by default none."""
        self.ports: dict[str, int] = {}
        self.ports_tls: dict[str, int] = {}
        """Ports with TLS, of regions whose security has it."""
        self.running: dict[str, Region] = {}
        self.links: dict[tuple[str, str], EmulatedLink] = {}

    async def start(self, name: str, **changes: object) -> Region:
        """Start one region with its former disk and port. `changes` override its settings until the next start."""
        network, chance = self.surroundings.network(), random.Random(1)
        config = self._config(name)
        config = replace(config, settings=replace(config.settings, **changes))  # type: ignore[arg-type]
        by_address = {}
        for peer in config.peers:
            link = self.links.setdefault(
                (name, peer.region), EmulatedLink(peer.outbound, peer.inbound, chance)
            )
            link.connections.clear()
            by_address[peer.address] = link
        self.disks[name].owner = None
        tls = config.security.tls
        tls_network = None if tls is None else TlsNetwork(tls.files, tls.client_certificates)
        environment = Environment(
            wall_clock_ms=lambda: self.surroundings.wall_clock_ms() + self.skews_ms[name],
            random=chance,
            network=network,
            peer_network=EmulatedNetwork(tls_network or network, by_address),
            tls_network=tls_network,
            store=await MemoryStore.open(self.disks[name], name),
            configuration=MemoryConfiguration(self.configurations[self.clusters[name]]),
        )
        region = Region(config, environment)
        if tls_network is not None:
            tls_network.note_refusal = region.resources.refused_authentications.note_handshake
        await region.start()
        self.running[name] = region
        return region

    def _config(self, name: str) -> RegionConfig:
        namespace = NamespaceConfig("public/default", tuple(self.names), self.deduplication)
        return RegionConfig(
            region=name,
            cluster=self.clusters[name],
            service_port=self.ports[name],
            service_port_tls=self.ports_tls.get(name, 0),
            log=LogConfig("memory"),
            settings=self.settings[name],
            namespaces=(namespace,),
            compatibility=dict(self.compatibility),
            run_secret=RUN_SECRET,
            security=self.security.get(name, NO_SECURITY),
            peers=tuple(
                PeerConfig(
                    other,
                    self.clusters[other],
                    "127.0.0.1",
                    self.ports[other],
                    port_tls=self.ports_tls.get(other, 0),
                )
                for other in self.names
                if other != name
            ),
        )

    async def start_all(self) -> None:
        for name in self.names:
            self.ports[name] = self.surroundings.free_port()
            if self.security.get(name, NO_SECURITY).tls is not None:
                self.ports_tls[name] = self.surroundings.free_port()
        for name in self.names:
            await self.start(name)
        await until(lambda: all(self.is_ready(name) for name in self.names))

    def is_ready(self, name: str) -> bool:
        return not self.running[name].waiting_for(set(self.names))

    async def stop(self, name: str) -> None:
        """Stop a region gracefully. Assert that it holds no memory for clients once they have disconnected (FC1)."""
        region = self.running.pop(name)
        await region.stop()
        await until(lambda: not region.clients.connections and region.resources.clients.held_bytes == 0)

    async def crash(self, name: str) -> None:
        """Stop a region abruptly: everything that is not on its disk is lost, and all connections are aborted."""
        region = self.running.pop(name)
        region.store.crash()  # type: ignore[attr-defined]
        region.clients.ports.stop_listening()
        for peer in region.peers.values():
            peer.close()
        for connection in list(region.clients.connections):
            connection.abort()
        region._tasks.close()
        region.directory.close()
        region.housekeeper.close()

    def client(self, name: str, *others: str, settings: ClientSettings = QUICK) -> Client:
        urls = [f"pulsar://127.0.0.1:{self.ports[one]}" for one in (name, *others)]
        network, clock = self.surroundings.network(), self.surroundings.wall_clock_ms
        return Client(urls, settings=settings, network=network, wall_clock_ms=clock, chance=random.Random(2))

    def cut(self, one: str, other: str, state: str = "cut") -> None:
        """Set both directions of the link between two regions to `state`, in the connections of both regions."""
        for here, there in ((one, other), (other, one)):
            self.links[here, there].set(outbound=True, state=state)
            self.links[here, there].set(outbound=False, state=state)

    def heal(self, one: str, other: str) -> None:
        self.cut(one, other, "up")


@contextlib.asynccontextmanager
async def regions(
    *names: str,
    settings: BrokerSettings = FAST,
    deduplication: bool = True,
    of_region: Mapping[str, Mapping[str, object]] | None = None,
    clusters: Mapping[str, str] | None = None,
    compatibility: Mapping[str, str] | None = None,
    surroundings: Surroundings | None = None,
    security: Mapping[str, SecurityConfig] | None = None,
    **changes: object,
) -> AsyncIterator[Regions]:
    """Start regions that replicate public/default between each other, and wait until they are ready. `changes`:
    settings of all regions; `of_region`: settings of single regions; `clusters`: region -> cluster, by default "test";
    `surroundings`: by default those of the test, which are real unless it has the fixture `simulation`."""
    made = Regions(
        names,
        replace(settings, **changes),  # type: ignore[arg-type]
        deduplication=deduplication,
        of_region=of_region or {},
        clusters=clusters or {},
        compatibility=compatibility or {},
        surroundings=surroundings or Surroundings.here(),
    )
    made.security.update(security or {})
    try:
        await made.start_all()
        yield made
    finally:
        for name in list(made.running):
            await made.stop(name)


async def until(condition: Callable[[], bool], deadline_seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until a condition of this process holds. Raises TimeoutError at the deadline."""
    async with asyncio.timeout(deadline_seconds):
        while not condition():
            await asyncio.sleep(0.002)


def broker_of(world: World, region: str = "us") -> Region:
    """Return the broker of a running region of a simulated world."""
    broker = world.regions[region].broker
    assert broker is not None
    return broker
