"""Render the Compose file of a topology. Without side effects: no file, port or Docker engine is used.

The regions themselves emulate links (latency, cut, hold), so one network is enough and no container needs privileges.
Further services compute the verdict inside that network, one of them on a Spark cluster; they are started only with
their Compose profiles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from emulator.config.topology import RegionSpec, Topology
from emulator.errors import Refused
from emulator.net.addresses import in_url, nearby
from emulator.runtimes import dashboards
from emulator.runtimes.compose import spark_services
from emulator.runtimes.compose.plan import ComposePlan, kafka_owners, kafka_service
from emulator.runtimes.compose.region_container import (
    ADMIN_PORT,
    CONFIGURATION_DIR,
    KAFKA_INTERNAL_PORT,
    PORTS_IN_CONTAINER,
    REGION_DIR,
    secret_files,
)
from emulator.runtimes.dashboards import GRAFANA_SERVICE, PROMETHEUS_SERVICE

KAFKA_PUBLISHED_PORT = 9094
VERIFY_SERVICE = "verify"
"""The service that computes the verdict; also the name of its profile."""

SECRETS_FOLDER = "secrets"
"""Folder of the run directory with the files that are mounted as secrets."""
EVIDENCE_DIR = PurePosixPath("/evidence")
"""Mount point of the run directory in the verdict's service."""
REPORT_FOLDER = "report"
"""The only folder of the run directory to which the verdict's service may write."""
SUBMITTED_PROGRAM = "/geoemu/lib/spark_jobs/submit.py"
"""Path of the program for `spark-submit` in the image of the verdict's service."""
CONTAINER_USER = 10_001
"""User of containers when geoemu runs as root; otherwise they run as the current user."""
RUN_LABEL = "geoemu.run"
REGION_LABEL = "geoemu.region"
KAFKA_LABEL = "geoemu.kafka"


def published_kafka(plan: ComposePlan, region: str) -> str | None:
    """Return the address at which programs on the host reach the Kafka that is started for a region; None if none
    is."""
    owner = kafka_owners(plan.topology, plan.settings).get(region)
    if owner is None:
        return None
    return f"{in_url(nearby(plan.published[owner].address))}:{plan.published[owner].kafka_port}"


def dashboard_files(plan: ComposePlan) -> dict[str, str]:
    """Return the configuration files of Prometheus and Grafana, by path in their folder of the run directory."""
    regions = {name: f"{name}:{ADMIN_PORT}" for name in plan.topology.region_names}
    return dashboards.files(plan.topology.name, regions)


def compose_file(plan: ComposePlan) -> str:
    """Return the text of compose.yaml, with paths relative to the run directory. Raises Refused if a region has the
    name of another service."""
    reserved = {VERIFY_SERVICE: "service that verifies the run"}
    spark = (spark_services.MASTER_SERVICE, spark_services.WORKER_SERVICE, spark_services.SUBMIT_SERVICE)
    reserved |= dict.fromkeys(spark, "service of a Spark cluster")
    if plan.dashboards:
        _check_dashboards(plan.topology)
        reserved |= dict.fromkeys((PROMETHEUS_SERVICE, GRAFANA_SERVICE), "service that shows figures")
    for name in plan.topology.region_names:
        if name in reserved:
            raise Refused(f"region {name} has the name of the {reserved[name]}: rename it")
    owners = kafka_owners(plan.topology, plan.settings)
    kafkas = list(dict.fromkeys(owners.values()))
    parts = [
        _head(plan),
        _REGION.format(image=_quoted(plan.settings.region_image), user=plan.user, group=plan.group),
    ]
    if kafkas:
        parts.append(_KAFKA.format(image=_quoted(plan.settings.kafka_image), user=plan.user))
    parts.append(_spark_common(plan))
    parts.append("services:")
    parts += [_region_service(plan, region, owners.get(region.name)) for region in plan.topology.regions]
    parts += [_kafka_service(plan, owner) for owner in kafkas]
    parts.append(_verify_service(plan, kafkas))
    parts.append(_spark_services(plan, kafkas))
    if plan.dashboards:
        images = (_quoted(plan.settings.prometheus_image), _quoted(plan.settings.grafana_image))
        parts.append(dashboards.services(f"{plan.user}:{plan.group}", images, f"{RUN_LABEL}: {plan.project}"))
    parts.append(_volumes(plan))
    if secrets := secret_files(plan.topology):
        parts.append(_secrets(secrets))
    parts.append(_NETWORK.format(name=plan.project, subnet=plan.subnet))
    return "\n".join(parts)


def _check_dashboards(topology: Topology) -> None:
    """Raise Refused if Prometheus could not read the regions' metrics."""
    tls = topology.security.tls
    if tls is not None and not tls.plain_ports:
        raise Refused(
            "dashboards read the ports without TLS: set plain_ports to true in the topology, or omit --dashboards"
        )


