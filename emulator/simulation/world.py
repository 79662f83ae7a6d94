"""Regions, clients and the links between them in virtual time: the environment of protocol tests.

    with world("us", "eu", seed=7) as w:

        async def main() -> None:
            us, eu = w.client("us"), w.client("eu")
            producer = await us.producer("orders")
            await producer.send(b"hello")
            w.cut("us", "eu")
            ...
            w.heal()
            await w.quiet()

        w.play(main())

Virtual time passes when no host has ready callbacks. Regions are the production brokers, each on its own host and disk,
or with `disk=RemoteFaults()` on a remote log. Clients are `emulator.client`, each on its own host, by default at the
location of its region. The main program runs on a host without faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from emulator.client import Client, ClientSettings
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionPorts, RegionSpec, Topology, region_config
from emulator.model.frame_faults import FrameFault
from emulator.model.stored_keys import CursorKey, CursorPartKey
from emulator.net.http import RESPONSE_SECONDS, HttpResponse, call
from emulator.simulation.configuration import SimulatedConfiguration
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.host import DRIVER, Host
from emulator.simulation.region import AS_SHIPPED, Overrides, SimulatedRegion
from emulator.simulation.remote_log import RemoteLog
from emulator.simulation.simulation import Simulation
from emulator.simulation.stored_messages import ReplicationRules

T = TypeVar("T")

SERVICE_PORT = 6650
ADMIN_PORT = 8080
NAMESPACE = "public/default"
QUIET_SECONDS_MAX = 120.0
STILL_SECONDS = 1.0
"""Time for which the `fingerprint` must not change before a world counts as quiet."""
CLIENT_SETTINGS = ClientSettings(
    connect_timeout_seconds=2.0,
    request_timeout_seconds=5.0,
    keep_alive_interval_seconds=2.0,
    backoff_seconds=0.05,
    backoff_seconds_max=1.0,
    send_timeout_seconds=None,
    asks_for_partitions=False,
)
"""Settings for topics without partitions: clients do not request partition metadata."""


def simple_topology(
    names: Sequence[str],
    *,
    settings: BrokerSettings | None = None,
    deduplication: bool = True,
    link: LinkShape | None = None,
) -> Topology:
    """Return a topology of one cluster whose regions replicate one namespace over links of the same shape."""
    chosen = settings or BrokerSettings()
    regions = tuple(
        RegionSpec(name, "world", host=name, service_port=SERVICE_PORT, settings=chosen) for name in names
    )
    shape = link or LinkShape(latency_ms=20.0, jitter_ms=1.0)
    return Topology(
        name="world",
        path=Path("topology.yaml"),
        clusters=(ClusterSpec("world", regions),),
        links=tuple(LinkSpec(one, other, shape) for one in names for other in names if one != other),
        namespaces=(NamespaceConfig(NAMESPACE, tuple(names), deduplication),),
    )


class World:
    """The simulated regions and links of a topology. Close it, or use it as a context manager."""

    def __init__(
        self,
        topology: Topology,
        seed: int | str = 0,
        *,
        disk: DiskFaults | None = None,
        disks: Mapping[str, DiskFaults] | None = None,
        client_settings: ClientSettings = CLIENT_SETTINGS,
        simulation: Simulation | None = None,
        overrides: Overrides = AS_SHIPPED,
    ) -> None:
        """`disks` replace `disk` for single regions. RemoteFaults give a region a remote log."""
        self.topology = topology
        self.overrides = overrides
        self.simulation = simulation = simulation or Simulation(seed)
        self.client_settings = client_settings
        ports = {region.name: RegionPorts(SERVICE_PORT, ADMIN_PORT) for region in topology.regions}
        run_secret = f"{simulation.random('secret of the run').getrandbits(256):064x}"

        def later(seconds: float, action: Callable[[], None]) -> None:
            simulation.at(simulation.now + seconds, action)

        self.configurations = {
            cluster.name: SimulatedConfiguration(simulation.random(f"configuration {cluster.name}"), later)
            for cluster in topology.clusters
        }
        """The configuration store of each cluster."""
        self.regions: dict[str, SimulatedRegion] = {}
        for region in topology.regions:
            config = region_config(
                topology,
                region.name,
                ports,
                region_dir=Path(region.name),
                bind_host="0.0.0.0",
                run_secret=run_secret,
            )
            faults = (disks or {}).get(region.name, disk)
            self.regions[region.name] = SimulatedRegion(
                config, faults, simulation, self.configurations[config.cluster], overrides
            )
        for link in topology.links:
            simulation.network.shape(link.source, link.target, link.shape)
        self.replication_rules = ReplicationRules(topology.namespaces)
        self._frame_faults: dict[tuple[str, str], tuple[FrameFault, ...]] = {}
        """(source, target) -> armed faults of frames."""
        self._clients = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the simulation: all programs end."""
        self.simulation.close()

    def play(self, main: Coroutine[Any, Any, T], *, within_seconds: float = 3600.0) -> T:
        """Start every region, wait until they are ready, then run `main` until it ends, and return its result."""

        async def with_regions() -> T:
            for region in self.regions.values():
                region.start()
            await self.ready()
            return await main

        return self.simulation.run(with_regions(), within_seconds=within_seconds)

    # Faults.

    def start(self, region: str) -> None:
        self.regions[region].start()

    def kill(self, region: str) -> None:
        """Kill the region with SIGKILL."""
        self.regions[region].kill()

    def power_off(self, region: str) -> None:
        """Power off the region's machine. Its peers must detect it by timeouts."""
        self.regions[region].kill(power_off=True)

    def pause(self, region: str) -> None:
        self.regions[region].pause()

    def resume(self, region: str) -> None:
        self.regions[region].resume()

    def replace(self, region: str) -> None:
        """Start the region a second time, on another host with the same remote log; the former host keeps running."""
        self.regions[region].replace()

    def remote_log(self, region: str) -> RemoteLog:
        """Return the remote log of a region that has one."""
        log = self.regions[region].medium
        assert isinstance(log, RemoteLog), f"region {region!r} has a disk of its own"
        return log

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Drop all traffic from `source` to `target`, and back unless `one_way`."""
        self.simulation.network.cut(source, target, one_way=one_way)

    def hold(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Queue traffic from `source` to `target`, and back unless `one_way`, until `heal`."""
        self.simulation.network.hold(source, target, one_way=one_way)

    def arm(self, source: str, target: str, *faults: FrameFault) -> None:
        """Arm faults of frames on the link from `source` to `target`, besides those that are armed."""
        self._set_frame_faults(source, target, (*self._frame_faults.get((source, target), ()), *faults))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo `cut`, `hold` and `arm`, between two regions or everywhere."""
        self.simulation.network.heal(source, target)
        for link in list(self._frame_faults):
            if source is None or target is None or {source, target} == set(link):
                self._set_frame_faults(*link, ())

    def _set_frame_faults(self, source: str, target: str, faults: tuple[FrameFault, ...]) -> None:
        """Both regions count: each one the frames of the connections that it opened."""
        self._frame_faults[source, target] = faults
        self.regions[source].set_frame_faults(target, faults, outbound=True)
        self.regions[target].set_frame_faults(source, faults, outbound=False)

    # Clients.

    def client_host(self, name: str, location: str) -> Host:
        return self.simulation.host(name, location)

    def client(
        self, region: str, *others: str, settings: ClientSettings | None = None, location: str | None = None
    ) -> Client:
        """Create a client for the main program, at `location` or the first region. It may use `others` as fail-over
        regions. It runs on the driver, so it cannot be killed."""
        self._clients += 1
        host = self.client_host(f"client-{self._clients}", location or region)
        host.network.loop = self.simulation.host(DRIVER).loop
        return self.client_on(host, (region, *others), settings)

    def client_on(
        self,
        host: Host,
        regions: Sequence[str],
        settings: ClientSettings | None = None,
        *,
        transaction_key: str | None = None,
        instance: str = "",
    ) -> Client:
        """Create a client for a program on `host`. `instance` distinguishes the clients that a program creates in one
        incarnation."""
        urls = [f"pulsar://{region}:{SERVICE_PORT}" for region in regions]
        chance = self.simulation.random(f"client {host.name} {host.incarnation}{instance and f' {instance}'}")
        return self.overrides.client(
            urls,
            network=host.network,
            settings=settings or self.client_settings,
            chance=chance,
            wall_clock_ms=host.wall_clock_ms,
            transaction_key=transaction_key,
        )

    async def ask_admin(
        self,
        region: str,
        method: str,
        target: str,
        body: Any = None,
        *,
        host: Host | None = None,
        seconds: float = RESPONSE_SECONDS,
    ) -> HttpResponse:
        """Call a region's HTTP port from `host`, by default from a new one beside it. Raises NoHttpResponse if the
        region is down or does not respond within `seconds`."""
        if host is None:
            self._clients += 1
            host = self.client_host(f"admin-{self._clients}", region)
            host.network.loop = self.simulation.host(DRIVER).loop
        return await call(host.network, region, ADMIN_PORT, method, target, body, seconds=seconds)

    # Waiting.

    async def ready(self, within_seconds: float = QUIET_SECONDS_MAX) -> None:
        """Wait until every region serves and is linked with all others. Raises TimeoutError after `within_seconds`."""
        await self.simulation.until(self.is_ready, within_seconds=within_seconds)

    def is_ready(self, *, without: Collection[str] = ()) -> bool:
        """Return whether all regions except those in `without` serve and are linked with each other."""
        names = set(self.regions) - set(without)
        return all(
            region.is_up and region.broker is not None and not region.broker.waiting_for(names)
            for region in (self.regions[name] for name in names)
        )

    async def quiet(self, within_seconds: float = QUIET_SECONDS_MAX) -> None:
        """Wait until all messages are replicated and the `fingerprint` no longer changes. Raises TimeoutError, which
        names the region or replicator that is not quiet."""
        deadline = self.simulation.now + within_seconds
        before: object = None
        while (now := fingerprint(self.regions)) != before or why_not_quiet(self.regions):
            if self.simulation.now >= deadline:
                raise TimeoutError(
                    f"not quiet within {within_seconds:g} virtual seconds: {why_not_quiet(self.regions)}"
                )
            before = now
            await asyncio.sleep(STILL_SECONDS)


def fingerprint(regions: Mapping[str, SimulatedRegion]) -> object:
    """Return a value that changes when an entry is appended, or a cursor is stored or deleted, in any region."""
    return [
        (
            [(name, log.next_entry_id) for name, log in sorted(region.medium.logs.items())],
            [
                (key, versioned.version)
                for key, versioned in sorted(region.medium.values.items())
                if key.startswith((CursorKey.prefix(), CursorPartKey.prefix()))
            ],
        )
        for region in regions.values()
    ]


def why_not_quiet(regions: Mapping[str, SimulatedRegion]) -> str:
    """Return a sentence about a region that is down, a topic to load, or a backlog to replicate; empty if none."""
    for name, region in regions.items():
        if region.broker is None or not region.is_up:
            return f"region {name} is down"
        directory = region.broker.directory
        if directory.owing:
            return f"{name} has not opened {', '.join(directory.owing)} yet"
        for topic in directory.serving.values():
            for remote, replicator in topic.replicators.items():
                if replicator.backlog:
                    return f"{name} still has {replicator.backlog} entries of {topic.full_name} for {remote}"
    return ""


@contextmanager
def world(
    *names: str,
    seed: int | str = 0,
    settings: BrokerSettings | None = None,
    deduplication: bool = True,
    link: LinkShape | None = None,
    disk: DiskFaults | None = None,
) -> Iterator[World]:
    """Create a World of regions with these names, which replicate public/default, and close it afterwards."""
    topology = simple_topology(names, settings=settings, deduplication=deduplication, link=link)
    made = World(topology, seed, disk=disk)
    try:
        yield made
    finally:
        made.close()
