"""Prometheus and Grafana with a run: their generated configuration, and that a real Prometheus scrapes metrics with
it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from emulator.client import Client
from emulator.config.loading import load_topology
from emulator.errors import Refused
from emulator.runtimes.compose.run_files import render
from emulator.runtimes.dashboards import PANELS, board, grafana_source_file, prometheus_file
from emulator.runtimes.process import ProcessRuntime
from tests.cli.test_cli import geoemu
from tests.runtimes.fixtures import REGIONS, small_topology, write_topology

TOPIC = "persistent://public/default/orders"
DEADLINE_SECONDS = 30.0
STOCK = (
    'sum(pulsar_topics_count{job=~"broker", cluster=~".*"})',
    'sum(pulsar_rate_in{job=~"broker", cluster=~".*"}) by (cluster)',
    'sum(pulsar_rate_out{job=~"broker", cluster=~".*"}) by (cluster)',
    'sum(pulsar_throughput_in{job=~"broker", cluster=~".*", namespace=~"public/default"}) by (cluster, namespace)',
    'sum(pulsar_throughput_out{job=~"broker", cluster=~".*", namespace=~"public/default"}) by (cluster, namespace)',
    'sum(pulsar_producers_count{cluster=~".*", job=~"broker", namespace=~".*"})',
    'sum(pulsar_consumers_count{cluster=~".*", job=~"broker", namespace=~".*"})',
    'sum(pulsar_subscriptions_count{cluster=~".*", job=~"broker", namespace=~".*"})',
    'sum(pulsar_msg_backlog{job=~"broker"}) by (cluster)',
    'topk(10, sum(pulsar_msg_backlog{job=~"broker"}) by (topic))',
    'topk(10, sum(pulsar_storage_size{job=~"broker", cluster=~".*"}) by (topic))',
    'sum(pulsar_storage_backlog_size{job=~"broker", cluster=~".*"}) by (cluster)',
    'sum(pulsar_storage_offloaded_size{cluster=~".*", namespace=~".*", topic=~".*"}) by (cluster, namespace, topic)',
    'sum(pulsar_replication_backlog{cluster=~".*", job=~"broker"}) by (cluster, remote_cluster)',
    'sum(pulsar_replication_rate_in{cluster=~".*", remote_cluster!="local"}) by (cluster, remote_cluster)',
    'sum(pulsar_replication_rate_out{cluster=~".*", namespace=~".*", topic=~".*"})',
    'pulsar_subscription_back_log{cluster=~".*", namespace=~".*", topic=~".*"}',
    'sum(pulsar_subscription_delayed{cluster=~".*"}) by (cluster, namespace, topic, subscription)',
    'pulsar_subscription_msg_rate_out{cluster=~".*", namespace=~".*", topic=~".*"}',
    'pulsar_subscription_msg_throughput_out{cluster=~".*", namespace=~".*", topic=~".*"}',
    'sum(pulsar_storage_write_rate{cluster=~".*", job=~"broker"}) by (cluster)',
    'sum(pulsar_storage_read_rate{cluster=~".*", job=~"broker"}) by (cluster)',
    'sum(pulsar_storage_backlog_quota_limit{cluster=~".*", namespace=~".*", topic=~".*"})',
    'sum(pulsar_storage_write_latency_le_0_5{cluster=~".*", job=~"broker"})',
    'sum(pulsar_storage_write_latency_le_1000{cluster=~".*", job=~"broker"})',
    'sum(pulsar_storage_write_latency_overflow{cluster=~".*", job=~"broker"})',
    'sum(pulsar_entry_size_le_128{cluster=~".*", job=~"broker"})',
    'sum(pulsar_entry_size_le_1_mb{cluster=~".*", job=~"broker"})',
    'sum(pulsar_entry_size_le_overflow{cluster=~".*", job=~"broker"})',
    'sum(pulsar_txn_active_count{cluster=~".*"})',
    'pulsar_version_info{cluster=~".*"}',
)
"""Queries of the common dashboards for Pulsar: the pages on messaging, topics, transactions, and the overview. Left out
is what a region does not have: BookKeeper's ledgers, ZooKeeper, the JVM, bundles and load reports."""


