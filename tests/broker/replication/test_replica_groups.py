"""Messages of another region in groups have the outcome of the same messages one by one, for any split of the stream.

A stream of a peer is received three times in one region, in topics of its own: in groups; by the same reads without
groups, which must write the same responses in the same writes; and frame by frame without groups, each durable before
the next is read. The stored entries, the receipts and refusals, the watermarks and the statistics must be equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.broker.replication.peer_auth import METHOD, proof_of
from emulator.model.markers import SnapshotResponse
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot import replica_groups
from emulator.wire.codec_hot.publishing import NO_PREVIOUS_ENTRY, send_frame
from emulator.wire.codec_hot.replica_groups import PlainReplicas
from emulator.wire.command_types import CommandType
from emulator.wire.commands import AuthResponse, create_producer
from emulator.wire.entry import build_entry, plain_entry, with_replication
from emulator.wire.entry_layout import assemble
from emulator.wire.frames import PING_FRAME, FrameBuffer, frame_of, simple_frame
from emulator.wire.markers import encode_marker
from emulator.wire.protobuf import decode_command, length_delimited, tag, varint
from emulator.wire.source_position import position_property
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
from tests.broker.regions import RUN_SECRET, until

TOPICS = {1: "orders", 2: "bills", 3: "loans", 4: "closed"}
"""Producer id -> its topic. The third stream is one of a real Pulsar, the last one is closed before it begins."""
LEDGER = 77
ORIGIN = b"\x2a\x02eu"


@dataclass
class PeerEnd(ConnectionWithoutSocket):
    """The replicator of region eu, connected to region us without a socket."""

    writes: list[list[str]] = field(default_factory=list)
    """The responses in each write, in order."""
    responses: dict[str, list[str]] = field(default_factory=dict)
    """Responses by type and producer."""
    receipts: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """(ledger, entry, number of entries) of the receipts of each producer."""

    async def open(self) -> None:
        greeting = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        greeting.connect.client_version, greeting.connect.protocol_version = "test", 19
        greeting.connect.auth_method_name, greeting.connect.auth_data = METHOD, b"eu"
        self.read(simple_frame(greeting))
        await until(lambda: bool(self.end.written))
        ((_, challenge, _),) = FrameBuffer(10_000).feed(self.end.written[0])
        nonce = decode_command(challenge).authChallenge.challenge.auth_data
        self.read(AuthResponse(METHOD, proof_of(RUN_SECRET, nonce, "eu", "us")).encode())
        for number, topic in TOPICS.items():
            request = create_producer(
                number, self.prefix + topic, number, "pulsar.repl.eu-->us", is_compact_stream=number != 3
            )
            self.read(request.encode())
        await self.opened(len(TOPICS), closed=4)

    async def settled(self) -> None:
        """Wait until everything that was read has its outcome."""
        topics = [topic for _, topic in self.producers.values()]
        await until(
            lambda: (
                not any(one.publishing.issued or one.publishing.batch for one in topics)
                and not self.connection.responses
            )
        )

    def observe(self) -> dict[str, Any]:
        """Return all that the peer, a client or a restart sees of the stream, except for the receipts."""
        for data in self.end.written:
            frames = FrameBuffer(10_000_000).feed(data)
            self.writes.append([self._response(*frame) for frame in frames if frame[0] != CommandType.PING])
        self.writes = [write for write in self.writes if write]
        flow_control, producers = self.connection.flow_control, [one for one, _ in self.producers.values()]
        self.pending = (flow_control.pending_bytes, [one.pending_bytes for one in producers])
        return {
            "responses": self.responses,
            "closed": self.end.closed,
            "open": sorted(self.connection.producers.open),
            "published": [(one.published.messages, one.published.bytes) for one in producers],
            "topics": [outcome_of_topic(self.world, topic) for _, topic in self.producers.values()],
        }

    def _response(self, type_: int, command: bytes, _: bytes) -> str:
        decoded = decode_command(command)
        if type_ == CommandType.SEND_RECEIPT:
            receipt = decoded.send_receipt
            receipt.message_id.ledgerId = 0
            found = (receipt.sequence_id, receipt.highest_sequence_id, receipt.entries)
            self.receipts.setdefault(receipt.producer_id, []).append(found)
        else:
            if type_ == CommandType.SEND_ERROR:
                decoded.send_error.message = decoded.send_error.message.replace(self.prefix, "")
            kind = f"{type_} of {decoded.send_error.producer_id}"
            self.responses.setdefault(kind, []).append(str(decoded))
        return str(decoded)

    @property
    def confirmed(self) -> dict[int, tuple[tuple[int, int], int]]:
        """Producer id -> the last position of its receipts and their number of entries."""
        return {
            number: (found[-1][:2], sum(one[2] for one in found)) for number, found in self.receipts.items()
        }


@contextlib.contextmanager
def without_groups() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PlainReplicas, "take", lambda *_, **__: None)
        yield


# Streams.

Build = Callable[[int, int, int | None, str], bytes]
"""(producer id, entry id in the log of eu, id of the one before it if it is named, name) -> the frame of a SEND."""

metadatas = plain_metadata(
    properties=st.just([pb.KeyValue(key="__MSG_PROP_REPL_SOURCE_POSITION", value="1:1")])
)
SPECIAL: list[dict[str, Any]] = [
    *NOT_PLAIN,
    {"num_messages_in_batch": 90},
    {"marker_type": 99},
    {"replicated_from": "ap"},
    {"replicate_to": ["us"]},
]
"""Metadata of messages that are not plain."""


def usual(fields: dict[str, Any], payload: bytes, ledger: int = LEDGER) -> Build:
    def build(producer_id: int, entry_id: int, previous: int | None, name: str) -> bytes:
        base: dict[str, Any] = {"producer_name": name, "sequence_id": entry_id % 300}
        entry = build_entry(pb.MessageMetadata(**(base | fields)), payload)
        messages = fields.get("num_messages_in_batch", 1)
        replicated = with_replication(entry, "eu", Position(ledger, entry_id))
        return send_frame(producer_id, entry_id % 300, messages, data=replicated, previous_entry=previous)

    return build


def forged(change: str) -> Build:
    def build(producer_id: int, entry_id: int, previous: int | None, name: str) -> bytes:
        position = Position(LEDGER, entry_id)
        at = position_property(position)
        sequence_id = entry_id % 300
        own = plain_entry(name, sequence_id, 1, b"forged")
        entry = with_replication(own, "eu", position)
        begin = length_delimited(1, name.encode()) + b"\x10" + varint(sequence_id)
        text = b"%d:%d" % position
        named: dict[str, Any] = {"previous_entry": previous}
        if change in DAMAGES:
            entry = damaged(change, entry)
        elif change in UNREADABLE_FIELDS:
            entry = assemble(begin + b"\x18\x01" + UNREADABLE_FIELDS[change] + ORIGIN + at, b"forged")
        match change:
            case "no origin":
                entry = own
            case "another region":
                entry = with_replication(own, "ap", position)
            case "a longer region":
                entry = with_replication(own, "eux", position)
            case "no position":
                entry = assemble(begin + b"\x18\x01" + ORIGIN, b"forged")
            case "the position before the origin":
                entry = assemble(begin + b"\x18\x01" + at + ORIGIN, b"forged")
            case "a position with a leading zero":
                entry = assemble(begin + b"\x18\x01" + ORIGIN + _property(b"077:%d" % entry_id), b"forged")
            case "a position with spaces":
                entry = assemble(begin + b"\x18\x01" + ORIGIN + _property(b" " + text), b"forged")
            case "a position without a ledger":
                entry = assemble(begin + b"\x18\x01" + ORIGIN + _property(b":5"), b"forged")
            case "a property of another name":
                entry = assemble(
                    begin + b"\x18\x01" + ORIGIN + at.replace(b"POSITION", b"POSITIOM"), b"forged"
                )
            case "a negative position":
                entry = assemble(begin + b"\x18\x01" + ORIGIN + _property(b"-1:5"), b"forged")
            case "a position that is too large":
                named["previous_entry"] = NO_PREVIOUS_ENTRY
                entry = assemble(
                    begin + b"\x18\x01" + ORIGIN + _property(b"77:9223372036854775808"), b"forged"
                )
            case "two positions":
                lower = position_property(Position(LEDGER, 0))
                entry = assemble(begin + b"\x18\x01" + ORIGIN + at + lower, b"forged")
            case "two origins":
                entry = assemble(begin + b"\x18\x01" + b"\x2a\x02ap" + ORIGIN + at, b"forged")
            case "an origin after the position":
                entry = assemble(begin + b"\x18\x01" + ORIGIN + at + b"\x2a\x02ap", b"forged")
            case "another ledger":
                entry = with_replication(own, "eu", Position(LEDGER + 1, entry_id))
            case "a lower ledger":
                entry = with_replication(own, "eu", Position(LEDGER - 1, entry_id))
            case "a second name":
                entry = assemble(begin + b"\x18\x01" + length_delimited(1, b"v") + ORIGIN + at, b"forged")
            case "no name":
                entry = assemble(b"\x0a\x00" + begin[2 + len(name) :] + b"\x18\x01" + ORIGIN + at, b"forged")
            case "a name that is no text":
                entry = assemble(b"\x0a\x01\xff\x10\x05\x18\x01" + ORIGIN + at, b"forged")
            case "another sequence id":
                entry = with_replication(plain_entry(name, 7_777, 1, b"x"), "eu", position)
            case "a sequence id above the maximum":
                data = with_replication(plain_entry(name, 2**63 + 5, 1, b"x"), "eu", position)
                return send_frame(producer_id, 2**63 + 5, data=data, **named)
            case "no publish time":
                entry = assemble(begin + ORIGIN + at, b"forged")
            case "a marker":
                marker, _ = encode_marker(SnapshotResponse("none", "eu", position), 1)
                entry = with_replication(marker, "eu", position)
            case "a marker of another region":
                marker, _ = encode_marker(SnapshotResponse("none", "ap", position), 1)
                entry = with_replication(marker, "eu", position)
            case "the beginning of the stream":
                named["previous_entry"] = NO_PREVIOUS_ENTRY
            case "a negative predecessor":
                named["previous_entry"] = -5
            case "itself as predecessor":
                named["previous_entry"] = entry_id
            case "a predecessor far away":
                named["previous_entry"] = 2**62
            case "fields in another order":
                body = b"\x10" + varint(sequence_id) + b"\x08" + varint(producer_id)
                return frame_of(b"\x08\x06\x32" + bytes((len(body),)) + body, entry)
            case "a predecessor at the end":
                more = tag(103) + varint(entry_id)
                body = b"\x08" + varint(producer_id) + b"\x10" + varint(sequence_id) + more
                return frame_of(b"\x08\x06\x32" + bytes((len(body),)) + body, entry)
            case "a transaction":
                named |= {"txn_least": 9, "txn_most": 0}
            case "a batch in the command":
                named["highest_sequence_id"] = sequence_id + 3
        return send_frame(producer_id, sequence_id, data=entry, **named)

    return build


def _property(text: bytes) -> bytes:
    key = length_delimited(1, b"__MSG_PROP_REPL_SOURCE_POSITION")
    return length_delimited(4, key + length_delimited(2, text))


FORGERIES = (
    *DAMAGES, *UNREADABLE_FIELDS, "no origin", "another region", "a longer region", "no position",
    "the position before the origin", "a position with a leading zero", "a position with spaces",
    "a position without a ledger", "a property of another name", "a negative position", "a position that is too large",
    "two positions", "two origins", "an origin after the position", "another ledger", "a lower ledger", "a second name",
    "no name", "a name that is no text", "another sequence id", "a sequence id above the maximum", "no publish time",
    "a marker", "a marker of another region", "the beginning of the stream", "a negative predecessor",
    "itself as predecessor", "a predecessor far away", "fields in another order", "a predecessor at the end",
    "a transaction", "a batch in the command",
)  # fmt: skip

plain = st.builds(usual, metadatas, payloads)
unusual = st.builds(
    lambda fields, more, payload: usual(fields | more, payload), metadatas, st.sampled_from(SPECIAL), payloads
)
HARMLESS = ("a marker", "the beginning of the stream", "fields in another order", "another sequence id")
steps = st.sampled_from([1, 1, 1, 1, 1, 1, 2, 5, 120, 20_000, 0, -1, -3])
sends = st.tuples(
    st.sampled_from([1, 1, 1, 1, 2, 3, 4]),
    steps.map(lambda step: [step]),
    st.one_of(plain, plain, unusual, st.sampled_from([*HARMLESS * 5, *FORGERIES]).map(forged)),
    st.booleans(),
)
"""(producer id, differences to the entry id before, how the messages are built, whether a gap is named)."""
runs = st.tuples(
    st.sampled_from([1, 2, 3]), st.integers(2, 20).map(lambda number: [1] * number), plain, st.just(True)
)
"""Messages as a replicator usually sends them."""
gaps = st.tuples(
    st.sampled_from([1, 2, 3]), st.lists(st.sampled_from([1, 2, 3]), min_size=2), plain, st.just(True)
)
"""Messages between which the log of the source has others, of which a SEND names the one before it."""
resent = st.tuples(
    st.sampled_from([1, 2, 3]),
    st.integers(1, 12).map(lambda number: [-5] + [1] * number),
    plain,
    st.just(True),
)
"""Messages of which the first ones were received before."""


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Frames of a stream, most of them SENDs."""
    frames: list[bytes] = []
    newest = dict.fromkeys(TOPICS, NO_PREVIOUS_ENTRY)
    part = st.one_of(sends, sends, runs, runs, gaps, resent, st.just(PING_FRAME))
    for one in draw(st.lists(part, min_size=1, max_size=12)):
        if isinstance(one, bytes):
            frames.append(one)
            continue
        producer_id, of_part, build, is_gap_named = one
        names = draw(st.sampled_from([["p"], ["p"], ["p", "q"], ["p" * 130]]))
        for number, step in enumerate(of_part):
            entry_id = max(0, newest[producer_id] + step)
            previous = newest[producer_id] if step > 1 and is_gap_named else None
            frames.append(build(producer_id, entry_id, previous, names[number % len(names)]))
            newest[producer_id] = entry_id
    return maybe_violated(draw, frames)


