"""A recorded Pulsar client against real regions: its history matches the stored log, and its behaviour is unchanged."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped]
import pulsar.asyncio  # type: ignore[import-untyped]
import pytest

import geoemu
from emulator.errors import Refused
from emulator.run.history_events import payload_digest

from .regions import LiveRun, asked_and_stored

pytestmark = pytest.mark.real

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
FROM_THE_START = pulsar.InitialPosition.Earliest
RECEIVE_MS = 10_000


class Recording:
    """A recorded client in us-east, with an actor, topic and run of one test."""

    def __init__(self, live: LiveRun, name: str) -> None:
        self.live = live
        self.actor = name
        self.topic = f"persistent://public/default/{name}"
        self.client = geoemu.recorded(
            pulsar.Client(live.url("us-east"), logger=QUIET), live.run_dir, actor=name
        )

    def lines(self, op: str, outcome: str = "") -> list[dict[str, Any]]:
        return self.live.lines(self.actor, op, outcome)

    def published(self, *payloads: bytes) -> None:
        producer = self.client.create_producer(self.topic)
        for payload in payloads:
            producer.send(payload)

    def consumer(self, **settings: Any) -> Any:
        return self.client.subscribe(self.topic, "billing", initial_position=FROM_THE_START, **settings)


@pytest.fixture
def recording(live: LiveRun, request: pytest.FixtureRequest) -> Iterator[Recording]:
    made = Recording(live, re.sub(r"\W+", "-", request.node.name))
    yield made
    made.client.close()


def test_every_thread_s_message_is_stored_under_the_number_that_was_written_down(
    recording: Recording,
) -> None:
    threads, each = 4, 100
    producer = recording.client.create_producer(
        recording.topic, producer_name="shop", batching_enabled=True, block_if_queue_full=True
    )
    receipts = threading.Semaphore(0)

    def publish(thread: int) -> None:
        for number in range(each):
            payload = f"{thread}-{number}".encode()
            if number % 10:
                producer.send_async(payload, lambda *_: receipts.release(), partition_key=str(thread))
            else:
                producer.send(payload, properties={"thread": str(thread)}, event_timestamp=number)
                receipts.release()

    working = [threading.Thread(target=publish, args=(thread,)) for thread in range(threads)]
    for thread in working:
        thread.start()
    for _ in range(threads * each):
        assert receipts.acquire(timeout=20)
    for thread in working:
        thread.join()
    requested = {line["sequence_id"]: line["payload_digest"] for line in recording.lines("publish", "asked")}
    assert sorted(requested) == list(range(threads * each))
    places = [line["message_id"] for line in recording.lines("publish", "ok")]
    assert len(set(places)) == threads * each
    written, stored = asked_and_stored(recording.live, recording.actor, "us-east", recording.topic)
    assert written == stored


def test_a_number_of_the_program_s_own_is_the_one_that_is_stored(recording: Recording) -> None:
    producer = recording.client.create_producer(recording.topic)
    producer.send(b"first")
    producer.send(b"chosen", sequence_id=41)
    producer.send(b"then as before", disable_replication=True)
    assert [line["sequence_id"] for line in recording.lines("publish", "asked")] == [0, 41, 1]
    assert recording.lines("publish", "asked")[2]["replicate_to"] == ["__local__"]


def test_a_reopened_producer_continues_from_the_last_sequence_id_that_the_region_returns(
    recording: Recording,
) -> None:
    for _ in range(2):
        producer = recording.client.create_producer(recording.topic, producer_name="shop")
        producer.send(b"one")
        producer.close()
    first, second = recording.lines("connect", "ok")
    assert (first["last_sequence_id"], second["last_sequence_id"]) == (-1, 0)
    assert first["session"] != second["session"]
    assert [line["sequence_id"] for line in recording.lines("publish", "asked")] == [0, 1]


def test_what_the_client_refuses_is_raised_as_ever_and_certainly_failed(recording: Recording) -> None:
    producer = recording.client.create_producer(recording.topic)
    with pytest.raises(pulsar.MessageTooBig, match="MessageTooBig"):
        producer.send(bytes(6_000_000))
    (failed,) = recording.lines("publish", "failed")
    assert failed["error"] == "MessageTooBig"
    with pytest.raises(TypeError):
        producer.send("text")
    with pytest.raises(ValueError, match="properties"):
        producer.send(b"", properties=3)
    with pytest.raises(TypeError):
        producer.send(b"", of="nothing")
    with pytest.raises(pulsar.Timeout):
        recording.consumer().receive(timeout_millis=1)
    producer.send(b"it goes on")
    assert len(recording.lines("publish", "ok")) == 1


def test_receives_and_acknowledgements_of_every_kind_are_written_down(recording: Recording) -> None:
    recording.published(b"0", b"1", b"2", b"3")
    consumer = recording.consumer(negative_ack_redelivery_delay_ms=100)
    first = consumer.receive(timeout_millis=RECEIVE_MS)
    consumer.acknowledge(first)
    second = consumer.receive()
    consumer.negative_acknowledge(second)
    while consumer.receive(timeout_millis=RECEIVE_MS).data() != b"1":
        pass
    consumer.acknowledge_cumulative(second.message_id())
    (subscribed,) = recording.lines("subscribe", "ok")
    assert (subscribed["initial"], subscribed["replicated"]) == ("earliest", False)
    received = [line["payload_digest"] for line in recording.lines("receive")]
    assert received == [payload_digest(one) for one in (b"0", b"1", b"2", b"3", b"1")]
    acknowledged = [(line["how"], line["message_id"]) for line in recording.lines("acknowledge", "asked")]
    places = [line["message_id"] for line in recording.lines("receive")]
    assert acknowledged == [("individual", places[0]), ("cumulative", places[1])]
    assert [line["message_id"] for line in recording.lines("redeliver")] == [places[1]]


def test_batches_and_listeners_are_given_what_is_written_down(recording: Recording) -> None:
    recording.published(b"0", b"1")
    policy = pulsar.ConsumerBatchReceivePolicy(2, -1, RECEIVE_MS)
    batch = recording.consumer(batch_receive_policy=policy).batch_receive()
    assert [message.data() for message in batch] == [b"0", b"1"]
    heard: list[bytes] = []
    both = threading.Event()

    def listen(consumer: Any, message: Any) -> None:
        consumer.acknowledge(message)
        heard.append(message.data())
        if len(heard) == 2:
            both.set()

    recording.client.subscribe(
        recording.topic, "listener", initial_position=FROM_THE_START, message_listener=listen
    )
    assert both.wait(20)
    assert heard == [b"0", b"1"]
    by = [line["subscription"] for line in recording.lines("receive")]
    assert by == ["billing", "billing", "listener", "listener"]
    assert [line["subscription"] for line in recording.lines("acknowledge")] == ["listener", "listener"]


def test_of_several_topics_each_message_is_its_own_topic_s(recording: Recording) -> None:
    others = [f"{recording.topic}-{name}" for name in ("a", "b")]
    for topic in others:
        recording.client.create_producer(topic).send(topic.encode())
    consumers = [
        recording.client.subscribe(topics, name, initial_position=FROM_THE_START)
        for name, topics in (("listed", others), ("found", re.compile(f"{recording.topic}-.")))
    ]
    for consumer in consumers:
        for _ in others:
            message = consumer.receive(timeout_millis=RECEIVE_MS)
            consumer.acknowledge(message.message_id())
    for op in ("subscribe", "receive", "acknowledge"):
        said = sorted(
            (line["subscription"], line["topic"])
            for line in recording.lines(op)
            if (op, line["outcome"]) != ("subscribe", "asked")
        )
        assert said == sorted((name, topic) for name in ("listed", "found") for topic in others), op


def test_a_seek_and_a_reader_are_written_down(recording: Recording) -> None:
    recording.published(b"0", b"1")
    consumer = recording.consumer()
    consumer.receive(timeout_millis=RECEIVE_MS)
    consumer.seek(pulsar.MessageId.earliest)
    reader = recording.client.create_reader(recording.topic, pulsar.MessageId.earliest)
    assert reader.read_next(RECEIVE_MS).data() == b"0"
    consumer.unsubscribe()
    assert [
        (line["op"], line["outcome"]) for line in recording.lines("") if line["op"] in ("seek", "read")
    ] == [
        ("seek", "asked"),
        ("seek", "ok"),
        ("read", "ok"),
    ]
    assert [line["outcome"] for line in recording.lines("unsubscribe")] == ["asked", "ok"]


def test_the_asyncio_client_is_recorded_too(live: LiveRun) -> None:
    topic = "persistent://public/default/asynchronous"
    url = live.url("eu-central")

    async def work() -> None:
        client = geoemu.recorded(pulsar.asyncio.Client(url), live.run_dir, actor="asynchronous")
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(str(number).encode()) for number in range(20)))
        consumer = await client.subscribe(topic, "billing", initial_position=FROM_THE_START)
        for number in range(20):
            message = await consumer.receive()
            assert message.data() == str(number).encode()
            await consumer.acknowledge(message)
        with pytest.raises(pulsar.asyncio.PulsarException):
            await producer.send(bytes(6_000_000))
        await client.close()

    asyncio.run(work())
    assert not live.file("asynchronous").damages
    assert {line["region"] for line in live.lines("asynchronous", "publish")} == {"eu-central"}
    written, stored = asked_and_stored(live, "asynchronous", "eu-central", topic)
    refused = set(written) - set(stored)
    assert {number for _, number in refused} == {20}
    assert stored.items() <= written.items()
    assert len(live.lines("asynchronous", "acknowledge")) == len(live.lines("asynchronous", "receive")) == 20


def test_the_last_client_of_a_program_writes_the_end(live: LiveRun) -> None:
    clients = [
        geoemu.recorded(pulsar.Client(live.url(region), logger=QUIET), live.run_dir, actor="two-clients")
        for region in ("us-east", "us-west")
    ]
    clients[0].close()
    assert "has no end" in str(live.file("two-clients").damages)
    clients[1].close()
    assert not live.file("two-clients").damages


def test_a_client_of_another_place_is_refused(live: LiveRun, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"is at no region of the run \(us-east pulsar://127\.0\.0\.1:\d+"):
        geoemu.recorded(pulsar.Client("pulsar://127.0.0.1:1"), live.run_dir)
    with pytest.raises(Refused, match="has no region 'us-eats'"):
        geoemu.recorded(pulsar.Client("pulsar://127.0.0.1:1"), live.run_dir, region="us-eats")
    with pytest.raises(Refused, match="no run in"):
        geoemu.recorded(pulsar.Client("pulsar://127.0.0.1:1"), tmp_path)


def test_a_client_that_switches_regions_by_itself_is_recorded_no_more_and_leaves_an_omission(
    recording: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    consumer = recording.consumer()
    recording.published(b"here")
    elsewhere = pulsar.ServiceInfo(recording.live.url("us-west"))
    recording.client._inner.get_service_info = lambda: elsewhere
    assert consumer.receive(timeout_millis=RECEIVE_MS).data() == b"here"
    (said,) = recording.lines("omission")
    assert "switched to" in said["detail"]
    assert "no longer recorded" in capfd.readouterr().err
    assert recording.lines("receive") == []


NON_PERSISTENT = "non-persistent://public/default/{}"


def test_topics_that_are_not_persistent_are_not_recorded_beside_a_persistent_one(
    recording: Recording,
) -> None:
    other = NON_PERSISTENT.format(recording.actor)
    consumer = recording.client.subscribe(
        [recording.topic, other], "billing", initial_position=FROM_THE_START
    )
    recording.published(b"kept")
    recording.client.create_producer(other).send(b"volatile")
    messages = [consumer.receive(timeout_millis=RECEIVE_MS) for _ in range(2)]
    assert {message.data() for message in messages} == {b"kept", b"volatile"}
    for message in messages:
        consumer.acknowledge(message)
    consumer.unsubscribe()
    assert recording.lines("omission") == []
    for op, count in (("subscribe", 2), ("receive", 1), ("acknowledge", 1), ("unsubscribe", 2)):
        assert [line["topic"] for line in recording.lines(op)] == [recording.topic] * count


def test_topics_of_a_list_or_a_pattern_that_are_not_persistent_are_not_recorded(
    recording: Recording,
) -> None:
    names = [NON_PERSISTENT.format(f"{recording.actor}-{number}") for number in range(2)]
    producers = [recording.client.create_producer(name) for name in names]
    consumers = [
        recording.client.subscribe(names, "by-list"),
        recording.client.subscribe(
            re.compile(NON_PERSISTENT.format(f"{recording.actor}-.*")),
            "by-pattern",
            regex_subscription_mode=pulsar.RegexSubscriptionMode.NonPersistentOnly,
        ),
    ]
    producers[0].send(b"volatile")
    for consumer in consumers:
        consumer.acknowledge(consumer.receive(timeout_millis=RECEIVE_MS))
    assert {line["op"] for line in recording.lines("")} == {"head"}


def test_a_failing_producer_of_a_topic_that_is_not_persistent_leaves_the_recording_intact(
    recording: Recording,
) -> None:
    other = NON_PERSISTENT.format(recording.actor)
    exclusive = pulsar.ProducerAccessMode.Exclusive
    first = recording.client.create_producer(other, access_mode=exclusive)
    with pytest.raises(pulsar.PulsarException):
        recording.client.create_producer(other, access_mode=exclusive)
    first.close()
    assert recording.lines("omission") == recording.lines("connect") == []


def test_the_recorder_rejects_a_partitioned_topic_that_the_verifier_could_not_check(
    recording: Recording,
) -> None:
    """The client library does not expose the producers and sequence ids of its messages."""
    recording.live.make_partitioned("us-east", recording.topic, 3)
    for use in (
        lambda: recording.client.create_producer(recording.topic),
        recording.consumer,
        lambda: recording.client.create_reader(recording.topic, pulsar.MessageId.earliest),
    ):
        with pytest.raises(Refused, match=r"has 3 partitions.*geoemu tap"):
            use()
    assert recording.lines("connect") == recording.lines("subscribe") == []


async def test_a_partitioned_topic_is_refused_to_asyncio_s_client_too(live: LiveRun) -> None:
    topic = "persistent://public/default/partitioned-asyncio"
    await asyncio.to_thread(live.make_partitioned, "us-east", topic, 2)
    url = await asyncio.to_thread(live.url, "us-east")

    client = geoemu.recorded(pulsar.asyncio.Client(url, logger=QUIET), live.run_dir, actor="part-asyncio")
    with pytest.raises(Refused, match="has 2 partitions"):
        await client.create_producer(topic)
    await client.close()
