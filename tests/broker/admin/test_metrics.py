"""Metrics for Prometheus: exposition formats, the names that Pulsar's dashboards use, bounds."""

from __future__ import annotations

import asyncio
import re

import pytest

from emulator.broker.admin import region_metrics
from emulator.broker.admin.exposition import OPENMETRICS, PROMETHEUS, MetricFamily, text_of, wants_openmetrics
from emulator.client import Client, InitialPosition
from tests.broker.admin.served import Served
from tests.broker.regions import regions, until

TOPIC = "persistent://public/default/orders"
LINE = re.compile(r"[a-z_0-9]+(\{[a-z_]+=\"(?:[^\"\\\n]|\\.)*\"(,[a-z_]+=\"(?:[^\"\\\n]|\\.)*\")*\})? \S+")
DASHBOARDS = (
    "pulsar_topics_count",
    "pulsar_producers_count",
    "pulsar_consumers_count",
    "pulsar_subscriptions_count",
    "pulsar_rate_in",
    "pulsar_rate_out",
    "pulsar_throughput_in",
    "pulsar_throughput_out",
    "pulsar_storage_size",
    "pulsar_msg_backlog",
    "pulsar_subscription_back_log",
    "pulsar_subscription_msg_rate_out",
    "pulsar_subscription_msg_throughput_out",
    "pulsar_broker_topics_count",
    "pulsar_active_connections",
)
REPLICATION = (
    "pulsar_replication_rate_in",
    "pulsar_replication_rate_out",
    "pulsar_replication_throughput_in",
    "pulsar_replication_throughput_out",
    "pulsar_replication_backlog",
    "pulsar_replication_connected_count",
    "pulsar_replicated_subscriptions_pending_snapshots",
    "pulsar_storage_write_rate",
    "pulsar_storage_read_rate",
    "pulsar_storage_backlog_quota_limit",
    "pulsar_storage_backlog_quota_limit_time",
    "pulsar_storage_write_latency_le_0_5",
    "pulsar_storage_write_latency_overflow",
    "pulsar_entry_size_le_128",
    "pulsar_entry_size_le_overflow",
)


def used(us: Served) -> dict[tuple[str, str], float]:
    """Return the metrics, by name and topic, of a region in which three messages were published and one consumed."""

    async def scenario(client: Client) -> dict[tuple[str, str], float]:
        consumer = await client.subscribe(TOPIC, "billing", initial_position=InitialPosition.EARLIEST)
        producer = await client.producer(TOPIC)
        for _ in range(3):
            await producer.send(b"x")
        await consumer.acknowledge(await consumer.receive(), confirmed=True)
        return await asyncio.to_thread(samples, us)

    return us.run(scenario)


def samples(us: Served) -> dict[tuple[str, str], float]:
    found = {}
    for line in us.ask("GET", "/metrics").body.decode().splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"([a-z_0-9]+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            topic = re.search(r'topic="([^"]*)"', labels or "")
            found[name, topic[1] if topic else ""] = float(value)
    return found


def test_every_name_of_the_dashboards_has_data(us: Served) -> None:
    found = used(us)
    names = {name for name, _ in found}
    assert [name for name in DASHBOARDS if name not in names] == []
    assert found["pulsar_in_messages_total", TOPIC] == 3
    assert found["pulsar_subscription_back_log", TOPIC] == 2
    assert found["pulsar_producers_count", TOPIC] == found["pulsar_consumers_count", TOPIC] == 1
    assert found["pulsar_broker_msg_backlog", ""] == 2
    assert found["pulsar_storage_write_rate", TOPIC] == found["pulsar_entry_size_le_128", TOPIC] > 0
    latencies = [value for (name, of), value in found.items() if "_latency_" in name and of == TOPIC]
    assert sum(latencies) > 0
    assert found["pulsar_storage_backlog_quota_limit", TOPIC] == -1


@pytest.mark.parametrize(
    ("accept", "kind", "last"),
    [("", PROMETHEUS, None), ("application/openmetrics-text; version=1.0.0, */*", OPENMETRICS, "# EOF")],
)
def test_both_forms_are_well_made(us: Served, accept: str, kind: str, last: str | None) -> None:
    used(us)
    reply = us.ask("GET", "/metrics", headers={"Accept": accept})
    assert reply.headers["content-type"] == kind
    lines = reply.body.decode().splitlines()
    assert (lines[-1] == "# EOF") == (last is not None)
    seen: list[str] = []
    for line in lines:
        if line.startswith("# TYPE"):
            seen.append(line.split()[2])
        elif not line.startswith("#"):
            assert LINE.fullmatch(line), line
            name = re.match(r"[a-z_0-9]+", line)
            assert name is not None
            assert name[0] in (seen[-1], f"{seen[-1]}_total"), "samples follow their family"
    assert len(seen) == len(set(seen)), "each family appears once"


def test_labels_are_escaped() -> None:
    family = MetricFamily("a_total", "counter", 'says "b"\n')
    family.add(1, {"topic": 'x"\\\n'})
    assert text_of([family, MetricFamily("none", "gauge", "")], openmetrics=False) == (
        '# HELP a_total says "b"\\n\n# TYPE a_total counter\na_total{topic="x\\"\\\\\\n"} 1\n'
    )
    assert "# TYPE a counter\n" in text_of([family], openmetrics=True)
    assert not wants_openmetrics("text/plain;version=0.0.4")


def test_a_limited_number_of_topics_have_series(us: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_metrics, "TOPICS_MAX", 2)
    for name in "abc":
        assert us.ask("PUT", f"/admin/v2/persistent/public/default/{name}").status == 204
    found = samples(us)
    assert [name for name, topic in found if name == "pulsar_rate_in"] == ["pulsar_rate_in"] * 2
    assert found["geoemu_topics_without_series", ""] == 1
    assert found["pulsar_broker_topics_count", ""] == 3


def test_topics_without_series_are_counted_whatever_the_limit(
    us: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_metrics, "SERIES_MAX", 1)
    for name in "abc":
        assert us.ask("PUT", f"/admin/v2/persistent/public/default/{name}/subscription/s").status == 204
    found = samples(us)
    assert [name for name, topic in found if name == "pulsar_rate_in"] == ["pulsar_rate_in"]
    assert found["geoemu_topics_without_series", ""] == 2


async def test_replication_has_figures_by_region() -> None:
    async with regions("us", "eu") as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        await producer.send(b"x")
        eu = world.running["eu"]
        await until(
            lambda: TOPIC in eu.directory.serving and eu.directory.serving[TOPIC].state.stored_end > 0
        )
        families = {one.name: one for one in await region_metrics.families_of(world.running["us"])}
        for name in REPLICATION:
            assert families[name].samples, name
        labels = dict(families["pulsar_replication_backlog"].samples[0][0])
        assert labels["remote_cluster"] == "eu"
        connected = {labels: value for labels, value, _ in families["geoemu_link_connected"].samples}
        assert connected[("cluster", "us"), ("remote_cluster", "eu")]