class Served(ReceivingRegion):
    """A region that another one replicates to."""

    def __init__(self) -> None:
        super().__init__("eu")
        self.run(self.world.crash("eu"))  # its own replicators would replace those of the tests

    def play(self, reads: Sequence[bytes], *, waits: bool) -> tuple[PeerEnd, dict[str, Any]]:
        """Receive a stream in new topics; `waits`: each read has its outcome before the next one."""
        return self.run(self._play(reads, waits))

    async def _play(self, reads: Sequence[bytes], waits: bool) -> tuple[PeerEnd, dict[str, Any]]:
        peer = PeerEnd(self.world, self.new_prefix())
        await peer.open()
        for data in reads:
            peer.read(data)
            if waits:
                await peer.settled()
        await peer.settled()
        outcome = peer.observe()
        peer.connection.connection_lost(None)
        return peer, outcome


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


@settings(max_examples=100)
@given(streams(), st.lists(st.floats(0, 1), max_size=6), st.booleans())
def test_groups_have_the_outcome_of_single_messages_for_any_split(
    served: Served, frames: list[bytes], cuts: list[float], waits: bool
) -> None:
    check_equal(served, frames, split(b"".join(frames), cuts), waits=waits)


def check_equal(region: Served, frames: list[bytes], reads: list[bytes], *, waits: bool) -> None:
    in_groups, outcome = region.play(reads, waits=waits)
    with without_groups():
        alone, outcome_alone = region.play(reads, waits=waits)
        one_by_one, outcome_one_by_one = region.play(frames, waits=True)
    assert outcome == outcome_alone
    assert in_groups.writes == alone.writes
    assert in_groups.pending == alone.pending
    if one_by_one.end.closed:  # receipts that are not written yet when a connection is closed are lost
        return
    assert outcome == outcome_one_by_one
    for number in outcome["open"]:  # a refusal ends the receipts of a stream
        assert in_groups.confirmed.get(number) == one_by_one.confirmed.get(number)


