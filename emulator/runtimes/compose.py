"""Regions as containers, started by Docker Compose from a file that a person can read, change and start as well.

What a region is doing is asked of the engine and of the region itself, every time: containers are found by their
labels, so that one which somebody killed, restarted or replaced by hand is seen for what it is. Links are cut, held
and healed by the regions themselves, as everywhere.

Containers outlive whoever started them: only `down` ends a run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from emulator.config.region import RegionConfig
from emulator.config.topology import CONFIGURATION_FILE, Topology
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
from emulator.run.processes import ProcessState, identify
from emulator.runtimes.admin_client import NoAnswer
from emulator.runtimes.compose_command import compose, compose_command
from emulator.runtimes.compose_file import (
    CONFIGURATION_DIR,
    CONTAINER_USER,
    KAFKA_LABEL,
    REGION_LABEL,
    REPORT_FOLDER,
    RUN_LABEL,
    ComposeSettings,
    Plan,
    Published,
    choose_subnet,
    compose_file,
    container_config,
    dashboard_files,
    kafka_owners,
    kafka_service,
    project_name,
    published_kafka,
    settings_from,
)
from emulator.runtimes.contract import RegionState, RegionStatus, RunStatus
from emulator.runtimes.dashboards import DASHBOARD_SERVICES, PROFILE
from emulator.runtimes.docker_engine import Container, Engine
from emulator.runtimes.image_sources import stale_sentence
from emulator.runtimes.listening import with_addresses
from emulator.runtimes.ports import WantedPort, choose_ports
from emulator.runtimes.recorded_run import RecordedRun
from emulator.runtimes.region_process import (
    LAST_LINES,
    apart_from_other_runs,
    new_run_secret,
    new_run_token,
    output_log,
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
"""How long Compose may take, without the time for pulling images that it was told to pull."""
LOSE_SECONDS = 60.0
"""How long a container may take that puts a store aside."""
STOP_SECONDS = 10.0
"""How long an orderly end may take before it becomes kill -9."""
READY_SECONDS = 60.0
"""How long a region may take until it is ready. It starts together with its Kafka, and waits for it."""
READY_POLL_SECONDS = 0.1
KAFKA_POLL_SECONDS = 0.5
LOG_POLL_SECONDS = 0.2
KAFKA_SERVERS_FILE = "kafka_servers"
"""Beside region.json: where programs on the host find the region's Kafka, which the region knows by another name."""


