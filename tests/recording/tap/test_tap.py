"""The tap's record of an unchanged client matches what the client did and the region stored."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pulsar  # type: ignore[import-untyped]
import pytest

import geoemu
from emulator.run.history_events import payload_digest
from tests.recording.regions import LiveRun, asked_and_stored
from tests.runtimes.fixtures import wait_until

pytestmark = pytest.mark.real

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
FROM_THE_START = pulsar.InitialPosition.Earliest
RECEIVE_MS = 10_000


class Tapping:
    """A tap with a history, topic and clients of one test."""

    def __init__(self, live: LiveRun, name: str) -> None:
        self.live = live
        self.actor = name
        self.topic = f"persistent://public/default/{name}"
        self.tap = geoemu.attach(live.run_dir).tap(name)
        self.clients: list[Any] = []

    def client(self, region: str = "us-east") -> Any:
        client = pulsar.Client(self.tap.url(region), logger=QUIET)
        self.clients.append(client)
        return client

    def lines(self, op: str, outcome: str = "") -> list[dict[str, Any]]:
        return self.live.lines(self.actor, op, outcome)

    def leave(self) -> None:
        for client in self.clients:
            client.close()
        self.tap.close()


@pytest.fixture
def tapping(live: LiveRun, request: pytest.FixtureRequest) -> Iterator[Tapping]:
    made = Tapping(live, re.sub(r"\W+", "-", request.node.name).strip("-"))
    yield made
    made.leave()
    assert not live.file(made.actor).damages


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("compression", ["NONE", "ZLib", "LZ4", "ZSTD"])
def test_each_message_of_a_batch_is_known_however_it_is_packed(
    tapping: Tapping, batching: bool, compression: str
) -> None:
    producer = tapping.client().create_producer(
        tapping.topic,
        producer_name="shop",
        batching_enabled=batching,
        batching_max_publish_delay_ms=50,
        compression_type=getattr(pulsar.CompressionType, compression),
    )
    receipts = threading.Semaphore(0)
    for number in range(20):
        attributes: dict[str, Any] = {"partition_key": str(number)} if number % 2 else {}
        if number % 3 == 0:
            attributes |= {"properties": {"number": str(number)}, "event_timestamp": number + 1}
        producer.send_async(b"payload " * number, lambda *_: receipts.release(), **attributes)
    for _ in range(20):
        assert receipts.acquire(timeout=20)
    requested, stored = asked_and_stored(tapping.live, tapping.actor, "us-east", tapping.topic)
    # A message in an encoding that the tap cannot open is recorded by its number alone.
    assert {number: requested[number][1:] for number in requested} == {
        number: stored[number][1:] for number in stored
    }
    assert [requested[number] for number in stored if stored[number][0] is not None] == [
        said for said in stored.values() if said[0] is not None
    ]
    assert len(requested) == 20
    places = {
        (row["ledger_id"], row["entry_id"], row["batch_index"])
        for row in tapping.live.stored("us-east", tapping.topic)
    }
    confirmed = {tuple(map(int, line["message_id"].split(":"))) for line in tapping.lines("publish", "ok")}
    assert confirmed == places
    if not batching or compression in ("NONE", "ZLib"):
        assert [line.get("key") for line in tapping.lines("publish", "asked")][:2] == [None, "1"]


def test_a_message_in_pieces_is_one(tapping: Tapping) -> None:
    payload = bytes(range(256)) * 45_000
    producer = tapping.client().create_producer(tapping.topic, chunking_enabled=True)
    producer.send(payload)
    producer.send(b"a whole one")
    requested = [line["payload_digest"] for line in tapping.lines("publish", "asked")]
    assert requested == [payload_digest(payload), payload_digest(b"a whole one")]
    assert len(tapping.lines("publish", "ok")) == 2


def test_deliveries_and_acknowledgements_are_those_of_the_messages(tapping: Tapping) -> None:
    client = tapping.client()
    producer = client.create_producer(tapping.topic, batching_enabled=True, batching_max_publish_delay_ms=200)
    for number in range(6):
        producer.send_async(str(number).encode(), lambda *_: None)
    producer.flush()
    consumer = client.subscribe(
        tapping.topic, "billing", initial_position=FROM_THE_START, replicate_subscription_state_enabled=True
    )
    for _ in range(6):
        consumer.acknowledge(consumer.receive(timeout_millis=RECEIVE_MS))
    producer.send(b"alone")
    last = consumer.receive(timeout_millis=RECEIVE_MS)
    consumer.acknowledge_cumulative(last)
    consumer.close()  # the client sends now what it has not sent before
    received = [line["message_id"] for line in tapping.lines("receive")]
    acknowledged = Counter(line["message_id"] for line in tapping.lines("acknowledge"))
    assert len(received) == len(set(received)) == 7
    assert set(acknowledged) == set(received)
    (subscribed,) = tapping.lines("subscribe", "ok")
    assert (subscribed["replicated"], subscribed["initial"]) == (True, "earliest")
    assert all(line["actor"].startswith("Pulsar-CPP-v") for line in tapping.lines("receive"))


def test_seeks_readers_and_redelivery_requests_are_recorded(tapping: Tapping) -> None:
    client = tapping.client()
    client.create_producer(tapping.topic).send(b"one")
    consumer = client.subscribe(
        tapping.topic,
        "billing",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=FROM_THE_START,
        negative_ack_redelivery_delay_ms=10,
    )
    consumer.negative_acknowledge(consumer.receive(timeout_millis=RECEIVE_MS))
    assert consumer.receive(timeout_millis=RECEIVE_MS).redelivery_count() == 1
    reader = client.create_reader(tapping.topic, pulsar.MessageId.earliest)
    assert reader.read_next(RECEIVE_MS).data() == b"one"
    consumer.seek(pulsar.MessageId.earliest)
    consumer.unsubscribe()
    assert len(tapping.lines("redeliver")) == 1
    assert len(tapping.lines("read")) == 1
    assert [line["outcome"] for line in tapping.lines("seek")] == ["asked", "ok"]
    assert [line["outcome"] for line in tapping.lines("unsubscribe")] == ["asked", "ok"]


def test_clients_are_identified_by_their_connection_and_producers_by_their_session(tapping: Tapping) -> None:
    for region in ("us-east", "us-west"):
        producer = tapping.client(region).create_producer(tapping.topic, producer_name="shop")
        producer.send(region.encode())
    requested = tapping.lines("publish", "asked")
    assert [line["region"] for line in requested] == ["us-east", "us-west"]
    assert len({line["actor"] for line in requested}) == len({line["session"] for line in requested}) == 2
    assert [line["last_sequence_id"] for line in tapping.lines("connect", "ok")] == [-1, -1]


def test_what_a_region_refuses_is_written_down_as_refused(tapping: Tapping) -> None:
    first = tapping.client().create_producer(tapping.topic, producer_name="shop")
    with pytest.raises(pulsar.ProducerBusy):
        tapping.client().create_producer(tapping.topic, producer_name="shop")
    first.send(b"one")
    (failed,) = tapping.lines("connect", "failed")
    assert failed["producer"] == "shop"


def test_traffic_that_the_tap_cannot_parse_is_an_omission(live: LiveRun) -> None:
    tap = geoemu.attach(live.run_dir).tap("garbage")
    host, _, port = tap.url("us-east").rpartition("/")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"\0\0\0\x08\x7f\xff\xff\xff" + bytes(100))
        assert connection.recv(1) == b""
    tap.close()
    (said,) = live.lines("garbage", "omission")
    assert "cannot parse the traffic" in said["detail"]


def test_a_publish_through_the_tap_waits_until_its_region_is_restarted(tapping: Tapping) -> None:
    producer = tapping.client("eu-central").create_producer(tapping.topic, producer_name="shop")
    producer.send(b"before")
    tapping.live.do("kill", "eu-central")
    receipts = threading.Event()
    producer.send_async(b"while it is away", lambda *_: receipts.set())
    tapping.live.do("start", "eu-central")
    assert receipts.wait(30)
    lives = tapping.lines("connect", "ok")
    assert [line["last_sequence_id"] for line in lives] == [-1, 0]
    assert tapping.lines("publish", "ok")[-1]["session"] == lives[1]["session"]
    requested, stored = asked_and_stored(tapping.live, tapping.actor, "eu-central", tapping.topic)
    assert requested == stored


def test_a_client_that_only_probes_connections_sees_that_a_region_is_gone_and_back(
    live: LiveRun,
) -> None:
    """Clients that change regions by themselves only open a connection to probe."""
    tap = geoemu.attach(live.run_dir).tap("asked-only")
    host, _, port = tap.url("eu-central").rpartition("/")[2].partition(":")

    def takes_connections() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=20).close()
        except ConnectionRefusedError:
            return False
        return True

    assert takes_connections()
    live.do("kill", "eu-central")
    wait_until(lambda: not takes_connections(), "the tap is as gone as its region")
    live.do("start", "eu-central")
    wait_until(takes_connections, "the tap is back at the same place")
    tap.close()
    assert not takes_connections()
    assert not live.file("asked-only").damages


def test_publishes_pending_when_their_connection_ends_are_unknown(live: LiveRun) -> None:
    """The region does not respond, and the client gives up."""
    tap = geoemu.attach(live.run_dir).tap("under-way")
    client = pulsar.Client(tap.url("us-west"), logger=QUIET)
    producer = client.create_producer("under-way", send_timeout_millis=200)
    live.do("pause", "us-west")
    with pytest.raises(pulsar.Timeout):
        producer.send(b"into the ice")
    client.shutdown()
    tap.close()
    live.do("resume", "us-west")
    (unknown,) = live.lines("under-way", "publish", "unknown")
    assert unknown["error"] == "the connection ended"
    assert not live.file("under-way").damages


def test_a_tap_that_is_closed_lets_its_clients_go_without_a_word(
    live: LiveRun, caplog: pytest.LogCaptureFixture
) -> None:
    tap = geoemu.attach(live.run_dir).tap("closed")
    client = pulsar.Client(tap.url("us-east"), logger=QUIET)
    client.create_producer("closed").send(b"one")
    tap.close()
    client.shutdown()
    assert caplog.records == []
    assert not live.file("closed").damages