def _head(plan: ComposePlan) -> str:
    return f"""\
# Topology {plan.topology.name} in containers, rendered by geoemu.
#
#   docker compose up --detach --wait      in this folder starts it; so does `geoemu up --runtime compose`,
#                                          into a run directory of its own
#   geoemu status --run-dir .              from then on geoemu's commands work on it, too
#   docker compose run --rm verify         verifies it inside its network; so does `geoemu verify --in-network`
#   docker compose run --rm spark-submit   verifies it on a Spark cluster of two workers inside its network
name: {plan.project}
"""


_REGION = """\
x-region: &region
  image: {image}
  user: "{user}:{group}"
  init: true
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  mem_limit: 512m
  pids_limit: 64
  restart: "no" # a killed region stays killed
  stop_grace_period: 10s
  networks: [regions]
  # Healthy: it accepts publishes. The state of its peers does not matter.
  healthcheck: {{ test: [CMD, healthy], interval: 2s, timeout: 3s, retries: 15 }}
"""

# The official image accepts the same variables. Kafka's defaults are for several brokers, and its timeouts for dead
# brokers are longer than a user waits.
_KAFKA = """\
x-kafka: &kafka
  image: {image}
  user: "{user}:0" # the official image grants this group write access
  init: true
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  mem_limit: 768m
  pids_limit: 256
  restart: "no"
  stop_grace_period: 10s
  networks: [regions]
  # Healthy: it answers which versions it speaks (ApiVersions, without an error), which an open port does not prove.
  healthcheck:
    test:
      - CMD
      - bash
      - -c
      - >-
        exec 3<>/dev/tcp/127.0.0.1/9092 &&
        printf '\\0\\0\\0\\016\\0\\022\\0\\0\\0\\0\\0\\001\\0\\004rdy?' >&3 &&
        [ $$(timeout 2 head -c 10 <&3 | tail -c 2 | od -An -tu1 | tr -d ' ') = 00 ]
    interval: 2s
    timeout: 3s
    retries: 15

x-kafka-environment: &kafka-environment
  CLUSTER_ID: geoemu-geoemu-geoemu-g
  KAFKA_PROCESS_ROLES: broker,controller
  KAFKA_NODE_ID: "1"
  KAFKA_CONTROLLER_QUORUM_VOTERS: 1@127.0.0.1:9093
  KAFKA_LISTENERS: REGION://0.0.0.0:9092,HOST://0.0.0.0:9094,CONTROLLER://127.0.0.1:9093
  KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: REGION:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT
  KAFKA_INTER_BROKER_LISTENER_NAME: REGION
  KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
  KAFKA_LOG_DIRS: /var/lib/kafka/data
  KAFKA_HEAP_OPTS: -Xms32m -Xmx128m
  KAFKA_AUTO_CREATE_TOPICS_ENABLE: "false"
  KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: "1"
  KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: "1"
  KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: "1"
  KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: "1"
  KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: "1"
  KAFKA_LOG_RETENTION_MS: "-1"
  KAFKA_MESSAGE_MAX_BYTES: "16777216"
  KAFKA_PRODUCER_ID_EXPIRATION_MS: "2147483647" # fencing works while Kafka remembers the last producer
  KAFKA_TRANSACTIONAL_ID_EXPIRATION_MS: "2147483647"
  KAFKA_LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: "9223372036854775807" # regions' clocks may be skewed
  KAFKA_BROKER_SESSION_TIMEOUT_MS: "1000" # back 3 s after a kill instead of 12
  KAFKA_BROKER_HEARTBEAT_INTERVAL_MS: "200"
"""

_NETWORK = """\
networks:
  regions:
    name: {name}
    ipam: {{ config: [{{ subnet: {subnet} }}] }}
"""


def _volumes(plan: ComposePlan) -> str:
    """Return the section of volumes: one configuration store per cluster, which exists until `down`."""
    lines = [
        f"  {_volume(plan, cluster.name)}: # of cluster {cluster.name}" for cluster in plan.topology.clusters
    ]
    return "\n".join(["volumes:", *lines, ""])


def _secrets(names: Iterable[str]) -> str:
    """Return the section of secrets: copies of the files that the topology names."""
    lines = [f"  {name}: {{ file: {_quoted(f'./{SECRETS_FOLDER}/{name}')} }}" for name in names]
    return "\n".join(["secrets:", *lines, ""])


def _volume(plan: ComposePlan, cluster: str) -> str:
    """Return the volume of a cluster. It has a number, because cluster names may contain characters that volume names
    must not."""
    return f"configuration-{[one.name for one in plan.topology.clusters].index(cluster)}"


