"""A simulated region: a production broker on its own simulated host, with parts that tests may replace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from emulator.broker.admin.server import Admin
from emulator.broker.components import SHIPPED, Components
from emulator.broker.environment import Environment
from emulator.broker.links.emulation import EmulatedLink, EmulatedNetwork
from emulator.broker.metadata.config_changelog import ConfigChangelog
from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.client import Client
from emulator.config.link_shape import LinkShape
from emulator.config.region import RegionConfig
from emulator.errors import StorageError
from emulator.model.frame_faults import FrameFault
from emulator.model.machine import HEALTHY, DiskCondition
from emulator.model.values import CLIENTS
from emulator.simulation.configuration import SimulatedConfiguration
from emulator.simulation.disk import SimulatedDisk
from emulator.simulation.durable_media import DiskFaults, Medium
from emulator.simulation.host import Host, HostState
from emulator.simulation.remote_log import RemoteFaults, RemoteLog
from emulator.simulation.simulation import Simulation
from emulator.simulation.stored_messages import scan_once
from emulator.storage.faulty import FaultyStore, with_faults

RESTART_SECONDS = 0.5
"""Delay after which a region that ended by itself is started again."""
SIMULATED = SHIPPED.with_replaced(scan_entry=scan_once)


@dataclass(frozen=True, slots=True)
class Overrides:
    """The classes and components from which a world builds its regions and clients."""

    components: Components = SIMULATED
    """Replaceable components of the broker; by default those that ship, with a cached `scan_entry`."""
    topic: type[Topic] = Topic
    disk: type[SimulatedDisk] = SimulatedDisk
    remote_log: type[RemoteLog] = RemoteLog
    client: type[Client] = Client
    """The client class of all programs."""

    def with_parts(self, **changes: Any) -> Overrides:
        """Return a copy in which `changes` replace broker components, by their fields in Components."""
        return replace(self, components=self.components.with_replaced(**changes))


AS_SHIPPED = Overrides()


class SimulatedRegion:
    """One region: a host, a medium that outlives its program (a disk or a remote log), and the current broker.
    A region with a remote log may be started on another host while it runs; then it has former hosts, too."""

    def __init__(
        self,
        config: RegionConfig,
        faults: DiskFaults | None,
        simulation: Simulation,
        configuration: SimulatedConfiguration,
        overrides: Overrides,
    ) -> None:
        """`faults` are those of the medium; RemoteFaults give the region a remote log. `configuration` is the store of
        its cluster."""
        self.name = config.region
        self.config = config
        self.host = simulation.host(config.region)
        self.medium: Medium
        self.former_hosts: list[Host] = []
        """Hosts on which the region ran before `replace`. Their programs must detect the takeover and end."""
        self.broker: Region | None = None
        """The broker; None while the region recovers or is down."""
        self.disk = HEALTHY
        """State of the region's disk, which restarts do not change. Set by `set_disk`."""
        self.should_run = False
        """Whether the region was started, and neither killed nor stopped by an admin call since. If its program ends by
        itself, it is started again."""
        self._simulation = simulation
        self._configuration = configuration
        self.config_changes: list[str] = []
        """Lines of the region's `metadata.jsonl` (`broker.metadata.config_changelog`)."""
        self._link_shapes: dict[tuple[str, bool], LinkShape] = {}
        """(other region or clients, whether outbound) -> shape, if it was changed."""
        self.links: dict[str, EmulatedLink] = {}
        """The links of the current program."""
        self._overrides = overrides
        if isinstance(faults, RemoteFaults):
            self.medium = simulation.remote_log(config.region, faults, type_=self._overrides.remote_log)
            self._notify_log_of_kills(self.host)
        else:
            self.medium = simulation.disk(config.region, faults, type_=self._overrides.disk)

    @property
    def is_up(self) -> bool:
        return self.broker is not None and self.host.state is HostState.UP

    @property
    def running_former_hosts(self) -> list[Host]:
        """Former hosts whose programs have not ended."""
        return [host for host in self.former_hosts if host.state is not HostState.DOWN]

    def backlog(self, topic: str, subscription: str) -> int | None:
        """Return the backlog of a subscription in messages. None if the region is down or the topic or subscription is
        not loaded."""
        loaded = self.broker.directory.serving.get(topic) if self.broker is not None else None
        found_subscription = loaded.subscriptions.get(subscription) if loaded is not None else None
        return None if found_subscription is None else found_subscription.backlog()

    def start(self) -> None:
        """Start the region, which recovers from its medium. No effect while `should_run`."""
        if not self.should_run:
            self.should_run = True
            self.host.start(self._serve(self.host), name=f"region {self.name}")

    def kill(self, *, power_off: bool = False) -> None:
        """Kill the region with SIGKILL. With `power_off` the machine loses power, and peers receive no reset."""
        self.should_run = False
        self.broker = None
        if power_off:
            self.host.power_off()
        else:
            self.host.kill()

    def lose_power(self) -> None:
        """Kill the region as a power loss does: its disk keeps only what is synced. A remote log is not affected."""
        if isinstance(self.medium, SimulatedDisk):
            self.medium.lose_power()
        self.kill()

    def set_disk(self, condition: DiskCondition) -> None:
        """Begin or end a fault of the disk, now or when the region starts."""
        self.disk = condition
        if self.broker is not None:
            store = self.broker.store
            assert isinstance(store, FaultyStore)
            self.host.loop.call_soon(store.set_condition, condition)

    def replace(self) -> None:
        """Start the region on another host, as an operator does who believes that it is dead. Its name resolves to the
        new host; the former host keeps running."""
        assert isinstance(self.medium, RemoteLog), f"no other region can use the disk of region {self.name!r}"
        self.former_hosts.append(self.host)
        self.host = self._simulation.host(f"{self.name}~{len(self.former_hosts)}", location=self.name)
        self._simulation.network.set_alias(self.name, self.host.name)
        self._notify_log_of_kills(self.host)
        self.broker = None
        self.should_run = False
        self.start()

    def pause(self) -> None:
        self.host.pause()

    def resume(self) -> None:
        """Resume the region, and all its former hosts."""
        for host in (self.host, *self.former_hosts):
            host.resume()

    def _notify_log_of_kills(self, host: Host) -> None:
        log = self.medium
        assert isinstance(log, RemoteLog)
        host.on_kill(lambda: log.program_died(host.loop))

    # Links that the broker itself emulates.

    def emulate_link(self, other: str, *, outbound: bool, shape: LinkShape) -> None:
        """Set the shape of one direction of the link to another region, or to the clients, which the broker emulates
        beside the simulated network; also for later programs of the region."""
        if shape == self._link_shapes.get((other, outbound), LinkShape()):
            return
        self._link_shapes[other, outbound] = shape
        if other in self.links and self.host.state is not HostState.DOWN:
            self.host.loop.call_soon(partial(self.links[other].set_shape, shape, outbound=outbound))

    def set_frame_faults(self, other: str, faults: tuple[FrameFault, ...], *, outbound: bool) -> None:
        """Arm exactly these faults on one direction of a link, also for later programs, which count anew."""
        shape = self._link_shapes.get((other, outbound), LinkShape())
        self.emulate_link(other, outbound=outbound, shape=replace(shape, frame_faults=faults))

    def break_connections(self, other: str, connections: str) -> None:
        """Reset the open connections of a link that this region emulates (`reset`), make them half-open (`half_open`),
        or reset half-open ones (`normal`)."""
        if other in self.links and self.host.state is not HostState.DOWN:
            link = self.links[other]
            changes = {"reset": link.reset, "half_open": link.make_half_open, "normal": link.end_half_open}
            self.host.loop.call_soon(changes[connections])

    def _new_link(self, other: str, host: Host) -> EmulatedLink:
        outbound, inbound = (self._link_shapes.get((other, way), LinkShape()) for way in (True, False))
        return EmulatedLink(outbound, inbound, host.random, clients=other == CLIENTS)

    async def _serve(self, host: Host) -> None:
        """Run the region as `broker.main` does: recover, serve until it is fenced or stopped, then end the program. A
        StorageError during recovery ends the program, too."""
        try:
            broker, admin = await self._recover(host)
        except StorageError:
            self._schedule_exit(host)
            return
        if host is self.host:
            self.broker = broker
        await broker.end.wait()
        if host is self.host and not broker.end.is_fenced:
            self.should_run = False  # ended by an admin call: it stays down until it is started
        admin.close()
        await broker.stop()
        self._schedule_exit(host)

    async def _recover(self, host: Host) -> tuple[Region, Admin]:
        network = host.network
        links = {
            name: self._new_link(name, host)
            for name in (*(peer.region for peer in self.config.peers), CLIENTS)
        }
        if host is self.host:
            self.links = links
        by_address = {(peer.host, peer.port): links[peer.region] for peer in self.config.peers}
        draws = self._simulation.random(f"disk of {host.name} in life {host.incarnation}")
        store = with_faults(await self.medium.open_store(), draws)
        environment = Environment(
            wall_clock_ms=host.wall_clock_ms,
            random=host.random,
            network=network,
            peer_network=EmulatedNetwork(network, by_address, network.round_trip_seconds),
            client_link=links[CLIENTS],
            store=store,
            configuration=self._configuration.open_on(host),
            components=self._overrides.components,
        )
        broker = Region(self.config, environment, topic_type=self._overrides.topic)
        for link in links.values():
            link.note_frame_faults(partial(broker.resources.protocol_events.note, "frame_fault"))
        await broker.start()
        store.set_condition(self.disk)
        ConfigChangelog(self.config_changes.append, self.name, environment).follow(broker.metadata)
        admin = Admin(broker, links)
        await admin.start()
        return broker, admin

    def _schedule_exit(self, host: Host) -> None:
        """Kill the host whose program has ended, and after RESTART_SECONDS restart the region if it `should_run` and
        was not replaced."""
        incarnation = host.incarnation

        def end_host() -> None:
            if host.incarnation == incarnation and host.state is not HostState.DOWN:
                host.kill()
                if host is self.host:
                    self.broker = None
                    self._simulation.at(self._simulation.now + RESTART_SECONDS, restart)

        def restart() -> None:
            if self.should_run and host is self.host and host.incarnation == incarnation:
                host.start(self._serve(host), name=f"region {self.name}")

        self._simulation.at(self._simulation.now, end_host)