def run_of(producer_id: int, entry_ids: Sequence[int], name: str = "p") -> list[bytes]:
    """Messages as a replicator sends most of them."""
    build = usual({"publish_time": 1}, b"x")
    return [build(producer_id, entry_id, None, name) for entry_id in entry_ids]


@pytest.mark.parametrize("producer_id", [1, 3])
@pytest.mark.parametrize(
    "build",
    [
        *(pytest.param(usual({"publish_time": 1} | fields, b"x"), id=str(fields)) for fields in SPECIAL),
        *(pytest.param(forged(change), id=change) for change in FORGERIES),
        pytest.param(usual({"publish_time": 1}, b"w" * (PAYLOAD_BYTES_MAX + 1)), id="too large"),
    ],
)
def test_a_message_that_is_not_plain_has_its_usual_outcome_amid_a_group(
    served: Served, build: Build, producer_id: int
) -> None:
    frames = [
        *run_of(producer_id, range(3)),
        build(producer_id, 3, None, "p"),
        *run_of(producer_id, range(4, 6)),
        build(producer_id, 5, None, "p"),
        build(producer_id, 6, None, "p"),
        *run_of(producer_id, range(7, 9)),
    ]
    check_equal(served, frames, [b"".join(frames)], waits=True)


@pytest.mark.parametrize("missing", range(1, 9))
def test_a_missing_message_is_noticed_at_each_place_of_a_group(served: Served, missing: int) -> None:
    """The watermark must not pass it: the source sends it again."""
    frames = run_of(1, range(10))
    del frames[missing]
    check_equal(served, frames, [b"".join(frames)], waits=True)
    _, outcome = served.play([b"".join(frames)], waits=True)
    assert outcome["topics"][0]["watermarks"] == {"eu": f"{LEDGER}:{missing - 1}"}
    assert 1 not in outcome["open"]


