"""Acknowledgements in groups have the outcome of the same acknowledgements one by one, however the stream is split
into reads.

A stream is read three times in one region, for consumers of topics of their own: in groups; by the same reads without
groups, which must write the same responses and messages in the same writes; and frame by frame without groups. The
cursors in memory and in the store, permits, pending and redelivered messages, responses and statistics must be equal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.broker.admin.ledger_stats import internal_stats
from emulator.broker.admin.stats import topic_stats
from emulator.broker.connection import acknowledgements
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.subscription.cursor_store import cursors_of_topic
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.subscriptions import Subscriptions
from emulator.broker.topic.topic import Topic
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.stored_format import CursorParts
from emulator.core.dispatch.multiple_consumers import MultipleConsumers
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_ack, encode_flow
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry
from emulator.wire.frames import PING_FRAME, FrameBuffer, command_bytes, frame_of, simple_frame
from emulator.wire.protobuf import decode_command, length_delimited, varint
from tests.broker.connection.without_socket import ConnectionWithoutSocket, split
from tests.broker.regions import regions, until

pytestmark = pytest.mark.usefixtures("simulation")

EXCLUSIVE, SHARED, KEY_SHARED = 0, 1, 3
ENTRIES = 200
"""Number of entries of each topic: their ids take one or two bytes."""
UNACKED_MAX = 60
"""Maximum number of unacknowledged messages of a consumer of a shared subscription."""


@dataclass(frozen=True)
class Attached:
    """A consumer that a client attaches before the stream begins."""

    topic: str
    subscription: str
    type: int
    permits: int
    replicated: bool = False
    durable: bool = True


CONSUMERS = {
    1: Attached("orders", "one", EXCLUSIVE, 150),
    2: Attached("orders", "many", SHARED, 40),
    3: Attached("orders", "many", SHARED, 1_000),
    4: Attached("orders", "keys", KEY_SHARED, 90),
    5: Attached("orders", "keys", KEY_SHARED, 5),
    6: Attached("bills", "far", EXCLUSIVE, 150, replicated=True),
    7: Attached("bills", "reader", EXCLUSIVE, 1_000, durable=False),
    8: Attached("bills", "closed", EXCLUSIVE, 10),
}
"""Consumer id -> its subscription; the last one is closed before the stream begins."""
CLOSED = 8


@dataclass
class Client(ConnectionWithoutSocket):
    """A client of region us, connected without a socket."""

    outcome: dict[str, Any] = field(default_factory=dict)
    writes: list[list[tuple[str, bytes]]] = field(default_factory=list)
    """Responses and messages in each write, in order."""
    reported: list[tuple[str, int]] = field(default_factory=list)
    """Subscriptions and their mark-delete, as often as a move was reported for replication."""

    async def open(self) -> None:
        """Publish to two topics, attach the consumers, let them receive messages, and drop all responses."""
        greeting = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        greeting.connect.client_version, greeting.connect.protocol_version = "test", 19
        self.read(simple_frame(greeting))
        for number, topic in enumerate(("orders", "bills"), 1):
            await self._publish(number, topic)
        for consumer_id, attached in CONSUMERS.items():
            self._subscribe(consumer_id, attached)
            await until(lambda consumer_id=consumer_id: consumer_id in self.connection.consumers.open)
        self.consumers = dict(self.connection.consumers.open)
        self.topics = {one.topic: self._topic(number) for number, one in CONSUMERS.items()}
        for consumer_id, attached in CONSUMERS.items():
            self.read(frame_of(encode_flow(consumer_id, attached.permits)))
        close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
        close.close_consumer.consumer_id = close.close_consumer.request_id = CLOSED
        self.read(simple_frame(close))
        await until(lambda: CLOSED not in self.connection.consumers.open)
        await self.settled()
        self.end.written.clear()

    async def _publish(self, producer_id: int, topic: str) -> None:
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        command.producer.topic = self.prefix + topic
        command.producer.producer_id = command.producer.request_id = producer_id
        command.producer.producer_name = topic
        self.read(simple_frame(command))
        await until(lambda: producer_id in self.connection.producers.open)
        for number in range(ENTRIES):
            metadata = pb.MessageMetadata(producer_name=topic, sequence_id=3 * number, publish_time=1)
            metadata.partition_key = f"key {number % 7}"
            messages = 3 if number % 10 == 4 else 1
            if messages > 1:
                metadata.num_messages_in_batch, metadata.highest_sequence_id = messages, 3 * number + 2
            if number == 20:
                metadata.deliver_at_time = 2**50
            data = build_entry(metadata, b"payload")
            self.read(send_frame(producer_id, 3 * number, messages, metadata.highest_sequence_id, data=data))
        stored = self.connection.producers.open[producer_id].topic
        assert isinstance(stored, Topic)
        await until(lambda: stored.state.readable_end == ENTRIES)

    def _subscribe(self, consumer_id: int, attached: Attached) -> None:
        command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic, subscribe.subscription = self.prefix + attached.topic, attached.subscription
        subscribe.subType, subscribe.consumer_name = attached.type, f"consumer {consumer_id}"
        subscribe.consumer_id = subscribe.request_id = consumer_id
        subscribe.initialPosition = pb.CommandSubscribe.Earliest
        subscribe.replicate_subscription_state, subscribe.durable = attached.replicated, attached.durable
        self.read(simple_frame(command))

    def _topic(self, consumer_id: int) -> Topic:
        topic = self.consumers[consumer_id].subscription.topic
        assert isinstance(topic, Topic)
        return topic

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return {name: one for topic in self.topics.values() for name, one in topic.subscriptions.items()}

    def ledger_of(self, consumer_id: int) -> int:
        return self._topic(consumer_id).ledger_id

    async def settled(self) -> None:
        """Wait until everything that was read has its outcome, and cursors are stored."""
        loops = [one.dispatch_loop for one in self.subscriptions.values()]
        await until(lambda: not any(one._is_scheduled or one._read_in_progress for one in loops))
        for subscription in self.subscriptions.values():
            await subscription.persisted()
        await until(lambda: not (self.connection.tasks._tasks or self.connection.responses))

    def observe(self) -> None:
        """Record all that a client, an administrator or a restart sees of the consumers."""
        ledgers = {topic.ledger_id for topic in self.topics.values()}
        written = [FrameBuffer(10_000_000).feed(data) for data in self.end.written if data != PING_FRAME]
        self.writes = [[_written(*frame, ledgers) for frame in frames] for frames in written]
        store = self.world.running["us"].store
        self.outcome = {
            "written": list(chain.from_iterable(self.writes)),
            "closed": self.end.closed,
            "stored": {
                stored.key.subscription: (_state_of_cursor(stored.cursor), stored.cursor.generation)
                for topic in self.topics.values()
                for stored in cursors_of_topic(store, topic.full_name, CursorParts)
            },
            "cursors": {name: _state_of(one) for name, one in self.subscriptions.items()},
            "consumers": {number: _state_of_consumer(one) for number, one in self.consumers.items()},
            "stats": {name: self._stats_of(topic) for name, topic in self.topics.items()},
        }

    def _stats_of(self, topic: Topic) -> tuple[dict[str, Any], str]:
        """Return the statistics, without rates; of times only whether there is one."""
        subscriptions = topic_stats(topic)["subscriptions"]
        for stats in chain(subscriptions.values(), *(one["consumers"] for one in subscriptions.values())):
            for name in list(stats):
                if "Rate" in name or "Throughput" in name or name == "connectedSince":
                    del stats[name]
                elif name.endswith("Timestamp"):
                    stats[name] = bool(stats[name])
        return subscriptions, str(internal_stats(topic)["cursors"]).replace(f"{topic.ledger_id}:", "")


def _written(type_: int, command: bytes, entry: bytes, ledgers: set[int]) -> tuple[str, bytes]:
    text = str(decode_command(command))
    for ledger_id in ledgers:
        text = text.replace(f"ledgerId: {ledger_id}\n", "ledgerId: of the topic\n")
    return f"{type_} {text}", entry


def _state_of_cursor(cursor: Cursor) -> tuple[Any, ...]:
    return (
        cursor.mark_delete,
        cursor.acked_ranges,
        dict(cursor.open_bits),
        cursor.ahead_of_peers,
        cursor.highest_acked,
        cursor.replicated,
    )


def _state_of(subscription: Subscription) -> tuple[Any, ...]:
    cursor, strategy = subscription.cursor, subscription.dispatcher.strategy
    shared: tuple[Any, ...] = ()
    if isinstance(strategy, MultipleConsumers):
        counts = dict(strategy._redelivery_counts)
        shared = (list(strategy.replay), strategy.delayed.count, counts)
    return (
        _state_of_cursor(cursor),
        strategy.read_entry_id,
        shared,
        bool(subscription.acked_ms),
        bool(subscription.stored_cursor.mark_delete_ms),
    )


def _state_of_consumer(consumer: ConnectedConsumer) -> tuple[Any, ...]:
    state = consumer.state
    pending = dict(state.pending.by_entry)
    return state.permits, list(pending.items()), state.pending.messages, bool(consumer.acked_ms)


@contextlib.contextmanager
def without_groups() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(acknowledgements, "take_acks", lambda *_: None)
        yield


# Streams.

Build = Callable[[int, int, int], bytes]
"""(consumer id, ledger id, entry id) -> the bytes of a frame."""


def plain(consumer_id: int, ledger_id: int, entry_id: int) -> bytes:
    return frame_of(encode_ack(consumer_id, [(ledger_id, entry_id, None)]))


def with_fields(message_id: bytes = b"", **fields: Any) -> Build:
    """Return what builds an ACK with further fields, of the command or of its message id."""

    def build(consumer_id: int, ledger_id: int, entry_id: int) -> bytes:
        command = pb.BaseCommand(type=pb.BaseCommand.ACK)
        ack = command.ack
        ack.consumer_id, ack.ack_type = consumer_id, pb.CommandAck.Individual
        ack.message_id.add().CopyFrom(
            pb.MessageIdData.FromString(b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id) + message_id)
        )
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(ack, name).extend(value)
            else:
                setattr(ack, name, value)
        return simple_frame(command)

    return build


def by_bytes(change: str) -> Build:
    """Return what builds an ACK that is unusual in its bytes."""

    def build(consumer_id: int, ledger_id: int, entry_id: int) -> bytes:
        owner = b"\x08" + varint(consumer_id)
        ids = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id)
        type_ = b"\x10\x00"
        match change:
            case "entry id in a longer form":
                number = varint(entry_id)
                ids = ids[: -len(number)] + number[:-1] + bytes((number[-1] | 128, 0))
            case "ledger id in a longer form":
                number = varint(ledger_id)
                ids = b"\x08" + number[:-1] + bytes((number[-1] | 128, 0)) + b"\x10" + varint(entry_id)
            case "negative entry id":
                ids = b"\x08" + varint(ledger_id) + b"\x10" + varint(-1)
            case "largest entry id":
                ids = b"\x08" + varint(ledger_id) + b"\x10" + varint(2**63 - 1)
            case "entry beyond 63 bits":
                ids = b"\x08" + varint(ledger_id) + b"\x10" + varint(2**63)
            case "another ledger":
                ids = b"\x08" + varint(ledger_id + 1) + b"\x10" + varint(entry_id)
            case "entry id before ledger id":
                ids = b"\x10" + varint(entry_id) + b"\x08" + varint(ledger_id)
            case "cumulative":
                type_ = b"\x10\x01"
            case "no type":
                type_ = b""
            case "two ids":
                ids += b"\x1a" + bytes((len(ids),)) + ids
                body = owner + type_ + b"\x1a" + bytes(((len(ids) - 2) // 2,)) + ids
                return frame_of(command_bytes(pb.BaseCommand.ACK, body))
            case "no id":
                return frame_of(command_bytes(pb.BaseCommand.ACK, owner + type_))
            case "payload":
                return frame_of(encode_ack(consumer_id, [(ledger_id, entry_id, None)]), b"payload")
            case "unknown field behind the body":
                return frame_of(encode_ack(consumer_id, [(ledger_id, entry_id, None)]) + b"\xf8\x7f\x01")
        body = owner + type_ + length_delimited(3, ids)
        if change == "unknown field":
            body += b"\xf8\x7f\x01"
        return frame_of(command_bytes(pb.BaseCommand.ACK, body))

    return build


BY_BYTES = (
    "entry id in a longer form", "ledger id in a longer form", "negative entry id", "largest entry id",
    "entry beyond 63 bits", "another ledger", "entry id before ledger id", "cumulative", "no type", "two ids", "no id",
    "payload", "unknown field behind the body", "unknown field",
)  # fmt: skip
FIELDS: list[dict[str, Any]] = [
    {"request_id": 9},
    {"validation_error": pb.CommandAck.ChecksumMismatch},
    {"txnid_least_bits": 1, "txnid_most_bits": 0},
    {"properties": [pb.KeyLongValue(key="k", value=1)]},
    {"message_id": b"\x18\x01"},  # a partition
    {"message_id": b"\x20\x02"},  # a batch index
    {"message_id": b"\x28\x03"},  # messages 0 and 1 of a batch are not acknowledged
    {"message_id": b"\x30\x03"},  # a batch size
]
SPECIAL: dict[str, Build] = {
    **{str(fields): with_fields(**fields) for fields in FIELDS},
    **{change: by_bytes(change) for change in BY_BYTES},
}
"""Acknowledgements that are not plain, and plain ones that end a group."""


def redeliver(consumer_id: int, ledger_id: int, entry_id: int) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    command.redeliverUnacknowledgedMessages.consumer_id = consumer_id
    if entry_id % 2:
        message_id = command.redeliverUnacknowledgedMessages.message_ids.add()
        message_id.ledgerId, message_id.entryId = ledger_id, entry_id
    return simple_frame(command)


def flow(consumer_id: int, _ledger_id: int, entry_id: int) -> bytes:
    return frame_of(encode_flow(consumer_id, 1 + entry_id % 30))


def ping(_consumer_id: int, _ledger_id: int, _entry_id: int) -> bytes:
    return PING_FRAME


Part = tuple[int, list[int], Build]
"""(consumer id, entry ids, what builds a frame for each)."""

consumer_ids = st.sampled_from([1, 1, 2, 3, 4, 5, 6, 7, CLOSED, 99])
entry_ids = st.integers(0, 40) | st.integers(0, ENTRIES + 5) | st.sampled_from([126, 127, 128, 16_383, 2**40])
runs = st.builds(lambda first, size: list(range(first, first + size)), entry_ids, st.integers(1, 60))
plain_parts = st.tuples(consumer_ids, runs | st.lists(entry_ids, min_size=1, max_size=12), st.just(plain))
others = st.sampled_from([*SPECIAL.values(), redeliver, flow, ping])
other_parts = st.tuples(consumer_ids, st.lists(entry_ids, min_size=1, max_size=2), others)
violations = st.sampled_from(
    [frame_of(b"\x08\x0a\x52\x03\x08\x01\x10"), frame_of(b"\x08\x0a\x52\x00"), b"\xff\xff\xff\xff\0\0\0\0"]
)
"""Frames that close the connection."""


@dataclass(frozen=True)
class Stream:
    parts: list[Part]
    violation: tuple[float, bytes] | None = None
    """Part of the stream after which it is, and its bytes."""
    is_over: bool = False
    """Whether the topics were terminated."""
    seeking: bool = False
    """Whether a seek of subscription `one` is in progress."""

    def frames(self, ledger_of: Callable[[int], int]) -> list[bytes]:
        frames = [
            build(number, ledger_of(number) if number in CONSUMERS else 1, entry_id)
            for number, ids, build in self.parts
            for entry_id in ids
        ]
        if self.violation is not None:
            frames.insert(int(self.violation[0] * len(frames)), self.violation[1])
        return frames


streams = st.builds(
    Stream,
    st.lists(st.one_of(plain_parts, plain_parts, other_parts), min_size=1, max_size=12),
    st.none() | st.none() | st.tuples(st.floats(0, 1), violations),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)


class Served:
    """A region whose event loop runs while a test plays a stream."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._world = regions("us", max_unacked_messages_per_consumer=UNACKED_MAX)
        self._numbers = count()
        self.world = self._runner.run(self._world.__aenter__())
        # The size of a message depends on that of its ledger id.
        self.world.disks["us"].next_ledger_id = 1_000

    def play(self, stream: Stream, cuts: list[float] | None, *, waits: bool = False) -> Client:
        """Let a client with consumers of new topics send a stream. `cuts`: see `split`; None: each frame is one read.
        `waits`: each read has its outcome before the next one."""
        return self._runner.run(self._play(stream, cuts, waits))

    async def _play(self, stream: Stream, cuts: list[float] | None, waits: bool) -> Client:
        client = Client(self.world, f"{next(self._numbers):06}-")
        await client.open()
        frames = stream.frames(client.ledger_of)
        for topic in client.topics.values():
            topic.termination.is_terminated = stream.is_over
        client.subscriptions["one"].seeks = int(stream.seeking)
        with self._reports_to(client):
            for data in frames if cuts is None else split(b"".join(frames), cuts):
                client.read(data)
                if waits:
                    await client.settled()
            client.subscriptions["one"].seeks = 0
            await client.settled()
        client.observe()
        client.outcome["reported"] = client.reported
        client.connection.connection_lost(None)
        return client

    @staticmethod
    @contextlib.contextmanager
    def _reports_to(client: Client) -> Iterator[None]:
        def report(subscriptions: Subscriptions, name: str) -> None:
            if subscriptions[name].cursor.replicated:
                client.reported.append((name, subscriptions[name].cursor.mark_delete))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Subscriptions, "mark_delete_moved", report)
            yield

    def close(self) -> None:
        self._runner.run(self._world.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


def check_equal(region: Served, stream: Stream, cuts: list[float], *, waits: bool) -> Client:
    in_groups = region.play(stream, cuts, waits=waits)
    with without_groups():
        alone = region.play(stream, cuts, waits=waits)
        one_by_one = None if waits else region.play(stream, None)
    assert in_groups.outcome == alone.outcome
    assert in_groups.writes == alone.writes
    if one_by_one is not None:
        # Responses that wait for the store are sent once per read.
        for outcome in (in_groups.outcome, one_by_one.outcome):
            outcome["written"] = sorted(outcome["written"])
        assert in_groups.outcome == one_by_one.outcome
    return in_groups


@settings(max_examples=60)
@given(streams, st.lists(st.floats(0, 1), max_size=6), st.booleans())
def test_groups_have_the_outcome_of_single_acknowledgements_for_any_split(
    served: Served, stream: Stream, cuts: list[float], waits: bool
) -> None:
    check_equal(served, stream, cuts, waits=waits)


@pytest.mark.parametrize("consumer_id", [1, 4])
@pytest.mark.parametrize("change", SPECIAL)
def test_an_acknowledgement_that_is_not_plain_has_its_usual_outcome_amid_a_group(
    served: Served, change: str, consumer_id: int
) -> None:
    """Of a batch and of another entry, both of which the consumer received, and of an acknowledged one."""
    unusual = [(consumer_id, [entry_id], SPECIAL[change]) for entry_id in (14, 9, 1)]
    acks = [(consumer_id, list(range(first, first + 4)), plain) for first in (0, 15, 5, 126)]
    stream = Stream([part for pair in zip(acks, [*unusual, acks[0]], strict=True) for part in pair])
    check_equal(served, stream, [], waits=False)


class StepCounts:
    """How often the steps of an acknowledgement run while a stream is read."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.calls: dict[str, int] = {}
        for name in ("acknowledge", "acknowledge_runs", "_acknowledged"):
            patched.setattr(Subscription, name, self._counted(name, getattr(Subscription, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            return function(*arguments, **named)

        return call


def play_counted(served: Served, patched: pytest.MonkeyPatch, *parts: Part) -> tuple[Client, dict[str, int]]:
    counts = StepCounts(patched)
    return served.play(Stream(list(parts)), []), counts.calls


def test_the_acknowledgements_of_one_read_share_every_step(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, calls = play_counted(served, monkeypatch, (1, list(range(150)), plain))
    assert calls == {"acknowledge_runs": 1, "_acknowledged": 1}
    assert client.subscriptions["one"].cursor.mark_delete == 149


def test_ids_in_any_order_are_one_group(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client, calls = play_counted(served, monkeypatch, (2, [11, 12, 10, 10, 0, 3, 2], plain))
    assert calls == {"acknowledge_runs": 1, "_acknowledged": 1}
    assert client.subscriptions["many"].cursor.acked_ranges == [(2, 3), (10, 12)]


def test_an_acknowledgement_that_is_not_plain_ends_a_group(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = with_fields(message_id=b"\x28\x03")
    parts: list[Part] = [(1, list(range(14)), plain), (1, [14], batch), (1, list(range(15, 30)), plain)]
    client, calls = play_counted(served, monkeypatch, *parts)
    assert calls == {"acknowledge_runs": 2, "acknowledge": 1, "_acknowledged": 3}
    assert client.subscriptions["one"].cursor.acked_ranges == [(15, 29)]
    assert client.subscriptions["one"].cursor.open_bits == {14: 3}


def test_consumers_in_turns_are_handled_one_by_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of one acknowledgement costs more than the acknowledgement."""
    turns: list[Part] = [(consumer_id, [entry_id], plain) for entry_id in range(5) for consumer_id in (1, 7)]
    _, calls = play_counted(served, monkeypatch, *turns)
    assert calls == {"acknowledge": 10, "_acknowledged": 10}


def test_each_acknowledgement_of_a_replicated_subscription_is_reported(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mark-delete must not be moved past two snapshots at once: the position of each is sent to other regions."""
    client, _ = play_counted(served, monkeypatch, (6, [*range(20), *range(10, 30)], plain))
    assert client.reported == [("far", entry_id) for entry_id in range(30)]


@pytest.mark.parametrize("consumer_id", [1, 3, 4])
def test_acknowledgements_beyond_the_last_entry_are_ignored(served: Served, consumer_id: int) -> None:
    stream = Stream([(consumer_id, list(range(ENTRIES - 3, ENTRIES + 4)), plain)])
    client = check_equal(served, stream, [], waits=False)
    cursor = client.subscriptions[CONSUMERS[consumer_id].subscription].cursor
    assert cursor.acked_ranges == [(ENTRIES - 3, ENTRIES - 1)]


def test_acknowledgements_during_a_seek_are_ignored(served: Served) -> None:
    stream = Stream([(1, list(range(20)), plain)], seeking=True)
    client = check_equal(served, stream, [], waits=False)
    assert client.subscriptions["one"].cursor.mark_delete == -1


def test_the_last_acknowledgement_of_a_terminated_topic_is_followed_by_its_end(served: Served) -> None:
    stream = Stream([(7, list(range(ENTRIES)), plain)], is_over=True)
    client = check_equal(served, stream, [], waits=False)
    assert [text.split()[0] for text, _ in client.outcome["written"]] == ["27"]


def test_a_group_unblocks_a_shared_subscription(served: Served) -> None:
    """Consumer 3 is at its limit of unacknowledged messages: a group makes room for others."""
    client = check_equal(served, Stream([(3, list(range(50)), plain)]), [], waits=False)
    assert {text.split()[0] for text, _ in client.outcome["written"]} == {"9"}
