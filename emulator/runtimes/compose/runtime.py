"""Regions as containers, started by Docker Compose from a file that a person can read, change and start as well.

What a region is doing is asked of the engine and of the region itself, every time: containers are found by their
labels, so that one which was killed, restarted or replaced by hand is recognised. Links are cut, held
and healed by the regions themselves, as everywhere.

Containers outlive the program that started them: only `down` ends a run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from emulator.config.region import RegionConfig
from emulator.config.topology import CONFIGURATION_FILE, Topology
from emulator.errors import Refused, RuntimeFailure
from emulator.run.directory import (
    RunDirectory,
    RunRecord,
    claim_new_run,
    link_statuses,
    write_whole,
)
from emulator.run.processes import ProcessState
from emulator.runtimes.admin_client import NoHttpResponse
from emulator.runtimes.compose.command import compose, compose_command
from emulator.runtimes.compose.containers import STOP_SECONDS, RunContainers, state_of_container
from emulator.runtimes.compose.file import (
    CONFIGURATION_DIR,
)
from emulator.runtimes.compose.plan import (
    settings_from,
)
from emulator.runtimes.compose.run_files import READY_SECONDS, check_images, fill_run
from emulator.runtimes.contract import RegionState, RegionStatus, RunStatus
from emulator.runtimes.docker_engine import Container, DockerEngine
from emulator.runtimes.listening import with_addresses
from emulator.runtimes.recorded_run import RecordedRun
from emulator.runtimes.region_process import (
    with_links,
)
from emulator.runtimes.regions import (
    LinkedRegions,
    ask,
    forget_store,
    lost_clusters,
    refuse_living,
    refuse_unknown,
)

logger = logging.getLogger(__name__)

UP_SECONDS = 120.0
"""How long Compose may take, without the time for pulling images."""
LOSE_SECONDS = 60.0
"""How long a container may take that puts a store aside."""
READY_POLL_SECONDS = 0.1
LOG_POLL_SECONDS = 0.2


class ComposeRuntime(RecordedRun):
    """The runtime contract over containers."""

    def __init__(self, directory: RunDirectory, engine: DockerEngine | None = None) -> None:
        """Act upon a run that exists; `create` makes a new one. Refused when no engine answers."""
        self._containers = RunContainers(directory, engine or DockerEngine())
        linked = LinkedRegions(
            directory,
            self._containers.states,
            self._last_words,
            poll_seconds=READY_POLL_SECONDS,
            noted=self._write_links_of,
            ready_seconds=READY_SECONDS,
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
    ) -> ComposeRuntime:
        """Make a new run, not started yet. `run_dir` None: one in the current folder.

        Refused when there is no engine, Compose or image, when the directory or a fixed port is in use, and unless
        `insecure` when ports would be published where other machines reach them.
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

    async def up(self) -> None:
        self._refuse_if_over(self._directory.read())
        try:
            with self._directory.edit() as record:
                names = list(record.regions)
                for name in names:
                    self._prepare_start(record, name)
            await self._compose("up", "--detach", "--no-recreate", "--quiet-pull", seconds=UP_SECONDS)
            await self._containers.while_kafkas_live(names, self._linked.wait_until_ready(names))
        except BaseException:
            with suppress(RuntimeFailure):
                await self.down()
            raise

    async def down(self) -> None:
        with self._directory.edit() as record:
            record.ended = True
            names = list(record.regions)
        try:
            await self._stop(names)
        finally:
            try:
                await self._containers.keep_output()
                await self._containers.keep_stores()
            finally:
                await self._compose(
                    *("down", "--remove-orphans", "--volumes", "--timeout", f"{STOP_SECONDS:g}"),
                    seconds=UP_SECONDS,
                )

    # --- one region -------------------------------------------------------------------------------------

    async def start(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
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
            # With what it depends on.
            await self._compose("up", "--detach", "--no-recreate", "--quiet-pull", region, seconds=UP_SECONDS)
        await self._containers.while_kafkas_live([region], self._linked.wait_until_linked(region))
        await self._linked.tell_of_losses(lost)

    async def stop(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        await self._stop([region])
        await self._containers.keep_stores()

    async def kill(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        containers = await self._containers.by_region()
        if state_of_container(containers, region) != "gone":
            await self._containers.engine.kill(containers[region])
            await self._containers.wait_for_state(region, "gone")

    async def lose(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown(record, region)
            self._refuse_if_over(record)
            record.regions[region].lost = True
        await self.kill(region)
        await self._linked.tell_of_losses(lost_clusters(self._directory.read()))

    async def lose_store(self, cluster: str) -> None:
        """It is in a volume, which only containers reach: one of the cluster's, for as long as it takes."""
        states = await self._containers.states()
        with self._directory.edit() as record:
            refuse_living(record, cluster, states)
            self._refuse_if_over(record)
            region = next(name for name, one in record.regions.items() if one.cluster == cluster)
        store = str(CONFIGURATION_DIR / CONFIGURATION_FILE)
        program = ("--entrypoint", "python3", region, "-m", "emulator.run.lost_stores", store)
        await self._compose("run", "--rm", "--no-deps", "--no-TTY", *program, seconds=LOSE_SECONDS)
        await self._containers.keep_stores()

    async def restart(self, region: str) -> None:
        await self.stop(region)
        await self.start(region)

    async def pause(self, region: str) -> None:
        container = await self._containers.require_running(region)
        if container.state != "paused":
            await self._containers.engine.pause(container)
            await self._containers.wait_for_state(region, "paused", "gone")

    async def resume(self, region: str) -> None:
        container = await self._containers.require_running(region)
        if container.state == "paused":
            await self._linked.thaw(region, lambda: self._containers.engine.resume(container))
        await self._linked.wait_until_linked(region)

    # --- links ------------------------------------------------------------------------------------------

    def _write_links_of(self, record: RunRecord, names: Iterable[str]) -> None:
        """Also for regions that are started by hand."""
        for name in names:
            self._write_links(record, name)

    def _write_links(self, record: RunRecord, name: str) -> None:
        path = self._directory.region_dir(name) / "region.json"
        config = with_links(RegionConfig.load(path), record.links)
        ahead_ms = record.regions[name].clock_ahead_ms
        write_whole(path, dataclasses.replace(config, clock_ahead_ms=ahead_ms).to_json())

    async def status(self) -> RunStatus:
        record, containers = self._directory.read(), await self._containers.by_region()
        regions = await asyncio.gather(
            *(self._region_status(record, containers, name) for name in record.regions)
        )
        links = link_statuses(record, self.topology)
        return RunStatus(self.run_dir, record.runtime, tuple(regions), links, record.ended)

    async def _region_status(
        self, record: RunRecord, containers: dict[str, Container], name: str
    ) -> RegionStatus:
        region, container = record.regions[name], containers.get(name)
        state, waiting_for = await self._region_state(record, containers, name)
        return RegionStatus(
            name=name,
            cluster=region.cluster,
            state=state,
            service_url=region.service_url,
            admin_url=region.admin_url,
            pid=container.pid if container else None,
            waiting_for=waiting_for,
        )

    async def _region_state(
        self, record: RunRecord, containers: dict[str, Container], name: str
    ) -> tuple[RegionState, str]:
        region, container = record.regions[name], containers.get(name)
        if region.lost and state_of_container(containers, name) == "gone":
            return "lost", ""
        if container is None:
            # Removed. Never started counts as stopped.
            return ("stopped" if region.stopped or not region.was_ready else "killed"), ""
        match container.state:
            case "gone":
                orderly = container.exit_code == 0 or not container.was_started
                return ("stopped" if orderly else "killed"), ""
            case "paused":
                return "paused", ""
        states = {other: state_of_container(containers, other) for other in record.regions}
        try:
            report = await ask(region, self._linked.running_peers(record, states, name))
        except NoHttpResponse:
            return "starting", "it does not respond"
        lacks = [report.waiting_for] if report.waiting_for else []
        if kafka := await self._containers.missing_kafka(name):
            lacks.append(f"{kafka} is not running: `geoemu start {name}`")
        return ("running" if report.ready or region.was_ready else "starting"), "; ".join(lacks)

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        refuse_unknown(self._directory.read(), region)
        container = (await self._containers.by_region()).get(region)
        if not follow:
            for line in (await self._containers.output(region, container)).splitlines():
                yield line
            return
        seen_id, seen_lines = "", 0
        while True:
            if container is not None:
                # One that was started again repeats what it said before; a new one has not said anything yet.
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
        self._write_links(record, name)
        forget_store(self._directory.configuration_dir(record.regions[name].cluster))
        record.regions[name].stopped = False
        record.regions[name].was_ready = False
        record.regions[name].lost = False

    async def _stop(self, names: Sequence[str]) -> None:
        before = await self._containers.by_region()
        alive = [name for name in names if state_of_container(before, name) != "gone"]
        await asyncio.gather(*(self._containers.engine.stop(before[name], STOP_SECONDS) for name in alive))
        after = await self._containers.by_region()
        slow = [name for name in alive if name in after and after[name].exit_code == _KILLED_EXIT_CODE]
        with self._directory.edit() as record:
            for name in alive:
                record.regions[name].stopped = name not in slow
        if slow:
            raise RuntimeFailure(
                f"{' and '.join(slow)} did not end within {STOP_SECONDS:g} s and had to be killed: "
                f"`geoemu logs {slow[0]}` shows its last log lines"
            )

    async def _last_words(self, name: str, state: ProcessState) -> str:
        """Why a region that was to become ready never will."""
        if state == "paused":
            return f"{name} was paused before it was ready: `geoemu resume {name}`"
        container = (await self._containers.by_region()).get(name)
        if container is None:
            return f"{name}'s container was removed before it was ready: `geoemu start {name}`"
        return f"{name} {await self._containers.describe_end(container)}"

    def _refuse_if_over(self, record: RunRecord) -> None:
        if record.ended:
            raise Refused(f"the run in {self.run_dir} has ended: start a new one with `geoemu up`")


_KILLED_EXIT_CODE = 137
"""128 + SIGKILL."""
