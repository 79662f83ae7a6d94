"""Regions as containers whose logs are on Kafkas in containers: what is acknowledged survives either, and both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from emulator.region_config import LogConfig
from emulator.runtimes.compose import ComposeRuntime
from emulator.runtimes.compose_file import KAFKA_LABEL
from emulator.runtimes.opening import open_run

from .containers import need_containers, remove
from .fixtures import small_topology
from .test_compose import RECEIVE_MS, TOPIC, client, container, publish, received, states, tell
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


@pytest.mark.parametrize("killed", ["region", "kafka", "both"])
def test_what_was_acknowledged_survives_a_kill(run: ComposeRuntime, killed: str) -> None:
    topic = f"killed-{killed}"
    acknowledged: list[str] = []
    half, go_on = threading.Event(), threading.Event()

    def done(text: str, result: pulsar.Result) -> None:
        if result == pulsar.Result.Ok:
            acknowledged.append(text)
        if len(acknowledged) == 50:
            half.set()

    with client(run, "us-west") as west:
        producer = west.create_producer(TOPIC.format(topic), send_timeout_millis=60_000)

        def send() -> None:
            for number in range(20_000):
                if go_on.is_set() and number >= 200:
                    break
                text = str(number)
                producer.send_async(text.encode(), lambda result, _, text=text: done(text, result))
                go_on.wait(0.005)

        sender = threading.Thread(target=send)
        sender.start()
        assert half.wait(30)
        tell(_kill(run, killed))
        if killed == "kafka":
            waiting_for = {region.name: region.waiting_for for region in tell(run.status()).regions}
            assert "kafka-us-west does not run: `geoemu start us-west`" in waiting_for["us-west"]
        tell(run.start("us-west"))
        go_on.set()
        sender.join()
        producer.flush()
    assert set(acknowledged) <= set(everything(run, "us-west", topic))
    assert states(tell(run.status())) == dict.fromkeys(run.topology.region_names, "running")


def everything(run: ComposeRuntime, region: str, topic: str) -> list[str]:
    """All that is in a topic now."""
    with client(run, region) as there:
        reader = there.create_reader(TOPIC.format(topic), pulsar.MessageId.earliest)
        texts = []
        while reader.has_message_available():
            texts.append(reader.read_next(timeout_millis=RECEIVE_MS).data().decode())
        return texts


async def _kill(run: ComposeRuntime, killed: str) -> None:
    kafka = (await run._engine.containers(run._run_label, KAFKA_LABEL))["us-west"]
    region = await container(run, "us-west")
    victims = {"region": [region], "kafka": [kafka], "both": [region, kafka]}[killed]
    await asyncio.gather(*(run._engine.kill(victim) for victim in victims))


def test_what_a_region_stored_can_be_read_from_the_host(run: ComposeRuntime) -> None:
    from kafka import KafkaConsumer

    publish(run, "us-east", "evidence", "1")
    servers = (run.run_dir / "regions" / "us-east" / "kafka_servers").read_text().strip()
    consumer = KafkaConsumer(bootstrap_servers=servers)
    try:
        assert any("evidence" in topic for topic in consumer.topics())
    finally:
        consumer.close()
