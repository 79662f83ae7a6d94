"""Regions as containers whose logs are on Kafkas in containers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.region_config import LogConfig
from emulator.runtimes.compose import ComposeRuntime
from emulator.runtimes.compose_file import KAFKA_LABEL
from emulator.runtimes.opening import open_run

from .containers import need_containers, remove
from .fixtures import small_topology
from .test_compose import publish, received, states, tell
from .test_compose_file import with_log

pytestmark = pytest.mark.real

UP_SECONDS = 120


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_containers("region", "kafka")
    folder = tmp_path_factory.mktemp("compose-kafka")
    run_dir = folder / "run"
    try:
        topology = with_log(small_topology(folder), LogConfig("kafka"))
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


def test_a_kafka_that_is_gone_is_told_of_and_comes_back_with_its_region(run: ComposeRuntime) -> None:
    """What was acknowledged before is still there. (tests/drills kills under load.)"""
    publish(run, "us-west", "kept", "before")

    async def kill_kafka() -> None:
        await run._engine.kill((await run._engine.containers(run._run_label, KAFKA_LABEL))["us-west"])

    tell(kill_kafka())
    waiting_for = {region.name: region.waiting_for for region in tell(run.status()).regions}
    assert "kafka-us-west does not run: `geoemu start us-west`" in waiting_for["us-west"]
    tell(run.start("us-west"))
    assert received(run, "us-west", "kept", 1) == ["before"]
    assert states(tell(run.status())) == dict.fromkeys(run.topology.region_names, "running")


def test_what_a_region_stored_can_be_read_from_the_host(run: ComposeRuntime) -> None:
    from kafka import KafkaConsumer

    publish(run, "us-east", "evidence", "1")
    servers = (run.run_dir / "regions" / "us-east" / "kafka_servers").read_text().strip()
    consumer = KafkaConsumer(bootstrap_servers=servers)
    try:
        assert any("evidence" in topic for topic in consumer.topics())
    finally:
        consumer.close()
