"""A run of messages in one SEND has the outcome of the SENDs of its messages. One in another form is refused, and
nothing of it is stored.

A stream of a peer is received twice in one region, in topics of its own: with runs, and with a SEND for each message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.broker.topic.publish_groups import ReplicaGroups
from emulator.errors import ProtocolError
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.message_runs import RUN_MESSAGES_MAX, RUN_METADATA_BYTES_MAX, read_run
from emulator.wire.codec_hot.publishing import NO_PREVIOUS_ENTRY, SendCommand, decode_send, send_frame
from emulator.wire.entry import plain_entry, with_replication
from emulator.wire.entry_layout import assemble, metadata_bounds
from emulator.wire.frames import FrameBuffer
from emulator.wire.message_metadata import REMEMBERED_REST_BYTES_MAX
from emulator.wire.protobuf import decode_command
from tests.broker.connection.raw import RawClient
from tests.broker.connection.send_streams import damaged
from tests.broker.connection.without_socket import (
    PAYLOAD_BYTES_MAX,
    StepCounts,
    payloads,
    plain_metadata,
    split,
)
from tests.broker.regions import regions
from tests.broker.replication.test_replica_groups import (
    FORGERIES,
    LEDGER,
    SPECIAL,
    TOPICS,
    Build,
    Served,
    forged,
    run_of,
    usual,
)

COMPACT = (1, 2)
"""The producers that accept runs."""


def sent_together(frames: Sequence[bytes], **changes: Any) -> bytes:
    """Return the SEND of a run with the messages of these SENDs. `changes`: other fields of its command."""
    sends = [decode_send(command) for command, _ in map(_parts, frames)]
    entries = [entry for _, entry in map(_parts, frames)]
    contents = [entry[metadata_bounds(entry)[1] :] for entry in entries]
    first = entries[0][metadata_bounds(entries[0])[0] : metadata_bounds(entries[0])[1]]
    fields = sends[0]._asdict() | {"run_messages": len(frames)} | changes
    return send_frame(**fields, data=run_entry(first, contents))


def run_entry(metadata: bytes, contents: Sequence[bytes]) -> bytes:
    return assemble(metadata, pack(f">{len(contents)}I", *map(len, contents)) + b"".join(contents))


def _without_time(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != "publish_time"}


def _parts(frame: bytes) -> tuple[bytes, bytes]:
    ((_, command, entry),) = FrameBuffer(10**7).feed(frame)
    return command, entry


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


# Equal outcomes.


def with_fields(fields: dict[str, Any], payload: bytes = b"x") -> Build:
    """Messages with further metadata after that of a plain message, the order in which runs need it."""

    def build(producer_id: int, entry_id: int, previous: int | None, name: str) -> bytes:
        sequence_id = entry_id % 300
        entry = plain_entry(name, sequence_id, 1, payload)
        start, end = metadata_bounds(entry)
        more = pb.MessageMetadata(**fields).SerializePartialToString()
        entry = assemble(entry[start:end] + more, payload)
        replicated = with_replication(entry, "eu", Position(LEDGER, entry_id))
        return send_frame(producer_id, sequence_id, data=replicated, previous_entry=previous)

    return build


plain = st.builds(with_fields, plain_metadata().map(_without_time), payloads)
unusual = st.builds(with_fields, st.sampled_from(SPECIAL), payloads)

similar = st.tuples(
    st.sampled_from([1, 1, 2, 3, 4]),
    st.sampled_from([1, 1, 1, 2, 120, 0, -1, -6]),
    st.integers(2, 20),
    st.one_of(plain, plain, plain, unusual),
    st.booleans(),
)
"""(producer id, difference to the entry id before, number of messages, how they are built, whether a gap is named)."""
alone = st.tuples(
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([1, 1, 1, 2, 0, -3]),
    st.just(1),
    st.one_of(plain, unusual, st.sampled_from(FORGERIES).map(forged)),
    st.booleans(),
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """(the frames with runs, the frames of the same messages alone)."""
    together: list[bytes] = []
    one_by_one: list[bytes] = []
    newest = dict.fromkeys(TOPICS, NO_PREVIOUS_ENTRY)
    for producer_id, step, count, build, is_gap_named in draw(
        st.lists(st.one_of(similar, similar, alone), min_size=1, max_size=8)
    ):
        first = max(0, newest[producer_id] + step)
        named = newest[producer_id] if step > 1 and is_gap_named else None
        frames = [
            build(producer_id, first + number, None if number else named, "p") for number in range(count)
        ]
        newest[producer_id] = first + count - 1
        for of_run in same_lengths(frames, first):
            is_run = len(of_run) > 1 and producer_id != 3
            together += [sent_together(of_run)] if is_run else of_run
        one_by_one += frames
    return together, one_by_one


def same_lengths(frames: list[bytes], first: int) -> list[list[bytes]]:
    """Divide SENDs where their entry id, or their sequence id, gets longer or begins again."""
    groups: list[list[bytes]] = []
    for entry_id, frame in enumerate(frames, first):
        sequence_id = entry_id % 300
        if not groups or entry_id in (10, 100, 1_000) or sequence_id in (0, 128):
            groups.append([])
        groups[-1].append(frame)
    return groups


def normal(outcome: dict[str, Any]) -> dict[str, Any]:
    """A refusal of a message in a run names the sequence id of the first one."""
    responses = {
        kind: [re.sub(r"sequence_id: \d+", "", one) for one in of_kind]
        for kind, of_kind in outcome["responses"].items()
    }
    return outcome | {"responses": responses}


def check_equal(served: Served, together: Sequence[bytes], one_by_one: Sequence[bytes]) -> dict[str, Any]:
    in_runs, outcome = served.play(together, waits=True)
    singly, expected = served.play(one_by_one, waits=True)
    assert normal(outcome) == normal(expected)
    assert in_runs.pending[0] == singly.pending[0] == 0
    for number in outcome["open"]:  # a refusal ends the receipts of a stream
        assert in_runs.confirmed.get(number) == singly.confirmed.get(number)
    return outcome


@settings(max_examples=40)
@given(streams(), st.lists(st.floats(0, 1), max_size=4))
def test_runs_have_the_outcome_of_single_messages_for_any_split(
    served: Served, of_stream: tuple[list[bytes], list[bytes]], cuts: list[float]
) -> None:
    together, one_by_one = of_stream
    check_equal(served, split(b"".join(together), cuts), one_by_one)


MESSAGES = 12
PLAIN = usual({"publish_time": 1}, b"x")


def sends_of(build: Build, first: int = 20, producer_id: int = 1) -> list[bytes]:
    return [
        build(producer_id, first + number, None if number else NO_PREVIOUS_ENTRY, "p")
        for number in range(MESSAGES)
    ]


@pytest.mark.parametrize(
    "build",
    [
        *(pytest.param(with_fields(fields), id=str(fields)) for fields in SPECIAL),
        pytest.param(forged("no publish time"), id="no publish time"),
        pytest.param(usual({"publish_time": 1}, b"w" * (PAYLOAD_BYTES_MAX + 1)), id="too large"),
    ],
)
def test_messages_that_are_not_plain_have_their_usual_outcome_in_a_run(served: Served, build: Build) -> None:
    """Whatever the other region states of its messages, the gate for single ones checks it."""
    frames = sends_of(build)
    before = run_of(1, range(3))
    check_equal(served, [*before, sent_together(frames)], [*before, *frames])


@pytest.mark.parametrize("overlap", [0, 1, 5, MESSAGES, MESSAGES + 3])
def test_messages_that_were_received_before_are_dropped_from_a_run(served: Served, overlap: int) -> None:
    first = run_of(1, range(20, 32))
    again = run_of(1, range(32 - overlap, 32 - overlap + MESSAGES))
    frames = [sends_of(PLAIN)[0], *first[1:]]
    outcome = check_equal(served, [sent_together(frames), sent_together(again)], [*frames, *again])
    assert outcome["topics"][0]["watermarks"] == {"eu": f"{LEDGER}:{max(31, 31 - overlap + MESSAGES)}"}


def test_a_run_is_refused_if_the_entry_before_it_did_not_arrive(served: Served) -> None:
    frames = [*sends_of(PLAIN), *run_of(1, range(40, 50))]
    outcome = check_equal(
        served, [sent_together(frames[:MESSAGES]), sent_together(frames[MESSAGES:])], frames
    )
    assert outcome["topics"][0]["watermarks"] == {"eu": f"{LEDGER}:31"}
    assert 1 not in outcome["open"]


def test_a_message_that_is_too_large_is_refused_after_those_before_it(served: Served) -> None:
    sizes = [*[1] * 5, PAYLOAD_BYTES_MAX + 1, *[1] * 6]
    frames = [
        usual({"publish_time": 1}, b"x" * size)(1, 20 + number, None if number else NO_PREVIOUS_ENTRY, "p")
        for number, size in enumerate(sizes)
    ]
    outcome = check_equal(served, [sent_together(frames)], frames)
    assert len(outcome["topics"][0]["log"]) == 5


def test_a_run_takes_one_step_of_each_kind(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [sends_of(PLAIN)[0], *run_of(1, range(21, 95))]
    counts = StepCounts(monkeypatch)
    peer, outcome = served.play([sent_together(frames)], waits=True)
    assert counts.calls == dict.fromkeys(("stored", "append", "note_published"), 1)
    assert peer.receipts == {1: [(LEDGER, 94, 75)]}
    assert outcome["topics"][0]["log"] == [_parts(frame)[1] for frame in frames]


def test_no_large_metadata_is_kept_for_the_next_message(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region has a replicator for each topic of the other one, whose clients choose keys and properties."""
    made: list[ReplicaGroups] = []
    create = ReplicaGroups.__init__

    def noted(groups: ReplicaGroups, *of_groups: Any) -> None:
        made.append(groups)
        create(groups, *of_groups)

    monkeypatch.setattr(ReplicaGroups, "__init__", noted)
    large = with_fields({"partition_key": "k" * 10_000})
    alone, in_run = sends_of(large), sends_of(large, 200, producer_id=2)
    peer, outcome = served.play([b"".join(alone), sent_together(in_run)], waits=True)
    assert peer.receipts == {1: [(LEDGER, 31, MESSAGES)], 2: [(LEDGER, 211, MESSAGES)]}
    assert [len(topic["log"]) for topic in outcome["topics"][:2]] == [MESSAGES, MESSAGES]
    assert made
    for groups in made:
        assert len(groups._plain_rest) <= REMEMBERED_REST_BYTES_MAX
        assert len(groups._plain_replicas._plain_rest) <= REMEMBERED_REST_BYTES_MAX


