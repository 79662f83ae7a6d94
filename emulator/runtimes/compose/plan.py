"""The plan of a run in containers: images, ports, subnet, and the Kafka of each region."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from emulator.config.topology import RegionPorts, Topology
from emulator.errors import Refused

SMALLEST_SUBNET = 27
"""Prefix length of the smallest subnet that a run uses: it has room for 28 containers and the verdict's container."""


KafkaCount = Literal["each", "shared"]


@dataclass(frozen=True, slots=True)
class ComposeSettings:
    """Settings of containers that the topology does not contain."""

    region_image: str = "geoemu-region:local"
    kafka_image: str = "geoemu-kafka:local"
    spark_image: str = "geoemu-spark:local"
    prometheus_image: str = "prom/prometheus:v3.5.0"
    grafana_image: str = "grafana/grafana:12.1.0"
    subnets: str = "10.213.0.0/16"
    """The network from which each run uses a small subnet."""
    kafka: KafkaCount = "each"
    """Whether each region with the log backend kafka and without `bootstrap_servers` has its own Kafka, or all share
    one."""


def settings_from(environment: Mapping[str, str]) -> ComposeSettings:
    """Read the environment variables GEOEMU_REGION_IMAGE, GEOEMU_KAFKA_IMAGE, GEOEMU_SPARK_IMAGE,
    GEOEMU_PROMETHEUS_IMAGE, GEOEMU_GRAFANA_IMAGE, GEOEMU_SUBNETS and GEOEMU_KAFKA. Raises Refused for an invalid
    value."""
    names = {field.name: f"GEOEMU_{field.name.upper()}" for field in dataclasses.fields(ComposeSettings)}
    configured = {field: environment[name] for field, name in names.items() if environment.get(name)}
    settings = ComposeSettings(**configured)  # type: ignore[arg-type]
    if settings.kafka not in get_args(KafkaCount):
        raise Refused(f"GEOEMU_KAFKA is {settings.kafka!r}: each (region its own) or shared")
    try:
        network = ipaddress.IPv4Network(settings.subnets)
    except ValueError as problem:
        raise Refused(f"GEOEMU_SUBNETS: {problem}") from problem
    if network.prefixlen > SMALLEST_SUBNET:
        raise Refused(f"GEOEMU_SUBNETS is {network}: a run needs at least a /{SMALLEST_SUBNET}")
    return settings


@dataclass(frozen=True, slots=True)
class PublishedPorts:
    """The address and ports at which programs on the host reach one region's containers."""

    address: str
    """Address of this machine to which the ports are bound; 127.0.0.1 by default."""
    ports: RegionPorts
    kafka_port: int = 0
    """Published port of the region's Kafka container; 0: the region has none."""


@dataclass(frozen=True, slots=True)
class ComposePlan:
    """All inputs of the Compose file of a run."""

    topology: Topology
    settings: ComposeSettings
    project: str
    """Project name of the run in Compose, and the name of its network."""
    subnet: str
    user: int
    group: int
    published: Mapping[str, PublishedPorts]
    dashboards: bool = False
    """Whether the Compose file contains services for Prometheus and Grafana."""


def project_name(topology: Topology, run_dir: Path) -> str:
    """Return the project name of a run, which is unique to its run directory."""
    readable = re.sub(r"[^a-z0-9]+", "-", topology.name.lower()).strip("-")[:30]
    return f"geoemu-{readable}-{hashlib.sha256(str(run_dir).encode()).hexdigest()[:8]}"


def kafka_owners(topology: Topology, settings: ComposeSettings) -> dict[str, str]:
    """Return, for each region that needs a Kafka container, the region after which it is named. Raises Refused if a
    region has that container's name."""
    regions = [
        region.name
        for region in topology.regions
        if region.log.backend == "kafka" and not region.log.bootstrap_servers
    ]
    owners = {name: name if settings.kafka == "each" else regions[0] for name in regions}
    for owner in owners.values():
        if kafka_service(owner) in topology.region_names:
            raise Refused(
                f"region {kafka_service(owner)} has the name of the Kafka of region {owner}: rename it"
            )
    return owners


def kafka_service(owner: str) -> str:
    return f"kafka-{owner}"


def choose_subnet(container_count: int, project: str, subnets: str, used_subnets: list[str]) -> str:
    """Return a free subnet for `container_count` containers. The first candidate depends on the project, so that
    concurrent starts rarely collide. Raises Refused if there is none."""
    # Reserved addresses: network, broadcast, gateway and the verdict's container.
    prefix = min(SMALLEST_SUBNET, 32 - (container_count + 4 - 1).bit_length())
    whole = ipaddress.IPv4Network(subnets)
    if whole.prefixlen > prefix:
        raise Refused(f"GEOEMU_SUBNETS is {whole}: {container_count} containers need at least a /{prefix}")
    used = [ipaddress.IPv4Network(subnet) for subnet in used_subnets]
    count = 2 ** (prefix - whole.prefixlen)
    first = int(hashlib.sha256(project.encode()).hexdigest(), 16) % count
    for index in range(count):
        start = whole.network_address + (first + index) % count * 2 ** (32 - prefix)
        subnet = ipaddress.IPv4Network((start, prefix))
        if not any(subnet.overlaps(other) for other in used):
            return str(subnet)
    raise Refused(f"no free subnet in {whole}: end other runs, or set GEOEMU_SUBNETS to another network")
