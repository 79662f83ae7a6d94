"""Write the files of a run in containers: run record, region configurations, `compose.yaml`, and folders."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from emulator.config.region import RegionConfig
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.run.directory import RunDirectory, claim_new_run, replace_file
from emulator.run.record import new_record
from emulator.runtimes.compose.file import (
    CONTAINER_USER,
    REPORT_FOLDER,
    SECRETS_FOLDER,
    compose_file,
    dashboard_files,
    published_kafka,
)
from emulator.runtimes.compose.plan import (
    ComposePlan,
    ComposeSettings,
    PublishedPorts,
    choose_subnet,
    kafka_owners,
    project_name,
    settings_from,
)
from emulator.runtimes.compose.region_container import container_config, secret_files
from emulator.runtimes.dashboards import DASHBOARD_SERVICES, PROFILE
from emulator.runtimes.docker_engine import DockerEngine
from emulator.runtimes.image_sources import stale_warning
from emulator.runtimes.listening import WantedPort, choose_ports, with_addresses
from emulator.runtimes.region_processes import new_run_secret, new_run_token, with_topic_prefix
from emulator.runtimes.run_secrets import protect_regions, with_secret_files, write_control

logger = logging.getLogger(__name__)

READY_SECONDS = 60.0
"""Time that a region may take until it is ready. It starts together with its Kafka, and waits for that."""
KAFKA_SERVERS_FILE = "kafka_servers"
"""File beside region.json with the address at which programs on the host reach the region's Kafka; in the run's network
it has another address."""


def render(
    topology: Topology,
    run_dir: Path,
    *,
    log_format: str = "text",
    dashboards: bool = False,
    insecure: bool = False,
) -> None:
    """Write all files that `docker compose up` needs, and start nothing. When the run is up, all commands work on it as
    on any other run. Raises Refused like `ComposeRuntime.create`, but needs no Docker engine."""
    topology = with_addresses(topology, insecure=insecure, in_containers=True)
    used_subnets: list[str] = []
    with suppress(Refused):
        used_subnets = DockerEngine().subnets()
    with claim_new_run(run_dir) as directory:
        fill_run(
            directory,
            topology,
            settings_from(os.environ),
            used_subnets,
            detached=True,
            log_format=log_format,
            dashboards=dashboards,
        )


def fill_run(
    directory: RunDirectory,
    topology: Topology,
    settings: ComposeSettings,
    used_subnets: list[str],
    *,
    detached: bool,
    log_format: str = "text",
    dashboards: bool = False,
) -> None:
    """Write all files of a new run that is not started yet."""
    run_token, run_secret = new_run_token(), new_run_secret()
    topology = with_secret_files(topology, directory.path, os.environ)
    control = write_control(directory, topology, run_secret)
    project = project_name(topology, directory.path)
    published = _choose_published_ports(topology, settings)
    services = len(topology.regions) + len(set(kafka_owners(topology, settings).values()))
    services += len(DASHBOARD_SERVICES) if dashboards else 0
    subnet = choose_subnet(services, project, settings.subnets, used_subnets)
    plan = ComposePlan(topology, settings, project, subnet, *_container_user(), published, dashboards)
    text = compose_file(plan)

    ports = {name: one.ports for name, one in published.items()}
    directory.create(new_record("compose", topology, ports, detached=detached, control=control), topology)
    protect_regions(directory, topology)
    folders = []
    for name in topology.region_names:
        folders.append(directory.region_dir(name))
        config = with_topic_prefix(container_config(plan, name, run_secret), run_token)
        config = dataclasses.replace(config, log_format=log_format)
        if (servers := published_kafka(plan, name)) is not None:
            config = _with_open_timeout(config)
        replace_file(folders[-1] / "region.json", config.to_json())
        if servers is not None:
            replace_file(folders[-1] / KAFKA_SERVERS_FILE, f"{servers}\n")
    for kafka_owner in set(kafka_owners(topology, settings).values()):
        folders.append(directory.path / "kafka" / kafka_owner)
        folders[-1].mkdir(parents=True)
    if secret_files(topology):
        folders.append(directory.path / SECRETS_FOLDER)
        _copy_secrets(topology, folders[-1])
    folders.append(directory.path / REPORT_FOLDER)
    folders[-1].mkdir()
    if dashboards:
        folders.append(directory.path / PROFILE)
        for path, content in dashboard_files(plan).items():
            (folders[-1] / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(folders[-1] / path, content)
    _change_owner(folders)
    replace_file(directory.path / "compose.yaml", text)


def _with_open_timeout(config: RegionConfig) -> RegionConfig:
    """Return the configuration with a longer timeout for opening the log, for a region that starts with its Kafka."""
    options = {"open_timeout_ms": round(READY_SECONDS * 1000), **config.log.options}
    return dataclasses.replace(config, log=dataclasses.replace(config.log, options=options))


def _choose_published_ports(topology: Topology, settings: ComposeSettings) -> dict[str, PublishedPorts]:
    """Return the published address and ports of each region: ports of the topology, or for 0 ports that are free
    now."""
    with_kafka = set(kafka_owners(topology, settings).values())
    wanted = []
    for region in topology.regions:
        ports = [*topology.wanted_ports(region).items()]
        ports += [("kafka port", 0)] if region.name in with_kafka else []
        wanted += [WantedPort(region.name, key, region.address, port) for key, port in ports]
    ports_of: dict[str, list[int]] = {region.name: [] for region in topology.regions}
    for want, port in zip(wanted, choose_ports(wanted), strict=True):
        ports_of[want.region].append(port)
    found = {}
    for region in topology.regions:
        chosen = ports_of[region.name]
        kafka_port = chosen.pop() if region.name in with_kafka else 0
        found[region.name] = PublishedPorts(region.address, topology.region_ports(chosen), kafka_port)
    return found


def _copy_secrets(topology: Topology, folder: Path) -> None:
    """Copy the files that are mounted as secrets; only their owner can read them."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, path in secret_files(topology).items():
        try:
            content = Path(path).read_bytes()
        except OSError as failure:
            raise Refused(f"{path} cannot be read: {failure.strerror}") from failure
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)


def _container_user() -> tuple[int, int]:
    """Return user and group of containers: the current ones, so that the user owns the files of the run; CONTAINER_USER
    for root."""
    return (os.getuid(), os.getgid()) if os.getuid() != 0 else (CONTAINER_USER, CONTAINER_USER)


def _change_owner(folders: Iterable[Path]) -> None:
    if os.getuid() != 0:
        return  # containers run as the current user
    user, group = _container_user()
    for folder in folders:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user, group)


def check_images(engine: DockerEngine, topology: Topology, settings: ComposeSettings) -> None:
    """Raise Refused if a local image is missing, because it cannot be pulled, and warn about outdated images. Compose
    pulls other images."""
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
        if sentence := stale_warning(kind, image, engine.image_labels(image)):
            logger.warning(sentence)