# Negotiation.


@pytest.mark.parametrize("is_compact", [True, False])
async def test_runs_are_accepted_in_compact_streams_only(is_compact: bool) -> None:
    """A real Pulsar requests no compact stream; the field of another client has no meaning."""
    async with regions("us", "eu") as world:
        await world.crash("eu")
        peer = await RawClient.connect_as_region(world, "eu")
        assert (await peer.next()).type == pb.BaseCommand.CONNECTED
        opened = await peer.open_producer(name="pulsar.repl.eu-->us", compact_stream=is_compact)
        assert opened.accepts_runs == is_compact


def test_a_run_in_another_stream_is_the_message_that_its_entry_is(served: Served) -> None:
    frame = sent_together(sends_of(PLAIN, producer_id=3))
    _, outcome = served.play([frame], waits=True)
    assert outcome["topics"][2]["log"] == [_parts(frame)[1]]


# Refusals.


def metadata_of(name: str = "p", sequence_id: int = 20, entry_id: int = 20, origin: str = "eu") -> bytes:
    entry = with_replication(plain_entry(name, sequence_id, 1, b""), origin, Position(LEDGER, entry_id))
    start, end = metadata_bounds(entry)
    return entry[start:end]


def run_with(
    metadata: bytes | None = None, messages: int = MESSAGES, sequence_id: int = 20, data: bytes | None = None
) -> bytes:
    if data is None:
        data = run_entry(metadata_of() if metadata is None else metadata, [b"x"] * messages)
    named = {"previous_entry": NO_PREVIOUS_ENTRY, "run_messages": messages}
    return send_frame(1, sequence_id, data=data, **named)


