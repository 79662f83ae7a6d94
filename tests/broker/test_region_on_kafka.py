"""A region as a process, on a real Kafka, with a real client."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from emulator.config.region import LogConfig
from emulator.runtimes.kafka_server import KafkaServer
from tests.broker.kafka_region import DEADLINE_SECONDS, RegionProcess
from tests.storage.kafka_place import new_prefix

TOPIC = "orders"


@pytest.fixture
def log(kafka_server: KafkaServer) -> LogConfig:
    servers = kafka_server.bootstrap_servers
    return LogConfig("kafka", bootstrap_servers=servers, options={"topic_prefix": new_prefix()})


@pytest.fixture
def start(tmp_path: Path, log: LogConfig) -> Iterator[object]:
    started: list[RegionProcess] = []

    def start() -> RegionProcess:
        started.append(RegionProcess(tmp_path / str(len(started)), log))
        return started[-1]

    yield start
    for region in started:
        region.kill()


def publish(client: pulsar.Client, start: int, count: int) -> None:
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(start, start + count):
        producer.send(b"%d" % number)


def subscribe(client: pulsar.Client) -> pulsar.Consumer:
    return client.subscribe(TOPIC, "billing", initial_position=pulsar.InitialPosition.Earliest)


@pytest.mark.real
def test_a_region_that_was_killed_goes_on_from_kafka_alone(start):
    """Messages and cursors survive; acknowledged messages are not redelivered."""
    region = start()
    client = region.client()
    consumer = subscribe(client)
    publish(client, 0, 50)
    for number in range(20):
        message = consumer.receive(5000)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    consumer.close()  # waits until its acknowledgements are stored
    region.kill()
    client = start().client()
    publish(client, 50, 50)
    consumer = subscribe(client)
    assert [consumer.receive(5000).data() for _ in range(80)] == [b"%d" % number for number in range(20, 100)]
    client.close()


@pytest.mark.real
def test_a_region_that_was_paused_and_replaced_ends_when_it_wakes_up(start):
    """It exits with code 1, without having stored anything."""
    old = start()
    client = old.client()
    producer = client.create_producer(TOPIC)
    producer.send(b"0")
    old.process.send_signal(signal.SIGSTOP)
    producer.send_async(b"zombie", lambda *_: None)
    new = start()
    old.process.send_signal(signal.SIGCONT)
    assert old.process.wait(DEADLINE_SECONDS) == 1
    successor = new.client()
    publish(successor, 1, 1)
    consumer = subscribe(successor)
    assert [consumer.receive(5000).data() for _ in range(2)] == [b"0", b"1"]
    successor.close()


@pytest.mark.real
def test_an_idle_region_also_notices_that_it_was_replaced(start):
    """So that idle clients do not wait there for ever."""
    old = start()
    start()
    assert old.process.wait(DEADLINE_SECONDS) == 1
