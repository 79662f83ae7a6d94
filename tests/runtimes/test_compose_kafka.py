"""Regions as containers whose logs are on Kafkas in containers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from emulator.config.region import LogConfig
from emulator.errors import RuntimeFailure
from emulator.runtimes.compose.command import compose
from emulator.runtimes.compose.file import KAFKA_LABEL
from emulator.runtimes.compose.runtime import ComposeRuntime
from emulator.runtimes.opening import open_run

from .containers import need_containers, remove
from .fixtures import small_topology, with_regions
from .test_compose import complete, publish, received, states

pytestmark = [pytest.mark.real, pytest.mark.slow]

UP_SECONDS = 120


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_containers("region", "kafka")
    folder = tmp_path_factory.mktemp("compose-kafka")
    run_dir = folder / "run"
    try:
        topology = with_regions(small_topology(folder), log=LogConfig("kafka"))
        runtime = ComposeRuntime.create(topology, run_dir, detached=True)
        asyncio.run(asyncio.wait_for(runtime.up(), UP_SECONDS))
        yield run_dir
    finally:
        asyncio.run(remove(run_dir))


@pytest.fixture
def run(run_dir: Path) -> ComposeRuntime:
    runtime = open_run(run_dir)
    assert isinstance(runtime, ComposeRuntime)
    return runtime


def test_a_region_keeps_nothing_of_its_own(run: ComposeRuntime) -> None:
    publish(run, "us-east", "orders", "1", "2", "3")
    assert received(run, "eu-central", "orders", 3) == ["1", "2", "3"]
    assert not list((run.run_dir / "regions" / "us-east").glob("log.sqlite*"))


def test_a_kafka_that_is_gone_is_reported_and_comes_back_with_its_region(run: ComposeRuntime) -> None:
    """Acknowledged messages are still there. (tests/drills kills under load.)"""
    publish(run, "us-west", "kept", "before")

    async def kill_kafka() -> None:
        await run._containers.engine.kill(
            (await run._containers.engine.containers(run._containers._run_label, KAFKA_LABEL))["us-west"]
        )

    complete(kill_kafka())
    waiting_for = {region.name: region.waiting_for for region in complete(run.status()).regions}
    assert "kafka-us-west is not running: `geoemu start us-west`" in waiting_for["us-west"]
    complete(run.start("us-west"))
    assert received(run, "us-west", "kept", 1) == ["before"]
    assert states(complete(run.status())) == dict.fromkeys(run.topology.region_names, "running")


def test_what_a_region_stored_can_be_read_from_the_host(run: ComposeRuntime) -> None:
    publish(run, "us-east", "evidence", "1")
    assert any("evidence" in topic for topic in topics_of(run, "us-east"))


def test_a_started_region_goes_on_with_the_topics_it_had(run: ComposeRuntime) -> None:
    publish(run, "us-east", "same", "1")
    before = topics_of(run, "us-east")
    complete(run.restart("us-east"))
    publish(run, "us-east", "same", "2")
    assert topics_of(run, "us-east") == before
    assert len({topic.partition(".")[0] for topic in before}) == 1


def test_another_run_on_the_same_kafka_does_not_interfere(run: ComposeRuntime, tmp_path: Path) -> None:
    """Its regions have the same names. With the same topics they would fence those of the first run."""
    publish(run, "us-east", "mine", "first")
    log = LogConfig("kafka", bootstrap_servers="kafka-us-east:9092")
    other = ComposeRuntime.create(
        with_regions(small_topology(tmp_path), log=log), tmp_path / "other", detached=True
    )

    async def start_other() -> None:
        await compose(other.run_dir, "create", seconds=UP_SECONDS)
        kafka = (await run._containers.engine.containers(run._containers._run_label, KAFKA_LABEL))["us-east"]
        network = other._containers._run_label.partition("=")[2]
        connect = ["docker", "network", "connect", "--alias", "kafka-us-east", network, kafka.name]
        subprocess.run(connect, check=True, capture_output=True)
        await other.up()

    async def remove_other() -> None:
        kafka = (await run._containers.engine.containers(run._containers._run_label, KAFKA_LABEL))["us-east"]
        network = other._containers._run_label.partition("=")[2]
        subprocess.run(["docker", "network", "disconnect", network, kafka.name], capture_output=True)
        await remove(other.run_dir)

    try:
        complete(start_other())
        publish(other, "us-east", "mine", "second")
        assert received(other, "us-west", "mine", 1) == ["second"]
        publish(run, "us-east", "mine", "third")
        assert received(run, "us-west", "mine", 2) == ["first", "third"]
        for each in (run, other):
            assert states(complete(each.status())) == dict.fromkeys(run.topology.region_names, "running")
    finally:
        complete(remove_other())


def test_a_kafka_that_does_not_start_is_reported_with_its_output(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: regions would wait for it until their timeout."""
    monkeypatch.setenv("GEOEMU_KAFKA_IMAGE", "geoemu-region:local")  # it is no Kafka
    other = ComposeRuntime.create(
        with_regions(small_topology(tmp_path), log=LogConfig("kafka")), tmp_path / "other"
    )
    try:
        with pytest.raises(RuntimeFailure, match=r"^kafka-\S+ ended with exit code 2 (.|\n)*region\.json"):
            complete(other.up())
    finally:
        asyncio.run(remove(other.run_dir))


def topics_of(run: ComposeRuntime, region: str) -> set[str]:
    """Return Kafka's topics, as the host sees them."""
    servers = (run.run_dir / "regions" / region / "kafka_servers").read_text().strip()
    consumer = KafkaConsumer(bootstrap_servers=servers)
    try:
        return {topic for topic in consumer.topics() if not topic.startswith("__")}
    finally:
        consumer.close()