def changed(change: Callable[[bytes], bytes]) -> bytes:
    return run_with(data=change(run_entry(metadata_of(), [b"x"] * MESSAGES)))


FORMS = {
    "a wrong checksum": (changed(lambda entry: damaged("checksum", entry)), "checksum"),
    "a bit of a payload": (changed(lambda entry: entry[:-3] + bytes((entry[-3] ^ 1,)) + entry[-2:]), "checksum"),
    "a bit of a size": (changed(lambda entry: entry[:-15] + b"\1" + entry[-14:]), "checksum"),
    "no checksum": (changed(lambda entry: damaged("no checksum", entry)), "no checksum"),
    "broker metadata": (changed(lambda entry: damaged("broker metadata", entry)), "no checksum"),
    "nothing": (run_with(data=b""), "entry of 0 bytes"),
    "no metadata": (run_with(b""), "unreadable"),
    "a name that does not end": (run_with(b"\x0a\xff\xff\xff\x01"), "unreadable"),
    "no name": (run_with(metadata_of(name="")), "begin with a producer name"),
    "a name that is no text": (run_with(metadata_of().replace(b"\x01p", b"\x01\xff")), "unreadable"),
    "a key instead of a name": (run_with(b"\x32" + metadata_of()[1:]), "begin with a producer name"),
    "another sequence id": (run_with(sequence_id=21), "begin with a producer name"),
    "a long sequence id": (run_with(metadata_of().replace(b"\x10\x14", b"\x10\x94\x00")), "begin with a producer name"),
    "another origin": (run_with(metadata_of(origin="ap")), "end with the origin eu"),
    "a longer origin": (run_with(metadata_of(origin="eux")), "end with the origin eu"),
    "a field after the position": (run_with(metadata_of() + b"\x60\x01"), "end with the origin eu"),
    "a position with a zero": (run_with(metadata_of().replace(b":20", b":02")), "end with the origin eu"),
    "one message": (run_with(messages=1), "1 messages"),
    "billions of messages": (
        run_with(messages=2**32 - 1, data=run_entry(metadata_of(), [b"x"])), "4,294,967,295 messages"
    ),
    "one longer entry id": (run_with(metadata_of(entry_id=89)), "differ in length"),
    "one longer sequence id": (run_with(metadata_of(sequence_id=117), sequence_id=117), "differ in length"),
    "longer entry ids": (run_with(metadata_of(entry_id=95)), "differ in length"),
    "longer sequence ids": (run_with(metadata_of(sequence_id=120), sequence_id=120), "differ in length"),
    "sequence ids that are too large": (
        run_with(metadata_of(sequence_id=2**63 - 5), sequence_id=2**63 - 5), "differ in length"
    ),
    "entry ids that are too large": (run_with(metadata_of(entry_id=2**63 - 5)), "too large"),
    "more payload than stated": (changed(lambda entry: assemble(metadata_of(), entry[-60:] + b"x")), "sizes"),
    "less payload than stated": (changed(lambda entry: assemble(metadata_of(), entry[-60:-1])), "sizes"),
    "no sizes": (run_with(data=assemble(metadata_of(), b"x")), "sizes"),
    "sizes without end": (
        run_with(data=assemble(metadata_of(), b"\xff" * 4 * MESSAGES + b"x" * MESSAGES)), "sizes"
    ),
    "much metadata": (
        run_with(metadata_of("n" * 9_000, 200, 1_000), RUN_METADATA_BYTES_MAX // 9_000, 200), "bytes of metadata each"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_run_in_another_form_is_refused(served: Served, name: str) -> None:
    """For good, as other entries that this region never stores; nothing of it is stored, and the connection and its
    other streams continue."""
    frame, sentence = FORMS[name]
    peer, outcome = served.play([frame, *run_of(2, range(3))], waits=True)
    ((kind, (refusal,)),) = outcome["responses"].items()
    assert kind.endswith("of 1")
    assert "NotAllowedError" in refusal
    assert sentence in refusal
    assert outcome["topics"][0]["log"] == []
    assert outcome["topics"][0]["watermarks"] == {}
    assert outcome["open"] == [2, 3]
    assert not outcome["closed"]
    assert peer.confirmed == {2: ((LEDGER, 2), 3)}
    assert peer.pending == (0, [0, 0, 0, 0])


@pytest.mark.parametrize("entry_id", [0, 979, 1_990, 99_979, 2**63 - 30])
@pytest.mark.parametrize("sequence_id", [0, 107, 128, 2**14 * 3 - 10, 2**28 * 3 - 10])
def test_the_entries_of_a_run_have_the_ids_that_follow(entry_id: int, sequence_id: int) -> None:
    count = 10 if entry_id == 0 else 20
    data = run_entry(metadata_of("p", sequence_id, entry_id), [bytes(number) for number in range(count)])
    run = read_run(SendCommand(1, sequence_id, run_messages=count), data, "eu")
    assert run.entries == [
        with_replication(
            plain_entry("p", sequence_id + number, 1, bytes(number)),
            "eu",
            Position(LEDGER, entry_id + number),
        )
        for number in range(count)
    ]
    assert run.last == (LEDGER, entry_id + count - 1)
    assert run.payload_bytes_max == count - 1


@pytest.mark.parametrize("messages", [RUN_MESSAGES_MAX, RUN_MESSAGES_MAX + 1])
def test_a_run_has_a_maximum_number_of_messages(messages: int) -> None:
    data = run_entry(metadata_of("p", 200, 100_000), [b"x"] * messages)
    send = SendCommand(1, 200, run_messages=messages)
    if messages == RUN_MESSAGES_MAX:
        assert len(read_run(send, data, "eu").entries) == messages
    else:
        with pytest.raises(ProtocolError, match="4,097 messages; 2 to 4,096 are allowed"):
            read_run(send, data, "eu")


@settings(max_examples=300)
@given(
    st.binary(max_size=60) | st.just(b""),
    st.integers(0, 200),
    st.integers(0, 2**32 - 1) | st.integers(0, 40),
    st.integers(0, 2**63 - 1) | st.just(20),
)
def test_any_bytes_are_refused_or_are_entries_with_a_right_checksum(
    noise: bytes, at: int, messages: int, sequence_id: int
) -> None:
    right = run_entry(metadata_of(), [b"x"] * MESSAGES)
    body = right[10:]
    body = body[:at] + noise + body[at + len(noise) :]
    start, end = metadata_bounds(right)
    entry = assemble(body[: end - start], body[end - start :])
    send = SendCommand(1, sequence_id, run_messages=messages)
    try:
        run = read_run(send, entry, "eu")
    except ProtocolError:
        return
    assert len(run.entries) == messages
    for one, data in run.messages():
        start, end = metadata_bounds(data, verify=True)
        metadata = pb.MessageMetadata.FromString(data[start:end])
        assert metadata.sequence_id == one.sequence_id


def test_a_command_of_a_run_is_readable_by_any_decoder() -> None:
    """Another implementation reads the fields that it knows."""
    command, _ = _parts(sent_together(run_of(1, range(20, 30))))
    assert decode_command(command).send.run_messages == 10
