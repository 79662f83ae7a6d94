"""The part of the runtime contract that is the same for processes and containers.

Regions receive the states of their links, and report whether they are ready, on their admin ports. A runtime reports
which regions run; all other state is in the run record.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from emulator.config.link_shape import LinkShape
from emulator.config.topology import CONFIGURATION_FILE, Topology
from emulator.errors import Refused, RuntimeFailure
from emulator.model.machine import ClockOffset
from emulator.model.values import CLIENTS
from emulator.run.directory import RunDirectory, refuse_unknown
from emulator.run.links import change_links, refuse_unknown_link
from emulator.run.processes import ProcessState
from emulator.run.record import RunRecord, link_statuses, links_of
from emulator.runtimes.admin_client import (
    AdminExchange,
    NoHttpResponse,
    break_request,
    call,
    link_request,
    query_status,
)
from emulator.runtimes.contract import Link, RegionState, RegionStatus, RunStatus
from emulator.runtimes.region_machines import RegionMachines, States

READY_POLL_SECONDS = 0.05
READY_SECONDS = 30.0
"""Default of the time that a region may take until it is ready."""
NO_RESPONSE = "it does not respond"


class LinkedRegions(RegionMachines):
    """Changes links of a run that is recorded in a run directory, and waits until regions are ready."""

    def __init__(
        self,
        directory: RunDirectory,
        *,
        poll_seconds: float = READY_POLL_SECONDS,
        ready_seconds: float | None = None,
    ) -> None:
        super().__init__(directory, poll_seconds, ready_seconds or READY_SECONDS)

    @property
    def run_dir(self) -> Path:
        return self._directory.path

    @cached_property
    def topology(self) -> Topology:
        try:
            return Topology.from_json((self.run_dir / "topology.json").read_text())
        except (OSError, ValueError) as problem:
            raise Refused(
                f"{self.run_dir}/topology.json cannot be read ({problem}): start a new run"
            ) from problem

    @abstractmethod
    async def _describe_not_ready(self, name: str, state: ProcessState) -> str:
        """Return why a region whose program is in `state` is not ready, for an error message."""

    # --- links ------------------------------------------------------------------------------------------

    async def change_links(self, links: Sequence[Link], changes: Mapping[str, Any]) -> None:
        if "arm" in changes:  # a fault that was healed and is armed again is another one
            changes = {"arm": replace(changes["arm"], number=time.time_ns() // 1_000)}
        await self._set_links(links, lambda _, shape: shape.changed(changes))

    async def break_connections(self, links: Sequence[Link], how: str) -> None:
        with self._directory.edit() as record:
            for link in links:
                refuse_unknown_link(record, link)
        await self._send_break(links, how.replace("_", "-"))

    async def heal(self, links: Sequence[Link] | None = None) -> None:
        declared = links_of(self.topology)
        healed = list(declared if links is None else links)
        changed = await self._set_links(healed, lambda link, _: replace(declared[link], state="up"))
        await self._send_break(healed, "normal")
        between_regions = [link for link in changed if CLIENTS not in link]
        await asyncio.gather(*(self._wait_until_ready([a], peers=[b]) for a, b in between_regions))

    async def _send_break(self, links: Sequence[Link], connections: str) -> None:
        """Let both ends of each link break its open connections, or end half-open ones. Regions that do not run, or do
        not listen yet, have none."""
        pairs = {frozenset(link): link for link in links}.values()
        await asyncio.gather(
            *(self._break_at(end, link, connections) for link in pairs for end in _regions_of(link))
        )

    async def _break_at(self, end: str, link: Link, connections: str) -> None:
        region = self._directory.read().regions[end]
        request = break_request(link, connections)
        if not region.was_ready:
            with suppress(NoHttpResponse):
                await call(region, *request)
            return
        try:
            await self._apply(
                end, f"{connections} connections of link {link[0]} -> {link[1]}", lambda _: request
            )
        except RuntimeFailure:
            if connections != "normal":  # otherwise `heal` reports which links are not established
                raise

    async def _set_links(
        self, links: Sequence[Link], change: Callable[[Link, LinkShape], LinkShape]
    ) -> set[Link]:
        """Record the changed links and those that are routed over them, so that a region that starts meanwhile receives
        them, then send them to both ends. Return all of them. Raises Refused if a link is not in the run."""
        with self._directory.edit() as record:
            changed = change_links(record, self.topology, links, change)
            self._on_record_changed(record, {end for link in changed for end in _regions_of(link)})
        await asyncio.gather(*(self._send_link(end, link) for link in changed for end in _regions_of(link)))
        return changed

    # --- losses -----------------------------------------------------------------------------------------

    async def _announce_losses(self, clusters: Iterable[str]) -> None:
        """Announce to all other clusters whether each of these clusters is lost. A cluster without a running region
        receives the announcement with the next change."""
        record, states = self._directory.read(), await self._states()
        for cluster in clusters:
            method = "PUT" if cluster in lost_clusters(record) else "DELETE"
            target = f"/geoemu/v1/clusters/{quote(cluster, safe='')}/lost"
            for other in {region.cluster for region in record.regions.values()} - {cluster}:
                for name, region in record.regions.items():
                    if region.cluster != other or states[name] != "running":
                        continue
                    with suppress(NoHttpResponse):
                        await call(region, method, target)
                        break

    async def _resume_with_links(self, name: str, resume: Callable[[], Awaitable[None]]) -> None:
        """Resume a paused region, after the states of all its links were sent to its admin port; it receives them
        before other requests."""
        record = self._directory.read()
        region = record.regions[name]
        links = [link for link in record.links if name in link]
        exchanges = [AdminExchange(region) for _ in links]
        try:
            with suppress(NoHttpResponse):  # paused before it listened
                for exchange, link in zip(exchanges, links, strict=True):
                    await exchange.send(*link_request(link, record.links[link]))
            await resume()
            await asyncio.gather(*(self._send_link(name, link) for link in links))
        finally:
            for exchange in exchanges:
                exchange.close()

    async def _send_link(self, name: str, link: Link) -> None:
        """Send a link's recorded state until the region has applied it or does not run. Of two concurrent commands the
        later one wins everywhere, because the latest state is sent."""
        await self._apply(
            name,
            f"the state of link {link[0]} -> {link[1]}",
            lambda record: link_request(link, record.links[link]),
        )

    # --- ready ------------------------------------------------------------------------------------------

    async def _wait_until_linked(self, name: str) -> None:
        """Wait until a region is ready and linked with its running peers, in both directions."""
        await self._wait_until_ready([name])
        peers = running_peers(self._directory.read(), await self._states(), name)
        await self._wait_until_ready(peers, peers=[name])

    async def _wait_until_ready(self, names: Iterable[str], *, peers: Sequence[str] | None = None) -> None:
        """Wait until regions are ready and linked with all running peers, and record that they were ready. With
        `peers`, consider only links with these, skip regions that do not run, and record nothing. RuntimeFailure
        otherwise."""
        try:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(self._wait_until_one_ready(name, peers))
        except* RuntimeFailure as failures:
            raise RuntimeFailure("\n".join(map(str, failures.exceptions))) from None

    async def _wait_until_one_ready(self, name: str, peers: Sequence[str] | None) -> None:
        missing = NO_RESPONSE
        try:
            async with asyncio.timeout(self._ready_seconds):
                while True:
                    record, states = self._directory.read(), await self._states()
                    if (state := states[name]) != "running":
                        if peers is not None:
                            return
                        raise RuntimeFailure(await self._describe_not_ready(name, state))
                    expected = running_peers(record, states, name)
                    if peers is not None and not (expected := [peer for peer in expected if peer in peers]):
                        return
                    try:
                        report = await query_status(record.regions[name], expected)
                    except NoHttpResponse as failure:
                        if record.regions[name].tls is not None:  # it may have another certificate
                            missing = f"{NO_RESPONSE}: {failure}"
                    else:
                        if report.ready:
                            if peers is None:
                                with self._directory.edit() as record:
                                    record.regions[name].was_ready = True
                            return
                        missing = report.waiting_for
                    await asyncio.sleep(self._poll_seconds)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} is not ready after {self._ready_seconds:g} s ({missing}): "
                f"`geoemu logs {name}` shows its log"
            ) from None


class RecordedRuntime(LinkedRegions):
    """The verbs of the runtime contract that are the same for processes and containers."""

    @abstractmethod
    async def start(self, region: str) -> None: ...

    @abstractmethod
    async def stop(self, region: str) -> None: ...

    @abstractmethod
    async def kill(self, region: str) -> None: ...

    @abstractmethod
    async def down(self) -> None: ...

    @abstractmethod
    async def _start_all(self) -> None:
        """Start every region and wait until all are ready."""

    @abstractmethod
    async def _region_states(self, record: RunRecord) -> dict[str, tuple[RegionState, int | None, str]]:
        """Return the state of each region, the pid of its program (None: it has none), and what it waits for."""

    async def up(self) -> None:
        self._refuse_if_over(self._directory.read())
        try:
            await self._start_all()
        except BaseException:
            with suppress(RuntimeFailure):
                await self.down()
            raise

    async def lose(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown("region", region, record.regions)
            self._refuse_if_over(record)
            record.regions[region].lost = True
        await self.kill(region)
        await self._announce_losses(lost_clusters(self._directory.read()))

    async def restart(self, region: str) -> None:
        await self.stop(region)
        await self.start(region)

    async def status(self) -> RunStatus:
        record = self._directory.read()
        states = await self._region_states(record)
        regions = tuple(
            RegionStatus(
                name,
                region.cluster,
                state,
                region.service_url,
                region.admin_url,
                pid,
                waiting_for,
                region.disk,
                ClockOffset(region.clock_ahead_ms, region.clock_drift_ppm),
                region.tls,
                region.plain_service_url if region.tls else "",
                region.plain_admin_url if region.tls else "",
                region.credentials,
                region.control,
            )
            for name, region in record.regions.items()
            for state, pid, waiting_for in [states[name]]
        )
        links = link_statuses(record, self.topology)
        return RunStatus(self.run_dir, record.runtime, regions, links, record.ended)

    def _refuse_if_over(self, record: RunRecord) -> None:
        if record.ended:
            raise Refused(f"the run in {self.run_dir} has ended: start a new one with `geoemu up`")


def running_peers(record: RunRecord, states: States, name: str) -> list[str]:
    """Return the regions with which `name` should be linked now: regions that run and are not stopping, whose links are
    up in both directions."""
    return [
        peer
        for peer in record.regions
        if peer != name
        and record.links[name, peer].state == record.links[peer, name].state == "up"
        and states[peer] == "running"
        and not record.regions[peer].stopped
    ]


async def state_of_running(record: RunRecord, states: States, name: str) -> tuple[RegionState, str]:
    """Return the state of a region whose program runs, and what it waits for."""
    region = record.regions[name]
    try:
        report = await query_status(region, running_peers(record, states, name))
    except NoHttpResponse:
        return "starting", NO_RESPONSE
    return ("running" if report.ready or region.was_ready else "starting"), report.waiting_for


def forced_kill_failure(names: Sequence[str], seconds: float) -> RuntimeFailure:
    """Return the error for regions that did not stop gracefully and were killed."""
    return RuntimeFailure(
        f"{' and '.join(names)} did not end within {seconds:g} s and had to be killed: "
        f"`geoemu logs {names[0]}` shows its last log lines"
    )


def _regions_of(link: Link) -> list[str]:
    """Return the ends of a link that are regions: one or two."""
    return [end for end in link if end != CLIENTS]


def lost_clusters(record: RunRecord) -> frozenset[str]:
    """Return the clusters of which every region is lost."""
    surviving = {region.cluster for region in record.regions.values() if not region.lost}
    return frozenset(region.cluster for region in record.regions.values()) - surviving


def refuse_running(record: RunRecord, cluster: str, states: Mapping[str, ProcessState]) -> None:
    """Raise Refused if the cluster does not exist, or one of its regions runs or is paused."""
    in_cluster = [name for name, region in record.regions.items() if region.cluster == cluster]
    running = [name for name in in_cluster if states[name] != "gone"]
    if not in_cluster:
        raise Refused(f"no cluster {cluster!r} in this run")
    if running:
        raise Refused(
            f"{', '.join(running)} of cluster {cluster} runs: `geoemu lose --cluster {cluster}` first"
        )


def delete_store_copy(folder: Path) -> None:
    """Delete the copy of a cluster's configuration store in the run directory, because the store has changed or will
    change."""
    for file in folder.glob(f"{CONFIGURATION_FILE}*"):
        file.unlink(missing_ok=True)
