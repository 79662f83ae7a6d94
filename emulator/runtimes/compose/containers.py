"""The containers of one run. They are found by their labels, and the engine reports their states on every call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Coroutine, Sequence
from functools import cached_property
from typing import Any

from emulator.config.region import RegionConfig
from emulator.errors import Refused, RuntimeFailure
from emulator.run.directory import RunDirectory, refuse_unknown
from emulator.run.processes import ProcessState
from emulator.runtimes.compose.file import KAFKA_LABEL, REGION_LABEL, RUN_LABEL
from emulator.runtimes.compose.plan import kafka_service
from emulator.runtimes.compose.region_container import CONFIGURATION_DIR
from emulator.runtimes.compose.run_files import KAFKA_SERVERS_FILE
from emulator.runtimes.docker_engine import Container, DockerEngine
from emulator.runtimes.region_processes import LAST_LINES, output_log
from emulator.runtimes.regions import delete_store_copy

STOP_SECONDS = 10.0
"""Time that a container may take to end after SIGTERM; then it is killed with SIGKILL."""
KAFKA_POLL_SECONDS = 0.5


class RunContainers:
    """The containers of a run's regions, and of the Kafkas that were started for them."""

    def __init__(self, directory: RunDirectory, engine: DockerEngine) -> None:
        self._directory = directory
        self.engine = engine

    @cached_property
    def _run_label(self) -> str:
        """The label of all containers of the run. It is read from the Compose file, because the run directory may have
        been moved."""
        file = self._directory.path / "compose.yaml"
        try:
            found = re.search(r"^name: (\S+)$", file.read_text(), re.MULTILINE)
        except OSError as failure:
            raise Refused(f"{file} cannot be read ({failure.strerror}): start a new run") from failure
        if found is None:
            raise Refused(f"{file} has no `name`, by which the run's containers are found: start a new run")
        return f"{RUN_LABEL}={found[1]}"

    async def output(self, region: str, container: Container | None) -> str:
        if container is not None:
            return await self.engine.output(container)
        file = output_log(self._directory.region_dir(region))
        return file.read_text(errors="replace") if file.exists() else ""

    async def copy_output(self) -> None:
        """Copy the containers' output to the run directory, before the containers are removed."""
        for name, container in (await self.by_region()).items():
            output_log(self._directory.region_dir(name)).write_text(await self.engine.output(container))

    async def copy_stores(self) -> None:
        """Copy each configuration store that no running or paused region has open from its volume to the run directory,
        for the verdict and before the volumes are removed."""
        containers = await self.by_region()
        clusters = {name: region.cluster for name, region in self._directory.read().regions.items()}
        in_use = {clusters[name] for name, container in containers.items() if container.state != "gone"}
        last = {clusters[name]: container for name, container in containers.items()}
        for cluster in last.keys() - in_use:
            folder = self._directory.configuration_dir(cluster)
            delete_store_copy(folder)
            await self.engine.copy_out(last[cluster], str(CONFIGURATION_DIR), folder)

    async def by_region(self) -> dict[str, Container]:
        return await self.engine.containers(self._run_label, REGION_LABEL)

    def _own_kafka(self, region: str) -> str | None:
        """Return the service name of the Kafka that was started for a region, or None."""
        folder = self._directory.region_dir(region)
        if not (folder / KAFKA_SERVERS_FILE).exists():
            return None
        return RegionConfig.load(folder / "region.json").log.bootstrap_servers.partition(":")[0]

    async def _kafkas(self) -> dict[str, Container]:
        """Return the containers of Kafkas, by their service names."""
        found = await self.engine.containers(self._run_label, KAFKA_LABEL)
        return {kafka_service(owner): container for owner, container in found.items()}

    async def missing_kafka(self, region: str) -> str | None:
        """Return the service name of the Kafka that was started for a region, if that Kafka does not run; else None."""
        service = self._own_kafka(region)
        return service if service and state_of_container(await self._kafkas(), service) == "gone" else None

    async def while_kafkas_run(self, regions: Sequence[str], waiting: Coroutine[Any, Any, None]) -> None:
        """Await `waiting`. Raises RuntimeFailure soon after a Kafka of these regions has ended, instead of at the time
        limit."""
        tasks = [asyncio.create_task(waiting)]
        if services := {service for region in regions if (service := self._own_kafka(region))}:
            tasks.append(asyncio.create_task(self._until_a_kafka_ends(services)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await next(task for task in reversed(tasks) if task.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_a_kafka_ends(self, services: Collection[str]) -> None:
        """Poll until a Kafka has ended, then raise RuntimeFailure with its last output."""
        while True:
            kafkas = await self._kafkas()
            for service in services:
                if service in kafkas and kafkas[service].state == "gone":
                    raise RuntimeFailure(f"{service} {await self.describe_end(kafkas[service])}")
            await asyncio.sleep(KAFKA_POLL_SECONDS)

    async def states(self) -> dict[str, ProcessState]:
        states = await self.engine.states(self._run_label, REGION_LABEL)
        return {name: states.get(name, "gone") for name in self._directory.read().regions}

    async def require_running(self, region: str) -> Container:
        refuse_unknown("region", region, self._directory.read().regions)
        containers = await self.by_region()
        if state_of_container(containers, region) == "gone":
            raise RuntimeFailure(f"{region} is not running: `geoemu start {region}`")
        return containers[region]

    async def wait_for_state(self, name: str, *wanted: ProcessState) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while (await self.states())[name] not in wanted:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise RuntimeFailure(
                f"{name} is not {' or '.join(wanted)} after {STOP_SECONDS:g} s: look at it with `docker ps --all`"
            ) from None

    async def describe_end(self, container: Container) -> str:
        printed = await self.engine.output(container, lines=LAST_LINES)
        lines = "\n".join(f"    {line}" for line in printed.splitlines() or ["(nothing)"])
        return (
            f"ended with exit code {container.exit_code} before it was ready; "
            f"the last lines of `docker logs {container.name}`:\n{lines}"
        )


def state_of_container(containers: dict[str, Container], name: str) -> ProcessState:
    container = containers.get(name)
    return container.state if container else "gone"
