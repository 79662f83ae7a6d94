"""The simulated runtime: runs the regions of a topology in a World, beside processes and containers.

Verbs mean the same as in `runtimes.contract`, and return when their effect is complete, in virtual time. The main
program of the world calls them. No run directory is written before the world ends; the output of regions is discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from emulator.config.link_shape import LinkShape
from emulator.config.shapes import with_routes
from emulator.errors import Refused, RuntimeFailure, StorageError
from emulator.model.machine import ClockOffset, DiskCondition
from emulator.model.units import checked_drift_ppm
from emulator.model.values import CLIENTS
from emulator.run.record import LinkStatus, links_of
from emulator.runtimes.contract import Link, RegionState, RegionStatus, RunStatus
from emulator.simulation.host import HostDied, HostState
from emulator.simulation.world import ADMIN_PORT, SERVICE_PORT, World
from emulator.storage.configuration.memory import ConfigurationMemory

READY_SECONDS = 30.0
"""Virtual time that a region may take until it is ready."""

EMULATED_FIELDS = ("stall_every_ms", "stall_ms", "flap_period_ms", "flap_up", "frame_faults")
"""Fields of a link's shape that brokers emulate between regions; the simulated network has the others."""


class _Links:
    """The declared and the current shapes of a world's links.

    The simulated network carries bytes between regions with latency, jitter, bandwidth and state. Brokers emulate the
    rest by the code that ships: stalls, flapping and faults of frames between regions, and links to clients as a whole.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._declared = links_of(world.topology)
        self._routes = world.topology.routes
        self._own = dict(self._declared)
        """Shapes that links were given themselves."""
        self._shapes = dict(self._declared)
        """Shapes of all links; those of routed links follow their hops."""
        self._apply(self._shapes)

    def change(self, links: Iterable[Link], changes: Mapping[str, Any]) -> None:
        self._set({link: self._own[link].changed(changes) for link in self._known(links)})

    def heal(self, links: Iterable[Link] | None) -> None:
        self._set({link: self._declared[link] for link in self._known(links or self._declared)})

    def break_connections(self, links: Iterable[Link] | None, how: str) -> None:
        pairs = {frozenset(link): link for link in self._known(links or self._declared)}
        for source, target in pairs.values():
            for end, other in ((source, target), (target, source)):
                if end != CLIENTS:
                    self._world.regions[end].break_connections(other, how)

    def _set(self, shapes: Mapping[Link, LinkShape]) -> None:
        self._own.update(shapes)
        before = self._shapes
        self._shapes = with_routes(self._own, self._declared, self._routes)
        self._apply(
            {link: shape for link, shape in self._shapes.items() if link in shapes or shape != before[link]}
        )

    def _apply(self, shapes: Mapping[Link, LinkShape]) -> None:
        for (source, target), shape in shapes.items():
            if CLIENTS in (source, target):
                self._emulate(source, target, shape)
            else:
                self._world.simulation.network.shape(source, target, shape)
                emulated = {name: getattr(shape, name) for name in EMULATED_FIELDS}
                self._emulate(source, target, LinkShape(**emulated))

    def _emulate(self, source: str, target: str, shape: LinkShape) -> None:
        for end, other, outbound in ((source, target, True), (target, source, False)):
            if end != CLIENTS:
                self._world.regions[end].emulate_link(other, outbound=outbound, shape=shape)

    def are_up(self, one: str, other: str) -> bool:
        return self._shapes[one, other].state == self._shapes[other, one].state == "up"

    def status(self) -> tuple[LinkStatus, ...]:
        return tuple(
            LinkStatus(*link, shape, self._declared[link], self._routes.get(link, ()), self._own[link])
            for link, shape in self._shapes.items()
            if CLIENTS not in link or shape != self._declared[link]
        )

    def _known(self, links: Iterable[Link]) -> list[Link]:
        for source, target in links:
            if (source, target) not in self._shapes:
                raise Refused(f"no link {source} -> {target}: name two different regions")
        return list(links)


class _RegionStates:
    """The states of a world's regions, as a run reports them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.stopped = set(world.regions)
        """Regions that were never started, or that were running when they were stopped, and not started since."""
        self.lost: set[str] = set()
        """Regions that were lost and not started since."""

    def of(self, name: str) -> RegionState:
        region = self._world.regions[name]
        if not region.should_run:
            if name in self.lost:
                return "lost"
            return "stopped" if name in self.stopped else "killed"
        if region.host.state is HostState.PAUSED:
            return "paused"
        return "running" if region.is_up else "starting"

    def running(self) -> list[str]:
        return [name for name in self._world.regions if self.of(name) == "running"]

    def check_names(self, *regions: str) -> None:
        for region in regions:
            if region not in self._world.regions:
                known = ", ".join(self._world.regions)
                raise Refused(f"no region {region!r} in this run: regions are {known}")

    def refuse_paused(self, region: str) -> None:
        """Raise Refused if a region is paused, because processes cannot receive requests then, or not in the run."""
        self.check_names(region)
        if self.of(region) == "paused":
            raise Refused(f"{region} is paused and cannot receive requests: resume it first")