def test_the_messages_of_one_read_share_every_step(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check, append, update of the statistics and receipt for 90 messages. The first one is decoded, and the first
    whose position is longer."""
    counts = StepCounts(monkeypatch, (PlainReplicas, "_read"))
    peer, _ = served.play([b"".join(run_of(1, range(90)))], waits=True)
    decoded = counts.calls.pop("_read", None)
    assert decoded == (2 if replica_groups.__file__.endswith(".py") else None), (
        "compiled code calls its own directly"
    )
    assert counts.calls == dict.fromkeys(("publish_group", "stored", "append", "note_published"), 1)
    assert peer.receipts == {1: [(LEDGER, 89, 90)]}


def test_a_real_pulsar_has_a_receipt_for_each_entry(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = StepCounts(monkeypatch, (PlainReplicas, "_read"))
    peer, _ = served.play([b"".join(run_of(3, range(50)))], waits=True)
    assert (counts.calls["publish"], counts.calls["stored"], counts.calls["append"]) == (50, 1, 1)
    assert peer.receipts == {3: [(LEDGER, entry_id, 1) for entry_id in range(50)]}


def test_two_streams_and_messages_after_gaps_are_received_in_groups(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = StepCounts(monkeypatch, (PlainReplicas, "_read"))
    build = usual({"publish_time": 1}, b"x")
    with_gaps = [build(2, entry_id, entry_id - 2 if entry_id else None, "p") for entry_id in range(0, 60, 2)]
    peer, _ = served.play([b"".join(chain(run_of(1, range(50)), with_gaps))], waits=True)
    assert (counts.calls["publish_group"], counts.calls["publish"], counts.calls["append"]) == (2, 1, 2)
    assert peer.receipts == {1: [(LEDGER, 49, 50)], 2: [(LEDGER, 58, 30)]}


def test_a_batch_and_a_duplicate_count_once_in_a_receipt(served: Served) -> None:
    build = usual({"publish_time": 1, "num_messages_in_batch": 3, "highest_sequence_id": 2}, b"x")
    frames = [*run_of(1, range(4)), build(1, 4, None, "p"), *run_of(1, [3]), *run_of(1, range(5, 8))]
    peer, _ = served.play([b"".join(frames)], waits=True)
    assert peer.receipts == {1: [(LEDGER, 7, 9)]}


def test_a_message_of_another_stream_ends_the_group(served: Served) -> None:
    """Although its position continues the group."""
    build = usual({"publish_time": 1}, b"x")
    frames = [*run_of(1, range(3)), build(2, 3, NO_PREVIOUS_ENTRY, "p"), *run_of(2, range(4, 6))]
    check_equal(served, frames, [b"".join(frames)], waits=True)


@pytest.mark.parametrize("entry_id", [8, 9, 97, 126, 2**63 - 3])
@pytest.mark.parametrize("sequence_id", [0, 125, 16_380, 2**21 - 3, 2**28 - 3, 2**63 - 3])
def test_numbers_that_become_longer_or_too_large_in_a_group(
    served: Served, entry_id: int, sequence_id: int
) -> None:
    """A sequence id or an entry id above 2^63 - 1 is refused after the messages before it."""
    frames = []
    for step in range(8):
        entry = with_replication(
            plain_entry("p", sequence_id + step, 1, b"x"), "eu", Position(LEDGER, entry_id + step)
        )
        named = {} if step else {"previous_entry": NO_PREVIOUS_ENTRY}
        frames.append(send_frame(1, sequence_id + step, data=entry, **named))
    check_equal(served, frames, [b"".join(frames)], waits=True)


def test_the_number_at_the_end_of_a_command_may_not_be_its_sequence_id(served: Served) -> None:
    """The next command is not the one before with the sequence id increased, but names another predecessor."""

    def at_the_end(sequence_id: int, previous: int, entry: bytes) -> bytes:
        body = b"\x08\x01\x10" + varint(sequence_id) + tag(103) + varint(previous)
        return frame_of(b"\x08\x06\x32" + bytes((len(body),)) + body, entry)

    entries = [
        with_replication(plain_entry("p", number, 1, b"x"), "eu", Position(LEDGER, number))
        for number in (5, 6)
    ]
    frames = [*run_of(1, range(5)), at_the_end(5, 4, entries[0]), at_the_end(5, 6, entries[1])]
    check_equal(served, frames, [b"".join(frames)], waits=True)