def test_each_panel_of_the_dashboard_has_its_query_and_its_place() -> None:
    shown = json.loads(board("small"))
    assert [one["targets"][0]["expr"] for one in shown["panels"]] == [panel.query for panel in PANELS]
    assert len({(one["gridPos"]["x"], one["gridPos"]["y"]) for one in shown["panels"]}) == len(PANELS)
    source = yaml.safe_load(grafana_source_file())["datasources"][0]
    assert {one["datasource"]["uid"] for one in shown["panels"]} == {source["uid"]}


def test_what_is_rendered_has_all_that_is_mounted(tmp_path: Path) -> None:
    write_topology(tmp_path)
    done = geoemu("render", "--output", "containers", "--dashboards", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "containers"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["dashboards"]
        for volume in services[name]["volumes"]:
            assert (folder / volume.split(":")[0]).exists(), volume
    config = yaml.safe_load((folder / "dashboards" / "prometheus.yml").read_text())
    targets = [one["targets"] for one in config["scrape_configs"][0]["static_configs"]]
    assert sorted(targets) == sorted([f"{region}:8080"] for region in REGIONS)
    assert geoemu("render", "--output", "without", folder=tmp_path).returncode == 0
    assert "prometheus" not in (tmp_path / "without" / "compose.yaml").read_text()


@contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[str]:
    """Start a real Prometheus; yield its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus")
    (folder / "prometheus.yml").write_text(prometheus_file(targets, interval_seconds=1))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def series(url: str, query: str) -> list[dict[str, object]]:
    """Return Prometheus's response; nothing while it starts."""
    try:
        with urlopen(f"{url}/api/v1/query?query={quote(query)}", timeout=10) as answer:
            found: list[dict[str, object]] = json.load(answer)["data"]["result"]
            return found
    except URLError as problem:
        if getattr(problem, "code", 503) != 503:
            raise
        return []


def unanswered(url: str, queries: list[str]) -> list[str]:
    """Return the queries without data, once all have some or the deadline is over."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while left := [query for query in queries if not series(url, query)]:
        if time.monotonic() > deadline:
            return left
        queries = left
    return []


@pytest.mark.real
@pytest.mark.long
def test_a_real_prometheus_has_an_answer_to_every_query_of_ours_and_of_pulsars_dashboards(
    tmp_path: Path,
) -> None:
    run = ProcessRuntime.create(small_topology(tmp_path), tmp_path / "run")

    async def scenario() -> None:
        await run.up()
        found = (await run.status()).regions
        targets = {one.name: re.sub("^http://", "", one.admin_url) for one in found}
        async with Client([found[0].service_url]) as client:
            consumer = await client.subscribe(TOPIC, "billing", replicated=True)
            producer = await client.producer(TOPIC)
            await producer.send(b"one")
            await consumer.acknowledge(await consumer.receive(), confirmed=True)
            with prometheus(tmp_path, targets) as url:
                queries = [*STOCK, *(panel.query for panel in PANELS)]
                assert await asyncio.to_thread(unanswered, url, queries) == []
                up = {str(one["metric"]["instance"]) for one in series(url, 'up{job="broker"} == 1')}  # type: ignore[index]
                assert up == set(REGIONS)

    asyncio.run(scenario())


def test_a_region_that_is_called_like_a_service_is_refused(tmp_path: Path) -> None:
    write_topology(tmp_path)
    (tmp_path / "clusters" / "europe.yaml").write_text("regions:\n  grafana: {}\n")
    with pytest.raises(Refused, match="region grafana has the name of the service that shows figures"):
        render(load_topology(tmp_path / "topology.yaml"), tmp_path / "containers", dashboards=True)