class SimulatedRuntime:
    """Implements `contract.Runtime`."""

    def __init__(self, world: World, run_dir: Path) -> None:
        self.topology = world.topology
        self.run_dir = run_dir
        self._world = world
        self._states = _RegionStates(world)
        self._links = _Links(world)
        self._ended = False

    async def up(self) -> None:
        self._states.stopped.clear()
        for region in self._world.regions.values():
            region.start()
        for name in self._world.regions:
            await self._wait_until_linked(name)

    async def down(self) -> None:
        await asyncio.gather(*map(self.stop, self._world.regions))
        self._ended = True

    async def start(self, region: str) -> None:
        self._states.check_names(region)
        if self._states.of(region) == "paused":
            raise Refused(f"{region} is paused: resume it")
        lost = self._lost_clusters()
        self._states.stopped.discard(region)
        self._states.lost.discard(region)
        self._world.start(region)
        await self._wait_until_linked(region)
        await self._declare_losses(lost)

    async def stop(self, region: str) -> None:
        self._states.check_names(region)
        self._world.resume(region)
        simulated = self._world.regions[region]
        if simulated.broker is not None:
            await simulated.host.ask(simulated.broker.stop())
        if simulated.should_run:
            self._states.stopped.add(region)
        simulated.kill()

    async def kill(self, region: str) -> None:
        self._states.check_names(region)
        self._world.kill(region)

    async def lose(self, region: str) -> None:
        await self.kill(region)
        self._states.lost.add(region)
        await self._declare_losses(self._lost_clusters())

    async def lose_store(self, cluster: str) -> None:
        running = [name for name in self._regions_of(cluster) if self._world.regions[name].should_run]
        if running:
            raise Refused(f"{', '.join(running)} of cluster {cluster} runs")
        self._world.configurations[cluster].memory = ConfigurationMemory()

    def _regions_of(self, cluster: str) -> list[str]:
        return [region.name for region in self.topology.regions if region.cluster == cluster]

    def _lost_clusters(self) -> set[str]:
        clusters = {region.cluster for region in self.topology.regions}
        return {cluster for cluster in clusters if self._states.lost.issuperset(self._regions_of(cluster))}

    async def _declare_losses(self, clusters: set[str]) -> None:
        """Declare in one region of each other cluster whether each of `clusters` is lost, as `runtimes.regions`
        does."""
        for cluster in sorted(clusters):
            is_lost = cluster in self._lost_clusters()
            for other in self.topology.clusters:
                up = [name for name in self._regions_of(other.name) if self._states.of(name) == "running"]
                if other.name == cluster or not up:
                    continue
                region = self._world.regions[up[0]]
                if region.broker is not None and region.broker.synchronizer is not None:
                    with suppress(StorageError, HostDied):
                        await region.host.ask(
                            region.broker.synchronizer.losses.declare(cluster, lost=is_lost)
                        )

    async def restart(self, region: str) -> None:
        await self.stop(region)
        await self.start(region)

    async def pause(self, region: str) -> None:
        self._states.check_names(region)
        self._world.pause(region)

    async def resume(self, region: str) -> None:
        self._states.check_names(region)
        self._world.resume(region)
        if self._states.of(region) in ("starting", "running"):
            await self._wait_until_linked(region)

    async def change_links(self, links: Sequence[Link], changes: Mapping[str, Any]) -> None:
        self._links.change(links, changes)

    async def break_connections(self, links: Sequence[Link], how: str) -> None:
        self._links.break_connections(links, how)

    async def skew(self, region: str, ahead_ms: int, drift_ppm: float = 0.0) -> None:
        self._states.refuse_paused(region)
        try:
            checked_drift_ppm(drift_ppm)
        except ValueError as problem:
            raise Refused(f"the drift of a clock {problem}, not {drift_ppm!r}") from None
        clock = self._world.regions[region].host.wall_clock_ms
        clock.correct()
        clock.jump(ahead_ms)
        clock.drift_ppm = drift_ppm

    async def disk(self, region: str, state: str, delay_ms: float | None = None) -> None:
        self._states.refuse_paused(region)
        try:
            condition = DiskCondition.of(state, delay_ms)
        except ValueError as problem:
            raise Refused(f"the disk of {region}: {problem}") from None
        self._world.regions[region].set_disk(condition)

    async def power_loss(self, region: str) -> None:
        self._states.refuse_paused(region)
        self._world.regions[region].lose_power()

    async def heal(self, links: Sequence[Link] | None = None) -> None:
        self._links.heal(links)
        self._links.break_connections(links, "normal")
        for name in self._states.running():
            await self._wait_until_linked(name)

    async def status(self) -> RunStatus:
        regions = []
        for name, cluster in ((region.name, region.cluster) for region in self.topology.regions):
            state, host = self._states.of(name), self._world.regions[name].host
            pid = None if state in ("stopped", "killed", "lost") else host.process_id
            urls = f"pulsar://{name}:{SERVICE_PORT}", f"http://{name}:{ADMIN_PORT}"
            clock = ClockOffset(round(host.wall_clock_ms.offset_ms), host.wall_clock_ms.drift_ppm)
            disk = self._world.regions[name].disk
            regions.append(RegionStatus(name, cluster, state, *urls, pid, disk=disk, clock=clock))
        return RunStatus(
            run_dir=self.run_dir,
            runtime="simulated",
            regions=tuple(regions),
            links=self._links.status(),
            ended=self._ended,
        )

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        nothing: tuple[str, ...] = ()
        for line in nothing:
            yield line

    # Waiting.

    async def _wait_until_linked(self, name: str) -> None:
        """Wait until a region serves and is linked with its running peers over links that are up, in both directions.
        Raises RuntimeFailure after READY_SECONDS."""

        def missing() -> list[str]:
            region = self._world.regions[name]
            if region.broker is None or not region.is_up:
                return [f"it is {self._states.of(name)}"]
            peers = [
                peer for peer in self._states.running() if peer != name and self._links.are_up(name, peer)
            ]
            waits: list[str] = [*region.broker.waiting_for(set(peers))]
            for peer in peers:
                broker = self._world.regions[peer].broker
                waits += broker.waiting_for({name}) if broker is not None else ()
            return waits

        try:
            await self._world.simulation.until(lambda: not missing(), within_seconds=READY_SECONDS)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} is not ready: {'; '.join(missing())} after {READY_SECONDS:g} virtual seconds"
            ) from None