def _region_service(plan: ComposePlan, region: RegionSpec, kafka_owner: str | None) -> str:
    name, published = region.name, plan.published[region.name]
    configuration = f"{_volume(plan, region.cluster)}:{CONFIGURATION_DIR}"
    text = f"""\
  {_quoted(name)}:
    <<: *region
    labels: {{ {RUN_LABEL}: {plan.project}, {REGION_LABEL}: {_quoted(name)} }}
    volumes: [{_quoted(f"./regions/{name}:{REGION_DIR}")}, {_quoted(configuration)}]
"""
    if secrets := secret_files(plan.topology):
        text += f"    secrets: [{', '.join(secrets)}]\n"
    text += "    ports:\n"
    for port, (key, scheme) in zip(published.ports, _SCHEMES.items(), strict=True):
        if port:
            text += f"      - {_port(published.address, port, PORTS_IN_CONTAINER[key])} # {scheme}://\n"
    if kafka_owner is not None:
        # `service_started`, not `service_healthy`: the region itself waits for Kafka, and can start meanwhile.
        kafka = _quoted(kafka_service(kafka_owner))
        text += f"    depends_on: {{ {kafka}: {{ condition: service_started }} }}\n"
    return text


_SCHEMES = {
    "service_port": "pulsar",
    "admin_port": "http",
    "service_port_tls": "pulsar+ssl",
    "admin_port_tls": "https",
}


def _kafka_service(plan: ComposePlan, owner: str) -> str:
    published, service = plan.published[owner], kafka_service(owner)
    inside = f"REGION://{service}:{KAFKA_INTERNAL_PORT}"
    outside = f"HOST://{in_url(plan.topology.region(owner).advertised)}:{published.kafka_port}"
    return f"""\
  {_quoted(service)}:
    <<: *kafka
    labels: {{ {RUN_LABEL}: {plan.project}, {KAFKA_LABEL}: {_quoted(owner)} }}
    environment:
      <<: *kafka-environment
      KAFKA_ADVERTISED_LISTENERS: {_quoted(f"{inside},{outside}")}
    volumes: [{_quoted(f"./kafka/{owner}:/var/lib/kafka/data")}]
    ports:
      - {_port(published.address, published.kafka_port, KAFKA_PUBLISHED_PORT)}
"""


def _verify_service(plan: ComposePlan, kafkas: list[str]) -> str:
    """Return the verdict's service. It depends on the Kafkas and not on regions, because the verdict reads only stored
    logs."""
    text = f"""\
  {VERIFY_SERVICE}:
    profiles: [{VERIFY_SERVICE}] # only when asked for: docker compose run --rm {VERIFY_SERVICE}
    image: {_quoted(plan.settings.spark_image)}
    user: "{plan.user}:{plan.group}"
    command: [--in-network, --called, {_quoted(plan.project)}]
    init: true
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    mem_limit: 4g
    pids_limit: 512
    restart: "no"
    networks: [regions]
    labels: {{ {RUN_LABEL}: {plan.project} }}
    volumes: [{_EVIDENCE}, {_REPORT}]
"""
    if kafkas:
        healthy = ", ".join(
            f"{_quoted(kafka_service(owner))}: {{ condition: service_healthy }}" for owner in kafkas
        )
        text += f"    depends_on: {{ {healthy} }}\n"
    return text


def _spark_common(plan: ComposePlan) -> str:
    image, label = _quoted(plan.settings.spark_image), f"{RUN_LABEL}: {plan.project}"
    return spark_services.common(image, f"{plan.user}:{plan.group}", label)


def _spark_services(plan: ComposePlan, kafkas: list[str]) -> str:
    command = (
        f"[{SUBMITTED_PROGRAM}, verify, {EVIDENCE_DIR}, --in-network, --called, {_quoted(plan.project)}]"
    )
    needed = [_quoted(kafka_service(owner)) for owner in kafkas]
    return spark_services.services(command, _EVIDENCE, _REPORT, needed)


def _port(address: str, outside: int, inside: int) -> str:
    return _quoted(f"{in_url(address)}:{outside}:{inside}")


def _quoted(text: str) -> str:
    """Quote a text for YAML as a JSON string, unless it is a plain word. `$` is doubled, because it begins a variable
    in Compose."""
    return (
        text
        if re.fullmatch(r"[a-z][a-z0-9-]*", text) and text not in _YAML_WORDS
        else json.dumps(text).replace("$", "$$")
    )


_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_EVIDENCE = _quoted(f".:{EVIDENCE_DIR}:ro")
_REPORT = _quoted(f"./{REPORT_FOLDER}:{EVIDENCE_DIR / REPORT_FOLDER}")
"""Volumes of services that compute a verdict."""
