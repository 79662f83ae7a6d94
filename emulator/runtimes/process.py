"""The runtime in which regions are plain processes of this machine.

On every call, the operating system and the region report the region's state; `run.json` only records started
processes and requested changes. So verbs work from any terminal, and regions that a user killed are recognised.

A region ends by itself when the program that owns the run has ended, unless the run is detached.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from pathlib import Path

from emulator.config.region import RegionConfig
from emulator.config.topology import CONFIGURATION_FILE, RegionPorts, Topology, region_config
from emulator.errors import Refused, RuntimeFailure
from emulator.run.directory import RunDirectory, claim_new_run, refuse_unknown, replace_file
from emulator.run.lost_stores import move_lost_store
from emulator.run.processes import ProcessState, state_of
from emulator.run.record import RunRecord, new_record
from emulator.runtimes import region_kafka
from emulator.runtimes.contract import RegionState
from emulator.runtimes.listening import WantedPort, choose_ports, with_addresses
from emulator.runtimes.region_processes import (
    BROKER,
    RegionProcesses,
    new_run_secret,
    new_run_token,
    output_log,
    with_topic_prefix,
)
from emulator.runtimes.regions import (
    RecordedRuntime,
    lost_clusters,
    refuse_running,
    state_of_running,
)
from emulator.runtimes.run_secrets import protect_regions, with_secret_files, write_control

READY_POLL_SECONDS = 0.02
LOG_POLL_SECONDS = 0.1


class ProcessRuntime(RecordedRuntime):
    """Implements the runtime contract with processes."""

    def __init__(self, directory: RunDirectory, *, program: Sequence[str] = BROKER) -> None:
        """Open an existing run; `create` creates a new one."""
        super().__init__(directory, poll_seconds=READY_POLL_SECONDS)
        self._processes = RegionProcesses(directory, program)

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
        """Create a new run that this process owns, without starting it. `run_dir` None: a new directory in the current
        folder.

        Raises Refused if the directory or a fixed port is in use, or if other machines could reach a region, unless
        `insecure`.
        """
        topology = with_addresses(topology, insecure=insecure)
        with claim_new_run(run_dir) as directory:
            ports = _choose_ports_of(topology)
            run_token, run_secret = new_run_token(), new_run_secret()
            topology = with_secret_files(topology, directory.path, os.environ)
            control = write_control(directory, topology, run_secret)
            record = new_record("process", topology, ports, detached=detached, control=control)
            directory.create(record, topology)
            protect_regions(directory, topology)
            for name, region in record.regions.items():
                region_dir = directory.region_dir(name)
                config = region_config(
                    topology,
                    name,
                    ports,
                    region_dir=region_dir,
                    owner_pid=0 if detached else record.owner.pid,
                    bootstrap_servers=_own_kafka(topology, name, region_dir),
                    run_secret=run_secret,
                    configuration_dir=directory.configuration_dir(region.cluster),
                )
                config = dataclasses.replace(with_topic_prefix(config, run_token), log_format=log_format)
                replace_file(region_dir / "region.json", config.to_json())
        return cls(directory, program=program)

    # --- the whole run ----------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        record = self._directory.read()
        names = list(record.regions)
        owner_pid = 0 if record.detached else record.owner.pid
        await region_kafka.start_all(self._kafka_ports(names), owner_pid)
        async with self._processes.open_fork_server(len(names)) as server:
            with self._directory.edit() as record:
                self._refuse_if_over(record)  # another command may have ended the run meanwhile
                for name in names:
                    if self._processes.state(record, name) == "gone":
                        self._processes.spawn(record, name, server)
        await self._wait_until_ready(names)

    async def down(self) -> None:
        with self._directory.edit() as record:
            record.ended = True
            names = list(record.regions)
        try:
            await self._processes.stop(names)
        finally:
            await region_kafka.stop_all(map(self._directory.region_dir, names))

    def _kafka_ports(self, names: Iterable[str]) -> dict[Path, int]:
        """Return the ports of the Kafkas that run for single regions, by region directory."""
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
            refuse_unknown("region", region, record.regions)
            self._refuse_if_over(record)
            state = self._processes.state(record, region)
            if state == "paused":
                raise RuntimeFailure(f"{region} is paused: `geoemu resume {region}`")
            lost = lost_clusters(record)
            if state == "gone":
                self._processes.spawn(record, region)
        await self._wait_until_linked(region)
        await self._announce_losses(lost)

    async def stop(self, region: str) -> None:
        refuse_unknown("region", region, self._directory.read().regions)
        await self._processes.stop([region])

    async def kill(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown("region", region, record.regions)
            if self._processes.state(record, region) != "gone":
                record.regions[region].stopped = False
        self._processes.signal(region, signal.SIGKILL)
        await self._processes.wait_for_state(region, "gone")

    async def lose_store(self, cluster: str) -> None:
        with self._directory.edit() as record:
            refuse_running(record, cluster, self._processes.states(record))
            move_lost_store(self._directory.configuration_dir(cluster) / CONFIGURATION_FILE)

    async def pause(self, region: str) -> None:
        refuse_unknown("region", region, self._directory.read().regions)
        if not self._processes.signal(region, signal.SIGSTOP):
            raise RuntimeFailure(f"{region} is not running: `geoemu start {region}`")
        await self._processes.wait_for_state(region, "paused", "gone")

    async def resume(self, region: str) -> None:
        record = self._directory.read()
        refuse_unknown("region", region, record.regions)
        state = self._processes.state(record, region)
        if state == "gone":
            raise RuntimeFailure(f"{region} is not running: `geoemu start {region}`")
        if state == "paused":
            await self._resume_with_links(region, lambda: self._continue_process(region))
        await self._wait_until_linked(region)

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        refuse_unknown("region", region, self._directory.read().regions)
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

    async def _states(self) -> dict[str, ProcessState]:
        return self._processes.states(self._directory.read())

    async def _describe_not_ready(self, name: str, state: ProcessState) -> str:
        return self._processes.describe_not_ready(name, state)

    async def _region_states(self, record: RunRecord) -> dict[str, tuple[RegionState, int | None, str]]:
        states = await asyncio.gather(*(self._region_state(record, name) for name in record.regions))
        return dict(zip(record.regions, states, strict=True))

    async def _region_state(self, record: RunRecord, name: str) -> tuple[RegionState, int | None, str]:
        region = record.regions[name]
        pid = region.process.pid if region.process else None
        match self._processes.state(record, name):
            case "gone" if region.lost:
                return "lost", None, ""
            case "gone":
                # A region that was never started counts as stopped.
                orderly = (
                    region.stopped
                    or region.process is None
                    or self._processes.stopped_gracefully(region.process, name)
                )
                return ("stopped" if orderly else "killed"), None, ""
            case "paused":
                return "paused", pid, ""
        state, waiting_for = await state_of_running(record, self._processes.states(record), name)
        return state, pid, waiting_for

    async def _continue_process(self, name: str) -> None:
        self._processes.signal(name, signal.SIGCONT)
        await self._processes.wait_for_state(name, "running", "gone")

    def _refuse_if_over(self, record: RunRecord) -> None:
        super()._refuse_if_over(record)
        if not record.detached and state_of(record.owner) == "gone":
            raise Refused(
                f"the program that owned the run in {self.run_dir} (process {record.owner.pid}) has ended, and so "
                "have its regions: start a new run with `geoemu up`"
            )


def _own_kafka(topology: Topology, name: str, region_dir: Path) -> str | None:
    """Prepare a Kafka for this region if its log needs one and the topology names none; return its address, or None."""
    log = topology.region(name).log
    if log.backend != "kafka" or log.bootstrap_servers:
        return None
    region_kafka.create_folder(region_dir)
    return f"127.0.0.1:{choose_ports([WantedPort(name, 'kafka', '127.0.0.1', 0)])[0]}"


def _choose_ports_of(topology: Topology) -> dict[str, RegionPorts]:
    wanted = [
        WantedPort(region.name, key, region.address, port)
        for region in topology.regions
        for key, port in topology.wanted_ports(region).items()
    ]
    ports = iter(choose_ports(wanted))
    return {
        region.name: topology.region_ports(list(islice(ports, len(topology.wanted_ports(region)))))
        for region in topology.regions
    }
