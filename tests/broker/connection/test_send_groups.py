"""Publishes in groups have the outcome of the same publishes one by one, however the stream is split into reads.

A stream is published three times in one region, to topics of its own: in groups; by the same reads without groups,
which must write the same responses in the same writes; and frame by frame without groups, each durable before the next
is read. The stored entries, the responses to each producer, the statistics and the state of the topics must be equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.codec_hot.send_groups import PlainSends
from emulator.wire.command_types import CommandType
from emulator.wire.entry import build_entry, plain_entry
from emulator.wire.entry_layout import assemble
from emulator.wire.frames import PING_FRAME, FrameBuffer, frame_of, simple_frame
from emulator.wire.protobuf import decode_command, length_delimited, varint
from tests.broker.connection.send_streams import (
    DAMAGES,
    NOT_PLAIN,
    UNREADABLE_FIELDS,
    ReceivingRegion,
    damaged,
    maybe_violated,
)
from tests.broker.connection.without_socket import (
    PAYLOAD_BYTES_MAX,
    ConnectionWithoutSocket,
    StepCounts,
    outcome_of_topic,
    payloads,
    plain_metadata,
    split,
)
from tests.broker.regions import until

pytestmark = pytest.mark.usefixtures("simulation")

PRODUCERS = {1: "a", 2: "b", 3: "c", 4: "closed"}
"""Producer id -> its name; the last one is closed before the stream begins."""
TOPICS = {1: "orders", 2: "orders", 3: "bills", 4: "bills"}


@dataclass
class Client(ConnectionWithoutSocket):
    """A client of region us, connected without a socket."""

    outcome: dict[str, Any] = field(default_factory=dict)
    writes: list[list[tuple[str, str]]] = field(default_factory=list)
    """The responses in each write, in order."""

    async def open(self) -> None:
        greeting = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        greeting.connect.client_version, greeting.connect.protocol_version = "test", 19
        self.read(simple_frame(greeting))
        for producer_id, name in PRODUCERS.items():
            command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
            command.producer.topic = self.prefix + TOPICS[producer_id]
            command.producer.producer_id = command.producer.request_id = producer_id
            command.producer.producer_name = name
            self.read(simple_frame(command))
        await self.opened(len(PRODUCERS), closed=4)

    async def settled(self) -> None:
        """Wait until everything that was read has its outcome, and the client its responses."""
        topics = {topic for _, topic in self.producers.values()}
        await until(lambda: not any(one.publishing.issued or one.publishing.batch for one in topics))
        await until(lambda: not self.connection.responses)

    def observe(self) -> None:
        """Record all that a client, an administrator or a restart sees of the publishes."""
        topics = {TOPICS[producer_id]: topic for producer_id, (_, topic) in self.producers.items()}
        ledgers = {topic.ledger_id for topic in topics.values()}
        written = [FrameBuffer(10_000_000).feed(data) for data in self.end.written if data != PING_FRAME]
        self.writes = [[self._response(*frame, ledgers) for frame in frames] for frames in written]
        by_kind: dict[str, list[str]] = {}
        for kind, response in chain.from_iterable(self.writes):
            by_kind.setdefault(kind, []).append(response)
        flow_control, producers = self.connection.flow_control, [one for one, _ in self.producers.values()]
        self.outcome = {
            "responses": by_kind,
            "closed": self.end.closed,
            "pending": (flow_control.pending_bytes, [one.pending_bytes for one in producers]),
            "published": [(one.published.messages, one.published.bytes) for one in producers],
            "topics": {name: outcome_of_topic(self.world, topic) for name, topic in topics.items()},
        }

    def _response(self, type_: int, command: bytes, _: bytes, ledgers: set[int]) -> tuple[str, str]:
        """Return (its type and producer, its text) of a response, without names and numbers of the topic. The responses
        of one kind have an order; that of a receipt and an error depends on when the message became durable."""
        decoded = decode_command(command)
        kind = f"type {type_}"
        if type_ == CommandType.SEND_RECEIPT:
            kind = f"receipts of {decoded.send_receipt.producer_id}"
            if decoded.send_receipt.message_id.ledgerId in ledgers:
                decoded.send_receipt.message_id.ledgerId = 0
        elif type_ == CommandType.SEND_ERROR:
            kind = f"errors of {decoded.send_error.producer_id}"
            decoded.send_error.message = decoded.send_error.message.replace(self.prefix, "")
        return kind, str(decoded)


@contextlib.contextmanager
def without_groups() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PlainSends, "take", lambda *_, **__: None)
        yield


# Streams.

Build = Any
"""(producer id, sequence id) -> the frame of a SEND."""

metadatas = plain_metadata()
SPECIAL: list[dict[str, Any]] = [*NOT_PLAIN, {"replicated_from": "eu"}, {"replicate_to": ["eu"]}]
"""Metadata of messages that are not plain."""


def usual(fields: dict[str, Any], payload: bytes) -> Build:
    def build(producer_id: int, sequence_id: int) -> bytes:
        base: dict[str, Any] = {"producer_name": PRODUCERS.get(producer_id, "?"), "sequence_id": sequence_id}
        metadata = pb.MessageMetadata(**(base | fields))
        if metadata.highest_sequence_id and metadata.highest_sequence_id < 2**62:
            metadata.highest_sequence_id += sequence_id
        messages = metadata.num_messages_in_batch if "num_messages_in_batch" in fields else 1
        highest = metadata.highest_sequence_id
        return send_frame(producer_id, sequence_id, messages, highest, data=build_entry(metadata, payload))

    return build


def forged(change: str) -> Build:
    def build(producer_id: int, sequence_id: int) -> bytes:
        name = PRODUCERS.get(producer_id, "?")
        entry = plain_entry(name, sequence_id, 1, b"forged")
        begin = length_delimited(1, name.encode()) + b"\x10" + varint(sequence_id) + b"\x18\x01"
        if change in DAMAGES:
            entry = damaged(change, entry)
        elif change in UNREADABLE_FIELDS:
            entry = assemble(begin + UNREADABLE_FIELDS[change], b"forged")
        match change:
            case "another name":
                entry = plain_entry("v", sequence_id, 1, b"forged")
            case "a second name":
                entry = assemble(begin + length_delimited(1, b"victim"), b"forged")
            case "a second sequence id":
                entry = assemble(begin + b"\x10" + varint(sequence_id + 40), b"forged")
            case "another sequence id":
                entry = plain_entry(name, sequence_id + 7, 1, b"forged")
            case "a longer command":
                body = b"\x08" + varint(producer_id) + b"\x10" + varint(sequence_id) + b"\x18\x01"
                return frame_of(b"\x08\x06\x32" + bytes((len(body),)) + body, entry)
            case "a transaction":
                return send_frame(producer_id, sequence_id, data=entry, txn_least=9, txn_most=0)
        return send_frame(producer_id, sequence_id, data=entry)

    return build


FORGERIES = (
    *DAMAGES, *UNREADABLE_FIELDS, "another name", "a second name", "a second sequence id", "another sequence id",
    "a longer command", "a transaction",
)  # fmt: skip

plain = st.builds(usual, metadatas, payloads)
unusual = st.builds(
    lambda fields, more, payload: usual(fields | more, payload), metadatas, st.sampled_from(SPECIAL), payloads
)
steps = st.just(1) | st.sampled_from([0, -1, -3, 2, 5, 120, 20_000])
sends = st.tuples(
    st.sampled_from([1, 1, 1, 1, 2, 3, 4]),
    steps.map(lambda step: [step]),
    st.one_of(plain, unusual, st.sampled_from(FORGERIES).map(forged)),
)
"""(producer id, differences to the sequence id before, how the messages are built)."""
runs = st.tuples(st.sampled_from([1, 2, 3]), st.integers(2, 20).map(lambda number: [1] * number), plain)
"""Messages as a producer usually sends them."""


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Frames of a stream, most of them SENDs."""
    frames: list[bytes] = []
    next_ids = dict.fromkeys(PRODUCERS, 0)
    for part in draw(
        st.lists(st.one_of(sends, sends, sends, runs, st.just(PING_FRAME)), min_size=1, max_size=15)
    ):
        if isinstance(part, bytes):
            frames.append(part)
            continue
        producer_id, of_part, build = part
        for step in of_part:
            next_ids[producer_id] = max(0, next_ids[producer_id] + step)
            frames.append(build(producer_id, next_ids[producer_id]))
    return maybe_violated(draw, frames)