class ComposeRuntime(RecordedRun):
    """The runtime contract over containers."""

    def __init__(self, directory: RunDirectory, engine: Engine | None = None) -> None:
        """Act upon a run that exists; `create` makes a new one. Refused when no engine answers."""
        self._engine = engine or Engine()
        linked = LinkedRegions(
            directory,
            self._states,
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
        engine, settings = Engine(), settings_from(os.environ)
        compose_command()
        _check_images(engine, topology, settings)
        with claim_new_run(run_dir) as directory:
            _fill(directory, topology, settings, engine.subnets(), detached=detached, log_format=log_format)
        return cls(directory, engine)

    @cached_property
    def _run_label(self) -> str:
        """What all containers of the run are labelled with; as the file says, wherever the folder is by now."""
        file = self.run_dir / "compose.yaml"
        try:
            found = re.search(r"^name: (\S+)$", file.read_text(), re.MULTILINE)
        except OSError as failure:
            raise Refused(f"{file} cannot be read ({failure.strerror}): start a new run") from failure
        if found is None:
            raise Refused(f"{file} has no `name`, by which the run's containers are found: start a new run")
        return f"{RUN_LABEL}={found[1]}"

    # --- the whole run ----------------------------------------------------------------------------------

    async def up(self) -> None:
        self._refuse_if_over(self._directory.read())
        try:
            with self._directory.edit() as record:
                names = list(record.regions)
                for name in names:
                    self._prepare_start(record, name)
            await self._compose("up", "--detach", "--no-recreate", "--quiet-pull", seconds=UP_SECONDS)
            await self._while_kafkas_live(names, self._linked.wait_until_ready(names))
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
                await self._keep_output()
                await self._keep_stores()
            finally:
                await self._compose(
                    *("down", "--remove-orphans", "--volumes", "--timeout", f"{STOP_SECONDS:g}"),
                    seconds=UP_SECONDS,
                )

    # --- one region -------------------------------------------------------------------------------------

    async def start(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        containers = await self._containers()
        state = _state(containers, region)
        with self._directory.edit() as record:
            self._refuse_if_over(record)
            lost = lost_clusters(record)
            if state == "paused":
                raise RuntimeFailure(f"{region} is paused: `geoemu resume {region}`")
            if state == "gone":
                self._prepare_start(record, region)
        if state == "gone" or await self._missing_kafka(region):
            # With what it depends on.
            await self._compose("up", "--detach", "--no-recreate", "--quiet-pull", region, seconds=UP_SECONDS)
        await self._while_kafkas_live([region], self._linked.wait_until_linked(region))
        await self._linked.tell_of_losses(lost)

    async def stop(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        await self._stop([region])
        await self._keep_stores()

    async def kill(self, region: str) -> None:
        refuse_unknown(self._directory.read(), region)
        containers = await self._containers()
        if _state(containers, region) != "gone":
            await self._engine.kill(containers[region])
            await self._wait_for_state(region, "gone")

    async def lose(self, region: str) -> None:
        with self._directory.edit() as record:
            refuse_unknown(record, region)
            self._refuse_if_over(record)
            record.regions[region].lost = True
        await self.kill(region)
        await self._linked.tell_of_losses(lost_clusters(self._directory.read()))

    async def lose_store(self, cluster: str) -> None:
        """It is in a volume, which only containers reach: one of the cluster's, for as long as it takes."""
        states = await self._states()
        with self._directory.edit() as record:
            refuse_living(record, cluster, states)
            self._refuse_if_over(record)
            region = next(name for name, one in record.regions.items() if one.cluster == cluster)
        store = str(CONFIGURATION_DIR / CONFIGURATION_FILE)
        program = ("--entrypoint", "python3", region, "-m", "emulator.run.lost_stores", store)
        await self._compose("run", "--rm", "--no-deps", "--no-TTY", *program, seconds=LOSE_SECONDS)
        await self._keep_stores()

    async def restart(self, region: str) -> None:
        await self.stop(region)
        await self.start(region)

    async def pause(self, region: str) -> None:
        container = await self._living(region)
        if container.state != "paused":
            await self._engine.pause(container)
            await self._wait_for_state(region, "paused", "gone")

    async def resume(self, region: str) -> None:
        container = await self._living(region)
        if container.state == "paused":
            await self._linked.thaw(region, lambda: self._engine.resume(container))
        await self._linked.wait_until_linked(region)

    # --- links ------------------------------------------------------------------------------------------

    def _write_links_of(self, record: RunRecord, names: Iterable[str]) -> None:
        """Also for regions that somebody starts by hand."""
        for name in names:
            self._write_links(record, name)

    def _write_links(self, record: RunRecord, name: str) -> None:
        path = self._directory.region_dir(name) / "region.json"
        config = with_links(RegionConfig.load(path), record.links)
        ahead_ms = record.regions[name].clock_ahead_ms
        write_whole(path, dataclasses.replace(config, clock_ahead_ms=ahead_ms).to_json())

    # --- what is so -------------------------------------------------------------------------------------

    async def status(self) -> RunStatus:
        record, containers = self._directory.read(), await self._containers()
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
        if region.lost and _state(containers, name) == "gone":
            return "lost", ""
        if container is None:
            # Removed. Never started counts as stopped: nobody took it away.
            return ("stopped" if region.stopped or not region.was_ready else "killed"), ""
        match container.state:
            case "gone":
                orderly = container.exit_code == 0 or not container.was_started
                return ("stopped" if orderly else "killed"), ""
            case "paused":
                return "paused", ""
        states = {other: _state(containers, other) for other in record.regions}
        try:
            report = await ask(region, self._linked.running_peers(record, states, name))
        except NoAnswer:
            return "starting", "it does not respond"
        lacks = [report.waiting_for] if report.waiting_for else []
        if kafka := await self._missing_kafka(name):
            lacks.append(f"{kafka} is not running: `geoemu start {name}`")
        return ("running" if report.ready or region.was_ready else "starting"), "; ".join(lacks)

    async def logs(self, region: str, *, follow: bool = False) -> AsyncIterator[str]:
        refuse_unknown(self._directory.read(), region)
        container = (await self._containers()).get(region)
        if not follow:
            for line in (await self._output(region, container)).splitlines():
                yield line
            return
        seen_id, seen_lines = "", 0
        while True:
            if container is not None:
                # One that was started again repeats what it said before; a new one has not said anything yet.
                skip = seen_lines if container.id == seen_id else 0
                seen_id, seen_lines = container.id, 0
                async for line in self._engine.follow(container):
                    seen_lines += 1
                    if seen_lines > skip:
                        yield line
            while container is None or _state({region: container}, region) == "gone":
                await asyncio.sleep(LOG_POLL_SECONDS)
                container = (await self._containers()).get(region)

    async def _output(self, region: str, container: Container | None) -> str:
        if container is not None:
            return await self._engine.output(container)
        kept = output_log(self._directory.region_dir(region))
        return kept.read_text(errors="replace") if kept.exists() else ""

    async def _keep_output(self) -> None:
        """Containers are about to be removed, and what they printed with them; a run's folder keeps it."""
        for name, container in (await self._containers()).items():
            output_log(self._directory.region_dir(name)).write_text(await self._engine.output(container))

    async def _keep_stores(self) -> None:
        """So are the volumes, and with them the clusters' configuration stores, which the verdict reads: those that no
        region has open."""
        containers = await self._containers()
        clusters = {name: region.cluster for name, region in self._directory.read().regions.items()}
        in_use = {clusters[name] for name, container in containers.items() if container.state != "gone"}
        last = {clusters[name]: container for name, container in containers.items()}
        for cluster in last.keys() - in_use:
            folder = self._directory.configuration_dir(cluster)
            forget_store(folder)
            await self._engine.copy_out(last[cluster], str(CONFIGURATION_DIR), folder)

    # --- containers -------------------------------------------------------------------------------------

    async def _compose(self, *arguments: str, seconds: float) -> None:
        await compose(self.run_dir, *arguments, seconds=seconds)

    async def _containers(self) -> dict[str, Container]:
        return await self._engine.containers(self._run_label, REGION_LABEL)

    def _own_kafka(self, region: str) -> str | None:
        """The Kafka that was started for a region, by its service's name."""
        folder = self._directory.region_dir(region)
        if not (folder / KAFKA_SERVERS_FILE).exists():
            return None
        return RegionConfig.load(folder / "region.json").log.bootstrap_servers.partition(":")[0]

    async def _kafkas(self) -> dict[str, Container]:
        """By their services' names."""
        found = await self._engine.containers(self._run_label, KAFKA_LABEL)
        return {kafka_service(owner): container for owner, container in found.items()}

    async def _missing_kafka(self, region: str) -> str | None:
        """The Kafka that was started for a region, when it does not run."""
        service = self._own_kafka(region)
        return service if service and _state(await self._kafkas(), service) == "gone" else None

    async def _while_kafkas_live(self, regions: Sequence[str], waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for regions, which would wait long for a Kafka that is not coming."""
        tasks = [asyncio.create_task(waiting)]
        if services := {service for region in regions if (service := self._own_kafka(region))}:
            tasks.append(asyncio.create_task(self._until_a_kafka_is_gone(services)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await next(task for task in reversed(tasks) if task.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_a_kafka_is_gone(self, services: Collection[str]) -> None:
        """Never returns; RuntimeFailure, with its last words, when one is."""
        while True:
            kafkas = await self._kafkas()
            for service in services:
                if service in kafkas and kafkas[service].state == "gone":
                    raise RuntimeFailure(f"{service} {await self._ending(kafkas[service])}")
            await asyncio.sleep(KAFKA_POLL_SECONDS)

    async def _states(self) -> dict[str, ProcessState]:
        states = await self._engine.states(self._run_label, REGION_LABEL)
        return {name: states.get(name, "gone") for name in self._directory.read().regions}

    async def _living(self, region: str) -> Container:
        refuse_unknown(self._directory.read(), region)
        containers = await self._containers()
        if _state(containers, region) == "gone":
            raise RuntimeFailure(f"{region} is not running: `geoemu start {region}`")
        return containers[region]

    def _prepare_start(self, record: RunRecord, name: str) -> None:
        self._write_links(record, name)
        forget_store(self._directory.configuration_dir(record.regions[name].cluster))
        record.regions[name].stopped = False
        record.regions[name].was_ready = False
        record.regions[name].lost = False

    async def _wait_for_state(self, name: str, *wanted: ProcessState) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while (await self._states())[name] not in wanted:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} is not {' or '.join(wanted)} after {STOP_SECONDS:g} s: look at it with `docker ps --all`"
            ) from None

    async def _stop(self, names: Sequence[str]) -> None:
        before = await self._containers()
        alive = [name for name in names if _state(before, name) != "gone"]
        await asyncio.gather(*(self._engine.stop(before[name], STOP_SECONDS) for name in alive))
        after = await self._containers()
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
        container = (await self._containers()).get(name)
        if container is None:
            return f"{name}'s container was removed before it was ready: `geoemu start {name}`"
        return f"{name} {await self._ending(container)}"

    async def _ending(self, container: Container) -> str:
        printed = await self._engine.output(container, lines=LAST_LINES)
        lines = "\n".join(f"    {line}" for line in printed.splitlines() or ["(nothing)"])
        return (
            f"ended with exit code {container.exit_code} before it was ready; "
            f"the last lines of `docker logs {container.name}`:\n{lines}"
        )

    def _refuse_if_over(self, record: RunRecord) -> None:
        if record.ended:
            raise Refused(f"the run in {self.run_dir} has ended: start a new one with `geoemu up`")


_KILLED_EXIT_CODE = 137
"""128 + SIGKILL."""


# --- making a run ---------------------------------------------------------------------------------------


def render(
    topology: Topology,
    run_dir: Path,
    *,
    log_format: str = "text",
    dashboards: bool = False,
    insecure: bool = False,
) -> None:
    """Write everything that `docker compose up` needs, and start nothing. It is a run like any other: once it is up,
    all verbs work on it. Refused as `ComposeRuntime.create` is, but no engine is needed."""
    topology = with_addresses(topology, insecure=insecure, in_containers=True)
    taken: list[str] = []
    with suppress(Refused):
        taken = Engine().subnets()
    with claim_new_run(run_dir) as directory:
        _fill(
            directory,
            topology,
            settings_from(os.environ),
            taken,
            detached=True,
            log_format=log_format,
            dashboards=dashboards,
        )


def _fill(
    directory: RunDirectory,
    topology: Topology,
    settings: ComposeSettings,
    taken_subnets: list[str],
    *,
    detached: bool,
    log_format: str = "text",
    dashboards: bool = False,
) -> None:
    """Everything a new run consists of before it is started."""
    project = project_name(topology, directory.path)
    published = _publish(topology, settings)
    services = len(topology.regions) + len(set(kafka_owners(topology, settings).values()))
    services += len(DASHBOARD_SERVICES) if dashboards else 0
    subnet = choose_subnet(services, project, settings.subnets, taken_subnets)
    plan = Plan(topology, settings, project, subnet, *_container_user(), published, dashboards)
    text = compose_file(plan)

    owner = identify(os.getpid())
    assert owner is not None, "we are running"
    regions = {
        region.name: region_record(
            region, published[region.name].service_port, published[region.name].admin_port
        )
        for region in topology.regions
    }
    directory.create(RunRecord("compose", owner, detached, regions, links_of(topology)), topology)
    folders = []
    run_token, run_secret = new_run_token(), new_run_secret()
    for name in regions:
        folders.append(directory.region_dir(name))
        config = apart_from_other_runs(container_config(plan, name, run_secret), run_token)
        config = dataclasses.replace(config, log_format=log_format)
        if (servers := published_kafka(plan, name)) is not None:
            config = _patient(config)
        write_whole(folders[-1] / "region.json", config.to_json())
        if servers is not None:
            write_whole(folders[-1] / KAFKA_SERVERS_FILE, f"{servers}\n")
    for kafka_owner in set(kafka_owners(topology, settings).values()):
        folders.append(directory.path / "kafka" / kafka_owner)
        folders[-1].mkdir(parents=True)
    folders.append(directory.path / REPORT_FOLDER)
    folders[-1].mkdir()
    if dashboards:
        folders.append(directory.path / PROFILE)
        for path, content in dashboard_files(plan).items():
            (folders[-1] / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folders[-1] / path, content)
    _give_to_containers(folders)
    write_whole(directory.path / "compose.yaml", text)


def _patient(config: RegionConfig) -> RegionConfig:
    """For a region whose Kafka starts when it does."""
    options = {"open_timeout_ms": round(READY_SECONDS * 1000), **config.log.options}
    return dataclasses.replace(config, log=dataclasses.replace(config.log, options=options))


def _publish(topology: Topology, settings: ComposeSettings) -> dict[str, Published]:
    """Where on the host everything is reached: ports that are free at this moment, or the topology's own."""
    with_kafka = set(kafka_owners(topology, settings).values())
    wanted = []
    for region in topology.regions:
        ports = [("service_port", region.service_port), ("admin_port", region.admin_port)]
        ports += [("kafka port", 0)] if region.name in with_kafka else []
        wanted += [WantedPort(region.name, key, region.address, port) for key, port in ports]
    ports_of: dict[str, list[int]] = {region.name: [] for region in topology.regions}
    for want, port in zip(wanted, choose_ports(wanted), strict=True):
        ports_of[want.region].append(port)
    return {region.name: Published(region.address, *ports_of[region.name]) for region in topology.regions}


def _container_user() -> tuple[int, int]:
    """Files in the run directory are to be ours, but no container runs as root."""
    return (os.getuid(), os.getgid()) if os.getuid() != 0 else (CONTAINER_USER, CONTAINER_USER)


def _give_to_containers(folders: Iterable[Path]) -> None:
    if os.getuid() != 0:
        return  # containers run as us
    user, group = _container_user()
    for folder in folders:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user, group)


def _check_images(engine: Engine, topology: Topology, settings: ComposeSettings) -> None:
    """Images of our own making are nowhere to be pulled from; others are Compose's business."""
    needed = {"region": settings.region_image}
    if kafka_owners(topology, settings):
        needed["kafka"] = settings.kafka_image
    missing = [
        kind for kind, image in needed.items() if image.endswith(":local") and not engine.has_image(image)
    ]
    if missing:
        raise Refused(
            f"image {' and '.join(needed[kind] for kind in missing)} is missing: "
            f"`bash compose/images.sh {' '.join(missing)}`"
        )
    for kind, image in needed.items():
        if sentence := stale_sentence(kind, image, engine.image_labels(image)):
            logger.warning(sentence)


def _state(containers: dict[str, Container], name: str) -> ProcessState:
    container = containers.get(name)
    return container.state if container else "gone"
