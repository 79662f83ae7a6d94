"""A topology as a Compose file: the whole text is kept in tests/transcripts, so that a change of it is seen.

REWRITE_TRANSCRIPTS=1 pytest tests/runtimes/test_compose_file.py    writes what is rendered now; look at the diff
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.config.region import LogConfig
from emulator.config.topology import RegionPorts
from emulator.errors import GeoemuError, Refused
from emulator.runtimes.compose.command import compose_command
from emulator.runtimes.compose.file import compose_file, published_kafka
from emulator.runtimes.compose.plan import (
    ComposePlan,
    ComposeSettings,
    PublishedPorts,
    choose_subnet,
    kafka_owners,
    project_name,
    settings_from,
)
from emulator.runtimes.compose.region_container import container_config

from .fixtures import small_topology, with_regions

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"


def plan(
    folder: Path, log: str = "sqlite", *, servers: str = "", dashboards: bool = False, **settings: str
) -> ComposePlan:
    topology = with_regions(small_topology(folder), log=LogConfig(log, bootstrap_servers=servers))
    published = {
        name: PublishedPorts("127.0.0.1", RegionPorts(16_650 + index, 18_080 + index), 19_092 + index)
        for index, name in enumerate(topology.region_names)
    }
    compose_settings = ComposeSettings(**settings)  # type: ignore[arg-type]
    return ComposePlan(
        topology,
        compose_settings,
        "geoemu-small-1234",
        "10.213.0.0/27",
        10_001,
        10_001,
        published,
        dashboards,
    )


@pytest.mark.parametrize(
    ("transcript", "log", "settings"),
    [
        ("compose-sqlite.yaml", "sqlite", {}),
        ("compose-kafka.yaml", "kafka", {}),
        ("compose-kafka-shared.yaml", "kafka", {"kafka": "shared", "kafka_image": "apache/kafka:4.1.0"}),
        ("compose-dashboards.yaml", "sqlite", {"dashboards": True}),
    ],
)
def test_the_file_is_as_it_was(tmp_path: Path, transcript: str, log: str, settings: dict[str, Any]) -> None:
    text = compose_file(plan(tmp_path, log, **settings))
    path = TRANSCRIPTS / transcript
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(text)
    assert path.exists(), "REWRITE_TRANSCRIPTS=1 writes it"
    assert text == path.read_text()


@pytest.mark.parametrize("transcript", sorted(TRANSCRIPTS.glob("compose-*.yaml")), ids=lambda path: path.name)
def test_compose_itself_accepts_the_file(transcript: Path) -> None:
    try:
        command = compose_command()
    except Refused as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [*command, "--file", str(transcript), "config", "--quiet"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_container_runs_as_root_or_writes_outside_of_what_is_mounted(tmp_path: Path) -> None:
    for service in yaml.safe_load(compose_file(plan(tmp_path, dashboards=True)))["services"].values():
        assert not service["user"].startswith("0")
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_in_containers_regions_find_each_other_by_name_and_clients_by_published_ports(tmp_path: Path) -> None:
    config = container_config(plan(tmp_path), "us-west")
    assert [(peer.host, peer.port) for peer in config.peers] == [("us-east", 6650), ("eu-central", 6650)]
    assert (config.internal_host, config.internal_port) == ("us-west", 6650)
    assert (config.advertised_host, config.advertised_service_port) == ("127.0.0.1", 16_651)
    assert (config.bind_host, config.service_port) == ("0.0.0.0", 6652)
    assert config.log == LogConfig("sqlite", path="/region/log.sqlite")


def test_each_region_has_a_kafka_of_its_own_or_all_share_one_or_the_user_has_one(tmp_path: Path) -> None:
    own = plan(tmp_path, "kafka")
    assert container_config(own, "us-west").log.bootstrap_servers == "kafka-us-west:9092"
    assert published_kafka(own, "us-west") == "127.0.0.1:19093"
    shared = plan(tmp_path, "kafka", kafka="shared")
    assert container_config(shared, "us-west").log.bootstrap_servers == "kafka-us-east:9092"
    assert published_kafka(shared, "us-west") == "127.0.0.1:19092"
    users = plan(tmp_path, "kafka", servers="kafka.example:9092")
    assert container_config(users, "us-west").log.bootstrap_servers == "kafka.example:9092"
    assert published_kafka(users, "us-west") is None
    assert "kafka" not in yaml.safe_load(compose_file(users))["services"]


def test_a_region_may_not_be_called_like_anothers_kafka(tmp_path: Path) -> None:
    topology = with_regions(small_topology(tmp_path), log=LogConfig("kafka"))
    first, *others = topology.clusters
    clash = dataclasses.replace(first.regions[0], name="kafka-us-west")
    clashing = dataclasses.replace(
        topology, clusters=(dataclasses.replace(first, regions=(clash, *first.regions[1:])), *others)
    )
    with pytest.raises(Refused, match="rename it"):
        kafka_owners(clashing, ComposeSettings())


SPARK = ["spark-master", "spark-worker", "spark-submit"]


def test_the_verifier_is_a_service_that_compose_starts_only_with_its_profile(tmp_path: Path) -> None:
    """It reads everything, writes its report, and needs the Kafkas and no region."""
    services = yaml.safe_load(compose_file(plan(tmp_path, "kafka")))["services"]
    assert [name for name, service in services.items() if "profiles" in service] == ["verify", *SPARK]
    verify = services["verify"]
    assert verify["volumes"] == [".:/evidence:ro", "./report:/evidence/report"]
    assert list(verify["depends_on"]) == ["kafka-us-east", "kafka-us-west", "kafka-eu-central"]
    shared = yaml.safe_load(compose_file(plan(tmp_path, "kafka", kafka="shared")))["services"]
    assert list(shared["verify"]["depends_on"]) == ["kafka-us-east"]
    assert "depends_on" not in yaml.safe_load(compose_file(plan(tmp_path)))["services"]["verify"]


def test_a_region_may_not_have_the_name_of_the_verifier_service(tmp_path: Path) -> None:
    first, *others = small_topology(tmp_path).clusters
    clash = dataclasses.replace(first.regions[0], name="verify")
    clashing = dataclasses.replace(
        small_topology(tmp_path),
        clusters=(dataclasses.replace(first, regions=(clash, *first.regions[1:])), *others),
    )
    with pytest.raises(Refused, match="rename it"):
        compose_file(dataclasses.replace(plan(tmp_path), topology=clashing))


def test_names_that_yaml_or_compose_would_read_as_something_else_stay_names(tmp_path: Path) -> None:
    topology = small_topology(tmp_path)
    first, *others = topology.clusters
    odd = tuple(
        dataclasses.replace(region, name=name)
        for region, name in zip(first.regions, ("1e3", "no"), strict=True)
    )
    named = dataclasses.replace(topology, clusters=(dataclasses.replace(first, regions=odd), *others))
    published = {name: PublishedPorts("::1", RegionPorts(1, 2)) for name in named.region_names}
    text = compose_file(dataclasses.replace(plan(tmp_path), topology=named, published=published))
    services = yaml.safe_load(text)["services"]
    assert list(services) == ["1e3", "no", "eu-central", "verify", *SPARK]
    assert services["no"]["ports"][0] == "[::1]:1:6652"
    assert services["no"]["labels"]["geoemu.region"] == "no"


def test_a_run_takes_a_small_free_subnet() -> None:
    first = choose_subnet(6, "geoemu-a", "10.213.0.0/16", [])
    assert ipaddress.IPv4Network(first).prefixlen == 27
    assert choose_subnet(6, "geoemu-a", "10.213.0.0/16", []) == first
    second = choose_subnet(6, "geoemu-a", "10.213.0.0/16", [first, "172.17.0.0/16"])
    assert not ipaddress.IPv4Network(first).overlaps(ipaddress.IPv4Network(second))
    assert ipaddress.IPv4Network(choose_subnet(28, "geoemu-a", "10.213.0.0/16", [])).prefixlen == 27
    assert ipaddress.IPv4Network(choose_subnet(29, "geoemu-a", "10.213.0.0/16", [])).prefixlen == 26
    with pytest.raises(Refused, match="no free subnet"):
        choose_subnet(6, "geoemu-a", "10.213.0.0/26", ["10.213.0.0/24"])


def test_project_names_are_compose_s_and_different_for_different_folders(tmp_path: Path) -> None:
    topology = dataclasses.replace(small_topology(tmp_path), name="My.Topology_1")
    one, other = (project_name(topology, Path(folder)) for folder in ("/a", "/b"))
    assert one.startswith("geoemu-my-topology-1-")
    assert one != other


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"GEOEMU_KAFKA": "two"}, "GEOEMU_KAFKA is 'two'"),
        ({"GEOEMU_SUBNETS": "10.0.0.1/16"}, "host bits"),
        ({"GEOEMU_SUBNETS": "10.0.0.0/30"}, "at least a /27"),
    ],
)
def test_settings_that_cannot_be_are_refused(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(GeoemuError, match=complaint):
        settings_from(environment)


def test_settings_come_from_the_environment() -> None:
    assert settings_from({}) == ComposeSettings()
    assert settings_from({"GEOEMU_KAFKA_IMAGE": "apache/kafka:4.1.0"}).kafka_image == "apache/kafka:4.1.0"
    assert settings_from({"GEOEMU_SPARK_IMAGE": "here:1"}).spark_image == "here:1"
