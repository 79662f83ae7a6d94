"""Retention, expiry and quotas delete records in Kafka itself: checked in Kafka and on its disk, not in the region."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from kafka import KafkaConsumer, TopicPartition

from emulator.config.region import LogConfig
from emulator.runtimes.kafka_server import KafkaServer
from tests.broker.kafka_region import DEADLINE_SECONDS, RegionProcess
from tests.storage.kafka_place import new_prefix, running_kafka

TOPIC = "orders"
POLICIES = "/admin/v2/namespaces/public/default"
NOTHING_IS_KEPT = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
ROUND_MESSAGES, MESSAGE_BYTES = 20, 100_000


class Place:
    """One region's topics in a Kafka, and the regions that were started on them."""

    def __init__(self, folder: Path, server: KafkaServer, **options: object) -> None:
        self._folder = folder
        self._server = server
        self._prefix = new_prefix()
        self._options = {"topic_prefix": self._prefix, **options}
        self._kafka = KafkaConsumer(
            bootstrap_servers=server.bootstrap_servers, group_id=None, enable_auto_commit=False
        )
        self.started: list[RegionProcess] = []

    def start(self) -> RegionProcess:
        log = LogConfig("kafka", bootstrap_servers=self._server.bootstrap_servers, options=self._options)
        self.started.append(
            RegionProcess(self._folder / str(len(self.started)), log, housekeeping_interval_ms=50)
        )
        return self.started[-1]

    def offsets(self) -> tuple[int, int]:
        """Return the first and the next offset of the topic's log in Kafka."""
        (name,) = [one for one in self._kafka.topics() if one.startswith(self._prefix) and TOPIC in one]
        at = TopicPartition(name, 0)
        return self._kafka.beginning_offsets([at])[at], self._kafka.end_offsets([at])[at]

    def close(self) -> None:
        for region in self.started:
            region.kill()
        self._kafka.close()

    def bytes_on_disk(self, kafka_folder: Path) -> int:
        """Return the bytes of the topic's segments, including those that Kafka is about to delete."""
        segments = (kafka_folder / "data").glob(f"{self._prefix}*{TOPIC}*/*.log*")
        return sum(path.stat().st_size for path in segments if path.exists())


@pytest.fixture
def place(tmp_path: Path, kafka_server: KafkaServer) -> Iterator[Place]:
    made = Place(tmp_path, kafka_server)
    yield made
    made.close()


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def subscribe(client: pulsar.Client, name: str) -> pulsar.Consumer:
    return client.subscribe(TOPIC, name, initial_position=pulsar.InitialPosition.Earliest)


def publish(client: pulsar.Client, count: int, size_bytes: int = 8) -> None:
    """Each message begins with its number."""
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(count):
        producer.send(b"%08d" % number + bytes(size_bytes - 8))
    producer.close()


def consume(consumer: pulsar.Consumer, count: int) -> list[int]:
    numbers = []
    for _ in range(count):
        message = consumer.receive(DEADLINE_SECONDS * 1000)
        numbers.append(int(message.data()[:8]))
        consumer.acknowledge(message)
    return numbers


@pytest.mark.real
def test_kafka_trims_what_every_subscription_acknowledged_and_nothing_else(place: Place) -> None:
    """Also across a kill of the region: it continues from there, and trimmed records do not come back."""
    region = place.start()
    region.ask("POST", f"{POLICIES}/retention", NOTHING_IS_KEPT)
    client = region.client()
    quick, slow = subscribe(client, "quick"), subscribe(client, "slow")
    publish(client, 50)
    assert consume(quick, 50) == consume(slow, 50)[:50] == [*range(50)]
    until(lambda: place.offsets()[0] == place.offsets()[1], place.offsets)
    publish(client, 30)
    _, end = place.offsets()
    assert consume(quick, 30) == [*range(30)]
    assert consume(slow, 10) == [*range(10)]
    until(lambda: place.offsets() == (end - 20, end), place.offsets)
    quick.close()
    slow.close()
    region.kill()
    region = place.start()  # its cluster's policies were only in its memory
    region.ask("POST", f"{POLICIES}/retention", NOTHING_IS_KEPT)
    client = region.client()
    assert consume(subscribe(client, "slow"), 20) == [*range(10, 30)]
    until(lambda: place.offsets()[0] >= end, place.offsets)
    publish(client, 1)
    assert consume(subscribe(client, "quick"), 1) == consume(subscribe(client, "new"), 1) == [0]
    client.close()


@pytest.mark.real
def test_kafka_trims_expired_messages(place: Place) -> None:
    region = place.start()
    region.ask("POST", f"{POLICIES}/retention", NOTHING_IS_KEPT)
    client = region.client()
    consumer = subscribe(client, "s")
    consumer.close()
    publish(client, 20)
    assert place.offsets()[0] == 0, "the subscription still needs it"
    region.ask("POST", f"{POLICIES}/messageTTL", 1)
    until(lambda: place.offsets()[0] == place.offsets()[1], place.offsets)
    region.ask("DELETE", f"{POLICIES}/messageTTL")
    publish(client, 1)
    assert consume(subscribe(client, "s"), 1) == [0]
    client.close()


@pytest.mark.real
def test_kafka_trims_what_a_quota_evicts(place: Place) -> None:
    region = place.start()
    region.ask("POST", f"{POLICIES}/retention", NOTHING_IS_KEPT)
    client = region.client()
    subscribe(client, "s").close()
    publish(client, 10, 10_000)
    quota = {"limitSize": 50_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    region.ask("POST", f"{POLICIES}/backlogQuota?backlogQuotaType=destination_storage", quota)
    until(lambda: place.offsets()[0] == place.offsets()[1] - 4, place.offsets)
    assert consume(subscribe(client, "s"), 4) == [6, 7, 8, 9]
    client.close()


@pytest.mark.real
@pytest.mark.long
def test_kafkas_disk_does_not_grow_with_an_acknowledged_stream(tmp_path: Path) -> None:
    """Kafka frees whole segments, and checks for them from time to time."""
    folder = tmp_path / "kafka"
    settings = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "200"}
    small = {"segment.bytes": str(1_048_576), "file.delete.delay.ms": "100"}
    with running_kafka(folder, **settings) as server:
        place = Place(tmp_path, server, topic_config=small)
        region = place.start()
        region.ask("POST", f"{POLICIES}/retention", NOTHING_IS_KEPT)
        client = region.client()
        consumer = subscribe(client, "s")
        for _ in range(6):
            publish(client, ROUND_MESSAGES, MESSAGE_BYTES)
            consume(consumer, ROUND_MESSAGES)
            until(lambda: place.offsets()[0] == place.offsets()[1], place.offsets)
        round_bytes = ROUND_MESSAGES * MESSAGE_BYTES
        until(
            lambda: place.bytes_on_disk(folder) <= round_bytes,
            lambda: sorted((one.name, one.stat().st_size) for one in folder.glob(f"data/*{TOPIC}*/*")),
        )
        client.close()
        place.close()
