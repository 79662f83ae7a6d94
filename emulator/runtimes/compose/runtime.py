"""The runtime in which regions are containers. Docker Compose starts them from a file that users can read, change and
start themselves.

On every call, the Docker engine and the region report the region's state. Containers are found by their labels, so
containers that a user killed, restarted or replaced are recognised. As in all runtimes, the regions themselves cut,
hold and heal links.

Containers outlive the program that started them: only `down` ends a run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from emulator.config.topology import CONFIGURATION_FILE, Topology
from emulator.errors import RuntimeFailure
from emulator.run.directory import RunDirectory, claim_new_run, refuse_unknown
from emulator.run.processes import ProcessState
from emulator.run.record import RunRecord
from emulator.runtimes.compose.command import compose, compose_command
from emulator.runtimes.compose.containers import STOP_SECONDS, RunContainers, state_of_container
from emulator.runtimes.compose.plan import settings_from
from emulator.runtimes.compose.region_container import CONFIGURATION_DIR
from emulator.runtimes.compose.run_files import READY_SECONDS, check_images, fill_run
from emulator.runtimes.contract import RegionState
from emulator.runtimes.docker_engine import Container, DockerEngine
from emulator.runtimes.listening import with_addresses
from emulator.runtimes.region_processes import write_current_state
from emulator.runtimes.regions import (
    NO_RESPONSE,
    RecordedRuntime,
    delete_store_copy,
    forced_kill_failure,
    lost_clusters,
    refuse_running,
    state_of_running,
)

UP_SECONDS = 120.0
"""Time limit of `docker compose up` and `down`."""
LOSE_SECONDS = 60.0
"""Time limit of the container that moves a lost configuration store aside."""
READY_POLL_SECONDS = 0.1
LOG_POLL_SECONDS = 0.2


class ComposeRuntime(RecordedRuntime):
    """Implements the runtime contract with containers."""

    def __init__(self, directory: RunDirectory, engine: DockerEngine | None = None) -> None:
        """Open an existing run; `create` creates a new one. Raises Refused if no Docker engine responds."""
        super().__init__(directory, poll_seconds=READY_POLL_SECONDS, ready_seconds=READY_SECONDS)
        self._containers = RunContainers(directory, engine or DockerEngine())

    @classmethod
    def create(
        cls,
        topology: Topology,
        run_dir: Path | None = None,
        *,
        detached: bool = False,
        log_format: str = "text",
        insecure: bool = False,
    ) -> ComposeRuntime:
        """Create a new run without starting it. `run_dir` None: a new directory in the current folder.

        Raises Refused if Docker engine, Compose or an image is missing, if the directory or a fixed port is in use, or
        if other machines could reach a published port, unless `insecure`.
        """
        topology = with_addresses(topology, insecure=insecure, in_containers=True)
        engine, settings = DockerEngine(), settings_from(os.environ)
        compose_command()
        check_images(engine, topology, settings)
        with claim_new_run(run_dir) as directory:
            fill_run(
                directory, topology, settings, engine.subnets(), detached=detached, log_format=log_format
            )
        return cls(directory, engine)

    # --- the whole run ----------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        with self._directory.edit() as record:
            names = list(record.regions)
            for name in names:
                self._prepare_start(record, name)
        await self._compose("up", "--detach", "--no-recreate", "--quiet-pull", seconds=UP_SECONDS)
        await self._containers.while_kafkas_run(names, self._wait_until_ready(names))

    async def down(self) -> None:
        with self._directory.edit() as record:
            record.ended = True
            names = list(record.regions)
        try:
            await self._stop(names)
        finally:
            try:
                await self._containers.copy_output()
                await self._containers.copy_stores()
            finally:
                await self._compose(
                    *("down", "--remove-orphans", "--volumes", "--timeout", f"{STOP_SECONDS:g}"),
                    seconds=UP_SECONDS,
                )

    # --- one region -------------------------------------------------------------------------------------

    async def start(self, region: str) -> None:
        refuse_unknown("region", region, self._directory.read().regions)
        containers = await self._containers.by_region()
        state = state_of_container(containers, region)
        with self._directory.edit() as record:
            self._refuse_if_over(record)
            lost = lost_clusters(record)
            if state == "paused":
                raise RuntimeFailure(f"{region} is paused: `geoemu resume {region}`")
            if state == "gone":
                self._prepare_start(record, region)
        if state == "gone" or await self._containers.missing_kafka(region):
            # Compose also starts the Kafka that the region depends on.
            await self._compose("up", "--detach", "--no-recreate", "--quiet-pull", region, seconds=UP_SECONDS)
        await self._containers.while_kafkas_run([region], self._wait_until_linked(region))
        await self._announce_losses(lost)

    async def stop(self, region: str) -> None:
        refuse_unknown("region", region, self._directory.read().regions)
        try:
            await self._stop([region])
        finally:
            await self._containers.copy_stores()

    async def kill(self, region: str) -> None:
        refuse_unknown("region", region, self._directory.read().regions)
        containers = await self._containers.by_region()
        if state_of_container(containers, region) != "gone":
            await self._containers.engine.kill(containers[region])
            await self._containers.wait_for_state(region, "gone")

    async def lose_store(self, cluster: str) -> None:
        """Move the store aside, in a temporary container of one of the cluster's regions: the store is in a volume,
        which only containers can access."""
        states = await self._containers.states()
        with self._directory.edit() as record:
            refuse_running(record, cluster, states)
            self._refuse_if_over(record)
            region = next(name for name, one in record.regions.items() if one.cluster == cluster)
        store = str(CONFIGURATION_DIR / CONFIGURATION_FILE)
        program = ("--entrypoint", "python3", region, "-m", "emulator.run.lost_stores", store)
        await self._compose("run", "--rm", "--no-deps", "--no-TTY", *program, seconds=LOSE_SECONDS)
        await self._containers.copy_stores()

    async def pause(self, region: str) -> None:
        container = await self._containers.require_running(region)
        if container.state != "paused":
            await self._containers.engine.pause(container)
            await self._containers.wait_for_state(region, "paused", "gone")

    async def resume(self, region: str) -> None:
        container = await self._containers.require_running(region)
        if container.state == "paused":
            await self._resume_with_links(region, lambda: self._containers.engine.resume(container))
        await self._wait_until_linked(region)

    # --- states, from the run record and the Docker engine ---------------------------------------------------

    def _on_record_changed(self, record: RunRecord, regions: Iterable[str]) -> None:
        """Write the changed links and clocks to the regions' configurations, for regions that a user starts, too."""
        for name in regions:
            write_current_state(self._directory.region_dir(name), record, name)

    async def _states(self) -> dict[str, ProcessState]:
        return await self._containers.states()

    async def _region_states(self, record: RunRecord) -> dict[str, tuple[RegionState, int | None, str]]:
        containers = await self._containers.by_region()
        states = await asyncio.gather(
            *(self._region_state(record, containers, name) for name in record.regions)
        )
        return dict(zip(record.regions, states, strict=True))

    async def _region_state(
        self, record: RunRecord, containers: dict[str, Container], name: str
    ) -> tuple[RegionState, int | None, str]:
        region, container = record.regions[name], containers.get(name)
        pid = container.pid if container else None
        if region.lost and state_of_container(containers, name) == "gone":
            return "lost", pid, ""
        if container is None:
            # The container was removed. A region that was never started counts as stopped.
            return ("stopped" if region.stopped or not region.was_ready else "killed"), pid, ""
        match container.state:
            case "gone":
                orderly = container.exit_code == 0 or not container.was_started
                return ("stopped" if orderly else "killed"), pid, ""
            case "paused":
                return "paused", pid, ""
        states = {other: state_of_container(containers, other) for other in record.regions}
        state, waiting_for = await state_of_running(record, states, name)
        if state == "starting" and waiting_for == NO_RESPONSE:
            return state, pid, waiting_for
        lacks = [waiting_for] if waiting_for else []
        if kafka := await self._containers.missing_kafka(name):
            lacks.append(f"{kafka} is not running: `geoemu start {name}`")
        return state, pid, "; ".join(lacks)

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        refuse_unknown("region", region, self._directory.read().regions)
        container = (await self._containers.by_region()).get(region)
        if not follow:
            for line in (await self._containers.output(region, container)).splitlines():
                yield line
            return
        seen_id, seen_lines = "", 0
        while True:
            if container is not None:
                # The log of a restarted container repeats the earlier lines; that of a new container does not.
                skip = seen_lines if container.id == seen_id else 0
                seen_id, seen_lines = container.id, 0
                async for line in self._containers.engine.follow(container):
                    seen_lines += 1
                    if seen_lines > skip:
                        yield line
            while container is None or state_of_container({region: container}, region) == "gone":
                await asyncio.sleep(LOG_POLL_SECONDS)
                container = (await self._containers.by_region()).get(region)

    async def _compose(self, *arguments: str, seconds: float) -> None:
        await compose(self.run_dir, *arguments, seconds=seconds)

    def _prepare_start(self, record: RunRecord, name: str) -> None:
        self._on_record_changed(record, [name])
        delete_store_copy(self._directory.configuration_dir(record.regions[name].cluster))
        record.regions[name].begin()

    async def _stop(self, names: Sequence[str]) -> None:
        before = await self._containers.by_region()
        alive = [name for name in names if state_of_container(before, name) != "gone"]
        with self._directory.edit() as record:
            for name in alive:
                record.regions[name].stopped = True
        await asyncio.gather(*(self._containers.engine.stop(before[name], STOP_SECONDS) for name in alive))
        after = await self._containers.by_region()
        slow = [name for name in alive if name in after and after[name].exit_code == _KILLED_EXIT_CODE]
        if slow:
            with self._directory.edit() as record:
                for name in slow:
                    record.regions[name].stopped = False
            raise forced_kill_failure(slow, STOP_SECONDS)

    async def _describe_not_ready(self, name: str, state: ProcessState) -> str:
        """Return why a region whose container is in `state`, paused or gone, did not become ready."""
        if state == "paused":
            return f"{name} was paused before it was ready: `geoemu resume {name}`"
        container = (await self._containers.by_region()).get(name)
        if container is None:
            return f"{name}'s container was removed before it was ready: `geoemu start {name}`"
        return f"{name} {await self._containers.describe_end(container)}"


_KILLED_EXIT_CODE = 137
"""Exit code of a container that was killed: 128 + SIGKILL."""