class Served(ReceivingRegion):
    """A region that serves a client."""

    def play(self, reads: Sequence[bytes], *, waits: bool) -> Client:
        """Publish a stream to new topics; `waits`: each read has its outcome before the next one."""
        return self.run(self._play(reads, waits))

    async def _play(self, reads: Sequence[bytes], waits: bool) -> Client:
        client = Client(self.world, self.new_prefix())
        await client.open()
        for data in reads:
            client.read(data)
            if waits:
                await client.settled()
        await client.settled()
        client.observe()
        client.connection.connection_lost(None)
        return client


@pytest.fixture(scope="module")
def served() -> Iterator[dict[bool, Served]]:
    """Whether topics are deduplicated -> the region."""
    made = {choice: Served(deduplication=choice) for choice in (True, False)}
    yield made
    for one in made.values():
        one.close()


@settings(max_examples=60)
@given(streams(), st.lists(st.floats(0, 1), max_size=6), st.booleans(), st.booleans())
def test_groups_have_the_outcome_of_single_publishes_for_any_split(
    served: dict[bool, Served], frames: list[bytes], cuts: list[float], deduplicates: bool, waits: bool
) -> None:
    check_equal(served[deduplicates], frames, split(b"".join(frames), cuts), waits=waits)


def check_equal(region: Served, frames: list[bytes], reads: list[bytes], *, waits: bool) -> None:
    in_groups = region.play(reads, waits=waits)
    with without_groups():
        alone, one_by_one = region.play(reads, waits=waits), region.play(frames, waits=True)
    assert in_groups.outcome == alone.outcome
    assert in_groups.writes == alone.writes
    if not one_by_one.outcome[
        "closed"
    ]:  # receipts that are not written yet when a connection is closed are lost
        assert in_groups.outcome == one_by_one.outcome


