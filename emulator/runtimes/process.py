"""Regions as plain processes of this machine, with nothing to install and nothing left behind.

What a region is doing is asked of the system and of the region itself, every time; `run.json` only remembers
what was started and what was wished for. So it makes no difference which terminal a verb is typed in, or
whether `kill` was used by hand.

A region ends by itself when the program that owns the run is gone, unless the run was detached.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from emulator.config.region import RegionConfig
from emulator.config.topology import CONFIGURATION_FILE, Topology, region_config
from emulator.errors import Refused, RuntimeFailure
from emulator.run.directory import (
    RunDirectory,
    RunRecord,
    claim_new_run,
    link_statuses,
    links_of,
    region_record,
    write_whole,
)
from emulator.run.lost_stores import put_aside
from emulator.run.processes import identify, state_of
from emulator.runtimes import region_kafka
from emulator.runtimes.admin_client import NoHttpResponse
from emulator.runtimes.contract import RegionState, RegionStatus, RunStatus
from emulator.runtimes.listening import with_addresses
from emulator.runtimes.ports import WantedPort, choose_ports
from emulator.runtimes.recorded_run import RecordedRun
from emulator.runtimes.region_process import (
    BROKER,
    apart_from_other_runs,
    new_run_secret,
    new_run_token,
    output_log,
)
from emulator.runtimes.region_processes import RegionProcesses
from emulator.runtimes.regions import LinkedRegions, ask, lost_clusters, refuse_living, refuse_unknown

READY_POLL_SECONDS = 0.02
LOG_POLL_SECONDS = 0.1


class ProcessRuntime(RecordedRun):
    """The runtime contract over processes."""

    def __init__(self, directory: RunDirectory, *, program: Sequence[str] = BROKER) -> None:
        """Act upon a run that exists; `create` makes a new one."""
        self._processes = RegionProcesses(directory, program)
        linked = LinkedRegions(
            directory,
            self._processes.current_states,
            self._processes.describe_end,
            poll_seconds=READY_POLL_SECONDS,
        )
        super().__init__(directory, linked)

    @classmethod
    def create(
        cls,
        topology: Topology,
        run_dir: Path | None = None,
        *,
        detached: bool = False,
        log_format: str = "text",
        insecure: bool = False,
        program: Sequence[str] = BROKER,
    ) -> ProcessRuntime:
        """Make a new run, not started yet, owned by this process. `run_dir` None: one in the current folder.

        Refused when the directory or a fixed port is in use, and unless `insecure` when other machines could reach a
        region.
        """
        topology = with_addresses(topology, insecure=insecure)
        owner = identify(os.getpid())
        assert owner is not None, "we are running"
        with claim_new_run(run_dir) as directory:
            ports = _choose_ports_of(topology)
            regions = {region.name: region_record(region, *ports[region.name]) for region in topology.regions}
            record = RunRecord("process", owner, detached, regions, links_of(topology))
            directory.create(record, topology)
            run_token, run_secret = new_run_token(), new_run_secret()
            for name in regions:
                region_dir = directory.region_dir(name)
                config = region_config(
                    topology,
                    name,
                    ports,
                    region_dir=region_dir,
                    owner_pid=0 if detached else owner.pid,
                    bootstrap_servers=_own_kafka(topology, name, region_dir),
                    run_secret=run_secret,
                    configuration_dir=directory.configuration_dir(regions[name].cluster),
                )
                config = dataclasses.replace(apart_from_other_runs(config, run_token), log_format=log_format)
                write_whole(region_dir / "region.json", config.to_json())
        return cls(directory, program=program)

    # --- the whole run ----------------------------------------------------------------------------------

    async def up(self) -> None:
        self._refuse_if_over(self._directory.read())
        try:
            record = self._directory.read()
            names = list(record.regions)
            owner_pid = 0 if record.detached else record.owner.pid
            await region_kafka.start_all(self._kafka_ports(names), owner_pid)
            with self._directory.edit() as record:
                self._refuse_if_over(record)  # another terminal may have ended it meanwhile
                for name in names:
                    if self._processes.state(record, name) == "gone":
                        self._processes.spawn(record, name)
            await self._linked.wait_until_ready(names)
        except BaseException:
            with suppress(RuntimeFailure):
                await self.down()
            raise

    async def down(self) -> None:
        with self._directory.edit() as record:
            record.ended = True
            names = list(record.regions)
        await self._processes.stop(names)
        await region_kafka.stop_all(map(self._directory.region_dir, names))

    def _kafka_ports(self, names: Iterable[str]) -> dict[Path, int]:
        """Of the regions that have a Kafka of their own, by region directory."""
        directories = [self._directory.region_dir(name) for name in names]
        return {
            region_dir: int(
                RegionConfig.load(region_dir / "region.json").log.bootstrap_servers.rpartition(":")[2]
            )
            for region_dir in directories
            if region_kafka.folder_of(region_dir).exists()
        }

    # --- one region -------------------------------------------------------------------------------------

    async def start(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown(record, region)
            self._refuse_if_over(record)
            state = self._processes.state(record, region)
            if state == "paused":
                raise RuntimeFailure(f"{region} is paused: `geoemu resume {region}`")
            lost = lost_clusters(record)
            if state == "gone":
                self._processes.spawn(record, region)
        await self._linked.wait_until_linked(region)
        await self._linked.tell_of_losses(lost)

    async def stop(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        await self._processes.stop([region])

    async def kill(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown(record, region)
            if self._processes.state(record, region) != "gone":
                record.regions[region].stopped = False
        self._processes.signal(region, signal.SIGKILL)
        await self._processes.wait_for_state(region, "gone")

    async def lose(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown(record, region)
            self._refuse_if_over(record)
            record.regions[region].lost = True
        self._processes.signal(region, signal.SIGKILL)
        await self._processes.wait_for_state(region, "gone")
        await self._linked.tell_of_losses(lost_clusters(self._directory.read()))

    async def lose_store(self, cluster: str) -> None:
        with self._directory.edit() as record:
            refuse_living(record, cluster, self._processes.states(record))
            put_aside(self._directory.configuration_dir(cluster) / CONFIGURATION_FILE)

    async def restart(self, region: str) -> None:
        await self.stop(region)
        await self.start(region)

    async def pause(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        if not self._processes.signal(region, signal.SIGSTOP):
            raise RuntimeFailure(f"{region} is not running: `geoemu start {region}`")
        await self._processes.wait_for_state(region, "paused", "gone")

    async def resume(self, region: str) -> None:
        record = self._directory.read()
        refuse_unknown(record, region)
        state = self._processes.state(record, region)
        if state == "gone":
            raise RuntimeFailure(f"{region} is not running: `geoemu start {region}`")
        if state == "paused":
            await self._linked.thaw(region, lambda: self._wake_up(region))
        await self._linked.wait_until_linked(region)

    async def status(self) -> RunStatus:
        record = self._directory.read()
        regions = await asyncio.gather(*(self._region_status(record, name) for name in record.regions))
        links = link_statuses(record, self.topology)
        return RunStatus(self.run_dir, record.runtime, tuple(regions), links, record.ended)

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        refuse_unknown(self._directory.read(), region)
        path = output_log(self._directory.region_dir(region))
        while not path.exists():
            if not follow:
                return
            await asyncio.sleep(LOG_POLL_SECONDS)
        with path.open(errors="replace") as file:
            line = ""
            while True:
                line += file.readline()
                if line.endswith("\n") or (line and not follow):
                    yield line.rstrip("\n")
                    line = ""
                elif follow:
                    await asyncio.sleep(LOG_POLL_SECONDS)
                else:
                    return

    async def _region_status(self, record: RunRecord, name: str) -> RegionStatus:
        region = record.regions[name]
        state, waiting_for = await self._region_state(record, name)
        alive = state not in ("stopped", "killed", "lost")
        return RegionStatus(
            name=name,
            cluster=region.cluster,
            state=state,
            service_url=region.service_url,
            admin_url=region.admin_url,
            pid=region.process.pid if region.process and alive else None,
            waiting_for=waiting_for,
        )

    async def _region_state(self, record: RunRecord, name: str) -> tuple[RegionState, str]:
        region = record.regions[name]
        match self._processes.state(record, name):
            case "gone":
                if region.lost:
                    return "lost", ""
                # Never started counts as stopped.
                orderly = (
                    region.stopped
                    or region.process is None
                    or self._processes.stopped_itself(region.process, name)
                )
                return ("stopped" if orderly else "killed"), ""
            case "paused":
                return "paused", ""
        try:
            expected = self._linked.running_peers(record, self._processes.states(record), name)
            report = await ask(region, expected)
        except NoHttpResponse:
            return "starting", "it does not respond"
        return ("running" if report.ready or region.was_ready else "starting"), report.waiting_for

    async def _wake_up(self, name: str) -> None:
        self._processes.signal(name, signal.SIGCONT)
        await self._processes.wait_for_state(name, "running", "gone")

    def _refuse_if_over(self, record: RunRecord) -> None:
        if record.ended:
            raise Refused(f"the run in {self.run_dir} has ended: start a new one with `geoemu up`")
        if not record.detached and state_of(record.owner) == "gone":
            raise Refused(
                f"the program that owned the run in {self.run_dir} (process {record.owner.pid}) has ended, and so "
                "have its regions: start a new run with `geoemu up`"
            )


def _own_kafka(topology: Topology, name: str, region_dir: Path) -> str | None:
    """Where the Kafka of this region will be, if it gets one; None: it needs none."""
    log = topology.region(name).log
    if log.backend != "kafka" or log.bootstrap_servers:
        return None
    region_kafka.plan(region_dir)
    return f"127.0.0.1:{choose_ports([WantedPort(name, 'kafka', '127.0.0.1', 0)])[0]}"


def _choose_ports_of(topology: Topology) -> dict[str, tuple[int, int]]:
    wanted = [
        WantedPort(region.name, key, region.address, port)
        for region in topology.regions
        for key, port in (("service_port", region.service_port), ("admin_port", region.admin_port))
    ]
    ports = iter(choose_ports(wanted))
    return {region.name: (next(ports), next(ports)) for region in topology.regions}
