"""The topology object that is read from the YAML files."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.loading import load_topology
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
from emulator.config.topology import RegionPorts, Topology, nearest, region_config
from emulator.errors import ConfigurationError
from tests.config.topology_files import write_topology

SAMPLE = Path(__file__).parents[2] / "topology.yaml"
PORTS = {
    "us-east": RegionPorts(6650, 8080),
    "us-west": RegionPorts(6651, 8081),
    "eu-central": RegionPorts(6652, 8082),
}


@pytest.fixture(scope="module")
def sample() -> Topology:
    return load_topology(SAMPLE)


class TestSample:
    def test_three_regions_in_two_clusters(self, sample: Topology) -> None:
        assert [
            (cluster.name, [region.name for region in cluster.regions]) for cluster in sample.clusters
        ] == [
            ("americas", ["us-east", "us-west"]),
            ("europe", ["eu-central"]),
        ]
        assert sample.region_names == ("us-east", "us-west", "eu-central")
        assert sample.region("us-west").cluster == "americas"

    def test_ports_are_free_ones_and_logs_are_sqlite(self, sample: Topology) -> None:
        assert {(region.service_port, region.admin_port) for region in sample.regions} == {(0, 0)}
        assert {region.log.backend for region in sample.regions} == {"sqlite"}

    def test_links_differ_by_direction(self, sample: Topology) -> None:
        assert {(link.source, link.target): link.shape.latency_ms for link in sample.links} == {
            ("us-east", "us-west"): 15,
            ("us-west", "us-east"): 15,
            ("us-east", "eu-central"): 40,
            ("eu-central", "us-east"): 40,
            ("us-west", "eu-central"): 65,
            ("eu-central", "us-west"): 70,
        }

    def test_the_default_namespace_is_replicated_and_deduplicated(self, sample: Topology) -> None:
        assert sample.namespaces == (
            NamespaceConfig("public/default", sample.region_names, deduplication=True),
        )

    def test_the_sample_for_containers_differs_in_its_runtime_and_its_log_only(
        self, sample: Topology
    ) -> None:
        containers = load_topology(SAMPLE.parent / "compose" / "topology.yaml")
        assert containers.runtime == "compose"
        assert all(region.log == LogConfig("kafka") for region in containers.regions)
        on_sqlite = containers.with_regions(lambda region: dataclasses.replace(region, log=LogConfig()))
        assert dataclasses.replace(on_sqlite, path=sample.path, runtime=sample.runtime) == sample


class TestDefaults:
    def test_clusters_alone_are_enough(self, tmp_path: Path) -> None:
        topology = load_topology(write_topology(tmp_path, "clusters: [americas]"))
        assert topology.runtime == "process"
        assert topology.path == tmp_path / "topology.yaml"
        assert topology.link("us-east", "us-west") == LinkShape()
        assert topology.tenants == ("public",)
        assert topology.namespaces == (NamespaceConfig("public/default", ("us-east", "us-west")),)
        assert topology.region("us-east").settings == BrokerSettings()

    def test_a_key_with_nothing_behind_it_means_the_default(self, tmp_path: Path) -> None:
        written = "clusters: [americas]\nlinks:\ntenants:\nnamespaces:\nlog:\nsettings:\ncompatibility:\n"
        topology = load_topology(write_topology(tmp_path, written))
        assert topology == load_topology(write_topology(tmp_path, "clusters: [americas]"))

    def test_namespaces_that_are_written_are_all_there_are(self, tmp_path: Path) -> None:
        topology = load_topology(
            write_topology(
                tmp_path,
                """
                clusters: [americas, europe]
                tenants: [acme]
                namespaces:
                  acme/orders: {regions: [eu-central, us-east], deduplication: true}
                  acme/local: {regions: [us-east]}
                  acme/all:
                """,
            )
        )
        assert topology.namespaces == (
            NamespaceConfig("acme/orders", ("eu-central", "us-east"), deduplication=True),
            NamespaceConfig("acme/local", ("us-east",)),
            NamespaceConfig("acme/all", ("us-east", "us-west", "eu-central")),
        )

    def test_without_the_tenant_public_there_is_no_public_namespace(self, tmp_path: Path) -> None:
        topology = load_topology(write_topology(tmp_path, "clusters: [americas]\ntenants: [acme]"))
        assert topology.namespaces == ()

    def test_scalars_are_those_of_yaml_1_2(self, tmp_path: Path) -> None:
        """`no` is the string for Norway, as it is in the editor."""
        path = write_topology(tmp_path, "clusters: [nordic]", nordic="regions: {no: , on: , 010: }")
        assert load_topology(path).region_names == ("no", "on", "010")


class TestExceptions:
    def test_one_way_counts_more_than_both_ways_in_any_order(self, tmp_path: Path) -> None:
        topology = load_topology(
            write_topology(
                tmp_path,
                """
                clusters: [americas]
                links:
                  defaults: {latency_ms: 10, jitter_ms: 1, bandwidth_bytes_per_second: 1000}
                  exceptions:
                    - {from: us-west, to: us-east, jitter_ms: 3}
                    - {between: [us-east, us-west], latency_ms: 20, jitter_ms: 2, bandwidth_bytes_per_second: }
                """,
            )
        )
        assert topology.link("us-east", "us-west") == LinkShape(20, 2, None)
        assert topology.link("us-west", "us-east") == LinkShape(20, 3, None)

    def test_the_innermost_log_counts_as_a_whole_and_settings_one_by_one(self, tmp_path: Path) -> None:
        topology = load_topology(
            write_topology(
                tmp_path,
                """
                clusters: [americas, europe]
                log: {backend: kafka, bootstrap_servers: "kafka:9092", options: {acks: all}}
                settings: {snapshot_interval_ms: 20, snapshot_timeout_ms: 100, snapshot_cache_size: 10}
                """,
                americas="""
                log: {backend: sqlite}
                settings: {snapshot_timeout_ms: 200, snapshot_cache_size: 20}
                regions:
                  us-east:
                    log: {backend: memory}
                    settings: {snapshot_cache_size: 100}
                  us-west:
                """,
            )
        )
        kafka = LogConfig("kafka", bootstrap_servers="kafka:9092", options={"acks": "all"})
        assert [region.log for region in topology.regions] == [
            LogConfig("memory"),
            LogConfig("sqlite"),
            kafka,
        ]
        assert [
            (s.snapshot_interval_ms, s.snapshot_timeout_ms, s.snapshot_cache_size)
            for s in (region.settings for region in topology.regions)
        ] == [(20, 200, 100), (20, 200, 20), (20, 100, 10)]

    def test_settings_whose_zero_has_a_meaning_may_be_zero(self, tmp_path: Path) -> None:
        topology = load_topology(
            write_topology(
                tmp_path,
                """
                clusters: [americas]
                settings: {topic_idle_ms: 0, exclusive_grace_period_ms: 0, metadata_sync_clock_ahead_ms_max: 0}
                """,
            )
        )
        settings = topology.regions[0].settings
        assert settings.topic_idle_ms == settings.exclusive_grace_period_ms == 0
        assert settings.metadata_sync_clock_ahead_ms_max == 0  # a scenario may override it with 0, too

    def test_anchors_and_merges_work(self, tmp_path: Path) -> None:
        topology = load_topology(
            write_topology(
                tmp_path,
                """
                clusters: [americas]
                links:
                  defaults: &far {latency_ms: 90, jitter_ms: 9}
                  exceptions:
                    - {<<: *far, from: us-east, to: us-west, jitter_ms: 1}
                """,
            )
        )
        assert topology.link("us-east", "us-west") == LinkShape(90, 1)


class TestQuestions:
    def test_an_unknown_region_gets_a_suggestion(self, sample: Topology) -> None:
        with pytest.raises(ConfigurationError, match=r"no such region.*did you mean 'us-east'"):
            sample.region("us-esat")
        with pytest.raises(ConfigurationError, match="no such region"):
            sample.link("us-east", "us-esat")

    def test_a_region_has_no_link_to_itself(self, sample: Topology) -> None:
        with pytest.raises(ConfigurationError, match="no link to itself"):
            sample.link("us-east", "us-east")

    @pytest.mark.parametrize(
        ("written", "meant"),
        [("us-esat", "us-east"), ("US-EAST", "us-east"), ("eu", None), ("", None), ("useast", "us-east")],
    )
    def test_nearest(self, written: str, meant: str | None) -> None:
        assert nearest(written, list(PORTS)) == meant


class TestTopologyJson:
    def test_a_run_reads_back_what_it_froze(self, sample: Topology) -> None:
        assert Topology.from_json(sample.to_json()) == sample

    def test_everything_that_may_be_written_survives(self, tmp_path: Path) -> None:
        topology = load_topology(
            write_topology(
                tmp_path,
                """
                name: a.b
                runtime: compose
                clusters: [americas]
                log: {backend: kafka, bootstrap_servers: "a:1,b:2", options: {prefix: x, nested: {deep: [1, null]}}}
                """,
            )
        )
        topology = dataclasses.replace(topology, compatibility={"overlapping_batches": "upstream"})
        assert Topology.from_json(topology.to_json()) == topology

    @pytest.mark.parametrize(
        "change", [{"version": 1}, {"clusters": [{}]}, {"links": [{}]}, {"colour": "red"}]
    )
    def test_another_version_is_refused(self, sample: Topology, change: dict[str, object]) -> None:
        text = json.dumps(json.loads(sample.to_json()) | change)
        with pytest.raises(ValueError, match="topology"):
            Topology.from_json(text)

    def test_reading_it_needs_no_yaml_and_no_pydantic(self) -> None:
        code = "import sys, emulator.config.topology; print({'yaml', 'pydantic'} & set(sys.modules))"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


class TestRegionConfig:
    def test_a_process_gets_its_ports_its_peers_and_both_directions_of_each_link(
        self, sample: Topology
    ) -> None:
        config = region_config(sample, "us-west", PORTS, region_dir=Path("/run/us-west"), owner_pid=7)
        assert (config.region, config.cluster, config.owner_pid) == ("us-west", "americas", 7)
        assert (config.bind_host, config.service_port, config.admin_port) == ("127.0.0.1", 6651, 8081)
        assert (config.advertised_host, config.advertised_service_port) == ("127.0.0.1", 0)
        assert config.log == LogConfig("sqlite", path="/run/us-west/log.sqlite")
        assert config.ready_file == "/run/us-west/ready.json"
        events = NamespaceConfig("pulsar/system", sample.region_names, deduplication=True)
        assert config.namespaces == (*sample.namespaces, events), "of the event topic, which is not declared"
        peers = {peer.region: peer for peer in config.peers}
        assert list(peers) == ["us-east", "eu-central"]
        assert (peers["eu-central"].cluster, peers["eu-central"].port) == ("europe", 6652)
        assert (peers["eu-central"].outbound.latency_ms, peers["eu-central"].inbound.latency_ms) == (65, 70)

    def test_a_container_is_reached_from_outside_by_another_address_than_by_its_peers(
        self, sample: Topology
    ) -> None:
        config = region_config(
            sample,
            "us-east",
            dict.fromkeys(PORTS, RegionPorts(6650, 8080)),
            region_dir=Path("/data"),
            bind_host="0.0.0.0",
            advertised_host="localhost",
            advertised_ports=RegionPorts(32001, 32002),
            peer_hosts={"us-west": "us-west.internal", "eu-central": "eu-central.internal"},
        )
        assert (config.bind_host, config.service_port) == ("0.0.0.0", 6650)
        assert (config.advertised_host, config.advertised_service_port) == ("localhost", 32001)
        assert [(peer.host, peer.port) for peer in config.peers] == [
            ("us-west.internal", 6650),
            ("eu-central.internal", 6650),
        ]

    def test_it_survives_its_file(self, sample: Topology) -> None:
        config = region_config(sample, "us-east", PORTS, region_dir=Path("/run"))
        assert RegionConfig.from_json(config.to_json()) == config