@pytest.mark.parametrize("deduplicates", [True, False])
@pytest.mark.parametrize(
    "build",
    [
        *(pytest.param(usual({"publish_time": 1} | fields, b"x"), id=str(fields)) for fields in SPECIAL),
        *(pytest.param(forged(change), id=change) for change in FORGERIES),
        pytest.param(usual({"publish_time": 1}, b"w" * (PAYLOAD_BYTES_MAX + 1)), id="too large"),
    ],
)
def test_a_message_that_is_not_plain_has_its_usual_outcome_amid_a_group(
    served: dict[bool, Served], build: Build, deduplicates: bool
) -> None:
    sends = plain_sends(1, 8)
    frames = [*sends[:3], build(1, 3), *sends[4:6], build(1, 5), *sends[6:], build(1, 7)]
    check_equal(served[deduplicates], frames, [b"".join(frames)], waits=True)


def plain_sends(producer_id: int, count_: int, begin: int = 0) -> list[bytes]:
    """Messages in the form in which clients send most of theirs."""
    numbers = range(begin, begin + count_)
    return [
        send_frame(
            producer_id, number, data=plain_entry(PRODUCERS[producer_id], number, 1 + number // 10, b"x")
        )
        for number in numbers
    ]


def test_the_messages_of_one_read_share_every_step(
    served: dict[bool, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check, append, update of the statistics and write of receipts for 1,000 messages, and none for each."""
    counts = StepCounts(monkeypatch)
    client = served[True].play([b"".join(plain_sends(1, 1_000))], waits=True)
    assert counts.calls == dict.fromkeys(("publish_group", "stored", "append", "note_published"), 1)
    assert [len(responses) for responses in client.writes] == [1_000]


def test_producers_of_one_connection_share_the_append_of_their_topic_and_the_write_of_receipts(
    served: dict[bool, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two producers of one topic and one of another: three groups, two appends, each counted once, one write."""
    counts = StepCounts(monkeypatch)
    sends = [send for producer_id in (1, 2, 3) for send in plain_sends(producer_id, 100)]
    client = served[True].play([b"".join(sends)], waits=True)
    assert counts.calls == {"publish_group": 3, "stored": 3, "append": 2, "note_published": 2}
    assert [len(responses) for responses in client.writes] == [300]


def test_a_message_that_is_not_plain_takes_part_in_the_append_and_the_write(
    served: dict[bool, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends a group, is handled alone, and another group begins after it."""
    counts = StepCounts(monkeypatch)
    batch = usual({"publish_time": 1, "num_messages_in_batch": 3, "highest_sequence_id": 2}, b"x")(1, 100)
    sends = [*plain_sends(1, 100), batch, *plain_sends(1, 100, 103)]
    client = served[True].play([b"".join(sends)], waits=True)
    assert counts.calls == {
        "publish_group": 2,
        "publish": 1,
        "admit": 1,
        "fold": 1,
        "stored": 1,
        "append": 1,
        "note_published": 1,
    }
    assert [len(responses) for responses in client.writes] == [201]


def test_the_receipt_of_a_duplicate_beside_another_producer_has_no_position(
    served: dict[bool, Served],
) -> None:
    """The ids of the producer's stored entries, 0 and 2, do not follow each other: the entry between them is of another
    producer, and no receipt for the duplicate."""
    first, second = plain_sends(1, 2)
    client = served[True].play([b"".join((first, *plain_sends(2, 1), first, second))], waits=True)
    receipts = client.outcome["responses"]["receipts of 1"]
    assert [f"entryId: {2**64 - 1}" in one for one in receipts] == [False, True, False]


def test_messages_of_producers_in_turns_are_published_alone_in_one_append(
    served: dict[bool, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of one message costs more than the message."""
    counts = StepCounts(monkeypatch)
    turns = zip(plain_sends(1, 50), plain_sends(2, 50), strict=True)
    client = served[True].play([b"".join(chain.from_iterable(turns))], waits=True)
    assert (counts.calls["publish_group"], counts.calls["publish"]) == (0, 100)
    assert (counts.calls["append"], counts.calls["stored"]) == (1, 2)
    assert [len(responses) for responses in client.writes] == [100]
