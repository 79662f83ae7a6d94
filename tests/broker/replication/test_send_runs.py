"""What a replicator sends is the same in runs and entry by entry: messages, window, statistics, and where it stops.

Two replicators of one topic, to different regions, share the forms of its entries. They send the same log in any parts,
from the store or from memory, beside a third one that builds the form of each entry alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.broker.memory_budgets import MemoryBudget
from emulator.broker.replication import entry_forms
from emulator.broker.replication.entry_forms import ReplicatedEntryCache
from emulator.broker.replication.replicator import Replicator
from emulator.broker.topic.new_entries import EntryGroup, Part, end_id, part_from
from emulator.broker.topic.stored_entry import PlainEntry, PlainReplica, StoredEntry
from emulator.core.replication.progress import Forwarding, ReplicationProgress, forwarding
from emulator.model.reasons import Reason
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot import send_runs
from emulator.wire.codec_hot.message_runs import RUN_MESSAGES_MAX, RUN_METADATA_BYTES_MAX, read_run
from emulator.wire.codec_hot.publishing import begin_of_send, decode_send, end_of_send, send_frame
from emulator.wire.codec_hot.send_runs import PLAIN_ENTRY_BYTES_MAX, PlainForms
from emulator.wire.entry import build_entry, plain_entry, with_replication
from emulator.wire.entry_layout import assemble
from emulator.wire.frames import Frame, FrameBuffer, frame_of
from emulator.wire.markers import stored_marker
from emulator.wire.message_metadata import scan_entry
from emulator.wire.protobuf import length_delimited, tag

LEDGER = 7
KNOWN_VERSION, UNKNOWN_VERSION = b"\0" * 7 + b"\1", b"\0" * 7 + b"\2"


class Sender:
    """A replicator without a link, and what it wrote."""

    def __init__(
        self,
        remote: str,
        producer_id: int,
        cache: ReplicatedEntryCache,
        *,
        sends_runs: bool = False,
        **limits: int,
    ) -> None:
        self.remote, self.producer_id, self.sends_runs = remote, producer_id, sends_runs
        self.needs_single_frames = False
        self.progress = ReplicationProgress(
            -1, entries_max=limits["entries_max"], bytes_max=limits["bytes_max"]
        )
        self.topic = self.region = self.resources = self
        self.ledger_id, self.forms = LEDGER, cache
        self.peer, self.entry_bytes_max = self, limits["entry_bytes_max"]
        self._stored = self._schemas = self.versions = self.rate = self.sent = self
        self._forwarding = forwarding
        self.written: list[bytes] = []
        self.counted: list[tuple[int, int]] = []
        self.reasons: list[str] = []

    write = property(lambda self: self.written.append)

    def changed(self) -> None: ...

    def remote_version(self, version: bytes) -> bytes | None:
        return {KNOWN_VERSION: b"\0" * 7 + b"\5"}.get(version)

    def begin(self, version: bytes) -> None:
        self.reasons.append(f"schema {version.hex()}")

    def add(self, messages: int, size_bytes: int) -> None:
        self.counted.append((messages, size_bytes))

    def count(self, messages: int, size_bytes: int) -> None:
        assert self.counted[-1] == (messages, size_bytes), "against the rate limit as in the statistics"

    def _park(self, why: Reason) -> None:
        self.reasons.append(str(why))

    _add_part = Replicator._add_part
    _send, _skipped, _form_of = Replicator._send, Replicator._skipped, Replicator._form_of  # type: ignore[assignment]
    _forwards = Replicator._forwards  # type: ignore[assignment]

    def send(self, entries: Sequence[StoredEntry]) -> None:
        next_id = self.progress.next_entry_id
        self._send([[one for one in entries if one.entry_id >= next_id]])  # type: ignore[arg-type]

    def send_in_groups(self, entries: Sequence[StoredEntry], entries_max: int) -> None:
        """Send up to that many entries of a log, as they are in the cache: plain ones in columns."""
        parts: list[Sequence[StoredEntry]] = []
        left = entries_max
        for part in grouped(entries):
            if left > 0 and end_id(part) > self.progress.next_entry_id:
                parts.append(part_from(part, self.progress.next_entry_id, left))
                left -= len(parts[-1])
        self._send(parts)  # type: ignore[arg-type]

    def checked(self) -> bytes:
        """Return the frames, with one for each message. The sizes and numbers of messages must be the ones that were
        counted."""
        written = b"".join(self.written)
        frames = FrameBuffer(10**8).feed(written)
        assert all(len(entry) <= self.entry_bytes_max for _, _, entry in frames)
        alone = without_runs(frames)
        entries = [entry for _, _, entry in FrameBuffer(10**8).feed(alone)]
        assert sum(scan_entry(entry).num_messages for entry in entries) == sum(one for one, _ in self.counted)
        assert sum(map(len, entries)) == sum(one for _, one in self.counted)
        if not self.sends_runs:
            assert alone == written
        return alone

    def outcome(self) -> dict[str, Any]:
        """Return what was sent, and the progress before and after all receipts arrive. What precedes the entries in
        flight and is not sent counts as confirmed only then, or if it was read alone."""
        in_flight = [
            (run.first_entry_id + index, size)
            for run in self.progress._runs
            for index, size in enumerate(run.sizes[run.dropped :])
        ]
        if in_flight:
            assert self.progress.received(LEDGER, [(LEDGER, in_flight[-1][0], len(in_flight))])
        return {
            "in flight": in_flight,
            "written": self.checked(),
            "messages": sum(one for one, _ in self.counted),
            "bytes": sum(one for _, one in self.counted),
            "confirmed": self.progress.confirmed,
            "next": (self.progress.next_entry_id, self.progress.last_sent, self.progress.room),
            "reasons": self.reasons,
        }


def grouped(entries: Sequence[StoredEntry]) -> list[Part]:
    """Return a log as it is in the cache, with plain messages in groups."""
    parts: list[Part] = []
    for key, of_part in groupby(enumerate(entries), lambda one: group_key(*one)):
        of_key = [entry for _, entry in of_part]
        datas = [entry.data for entry in of_key]
        origin = of_key[0].replicated_from if key is not None else None
        parts.append(of_key if key is None else EntryGroup(of_key[0].entry_id, datas, 0, origin))
    return parts


def group_key(index: int, entry: StoredEntry) -> tuple[str | None, int] | None:
    """Return what the entries of a group have in common; None for an entry that is in none."""
    if not isinstance(entry, PlainEntry | PlainReplica):
        return None
    return entry.replicated_from, entry.entry_id - index


def without_runs(frames: Sequence[Frame]) -> bytes:
    """Return the SENDs of a stream, with one for each message of its runs."""
    alone: list[bytes] = []
    for _, command, entry in frames:
        send = decode_send(command)
        if send.run_messages:
            for one, data in read_run(send, entry, "us").messages():
                form = end_of_send(one.sequence_id, 1, 0, marker=False, data=data)
                alone += [begin_of_send(one.producer_id, form, one.previous_entry), form.data]
        else:
            alone.append(frame_of(command, entry))
    return b"".join(alone)


# Logs.

metadatas = st.fixed_dictionaries(
    {"publish_time": st.sampled_from([1, 1, 1, 200, 1_795_000_000_000])},
    optional={
        "partition_key": st.sampled_from(["", "k", "\xb0\x01"]),
        "event_time": st.just(3),
        "ordering_key": st.sampled_from([b"\xff", b"\xb0\x01\xb8\x01", b"\x82\x01"]),
        "properties": st.just([pb.KeyValue(key="__MSG_PROP_REPL_SOURCE_POSITION", value="1:1")]),
    },
)
SPECIAL: list[dict[str, Any]] = [
    {"num_messages_in_batch": 3, "highest_sequence_id": 9},
    {"num_messages_in_batch": 1},
    {"num_chunks_from_msg": 3, "chunk_id": 0, "uuid": "u"},
    {"marker_type": 10},
    {"marker_type": 12},
    {"replicated_from": "eu"},
    {"replicated_from": "ap"},
    {"replicate_to": ["eu"]},
    {"replicate_to": ["ap"]},
    {"deliver_at_time": 5},
    {"txnid_least_bits": 1, "txnid_most_bits": 0},
    {"schema_version": KNOWN_VERSION},
    {"schema_version": UNKNOWN_VERSION},
    {"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]},
]
payloads = st.sampled_from([b"", b"x", b"y" * 50, b"z" * 3_000, b"w" * 5_000])


def entry_of(fields: dict[str, Any], payload: bytes, name: str, sequence_id: int) -> bytes:
    base: dict[str, Any] = {"producer_name": name, "sequence_id": sequence_id}
    return build_entry(pb.MessageMetadata(**(base | fields)), payload)


def unusual_form(kind: str, sequence_id: int) -> bytes:
    data = plain_entry("p", sequence_id, 1, b"x")
    begin = length_delimited(1, b"p") + b"\x10"
    match kind:
        case "no checksum":
            return data[6:]
        case "broker metadata":
            return b"\x0e\x02\0\0\0\0" + data
        case "a second name":
            return assemble(begin + b"\x05\x18\x01" + length_delimited(1, b"q"), b"x")
        case "a longer sequence id":
            return assemble(begin + b"\x85\x00\x18\x01", b"x")
        case "another order":
            return assemble(b"\x10\x05\x18\x01" + length_delimited(1, b"p"), b"x")
        case "an unknown field":
            return assemble(begin + b"\x05\x18\x01" + tag(99) + b"\x01", b"x")
    return assemble(begin + b"\x05\x18\x01" + length_delimited(4, b"\xff"), b"x")


KINDS = (
    "no checksum", "broker metadata", "a second name", "a longer sequence id", "another order", "an unknown field",
    "unreadable properties",
)  # fmt: skip
ids = st.integers(0, 200) | st.sampled_from([16_383, 16_384, 2**31, 2**62])
plain = st.builds(entry_of, metadatas, payloads, st.sampled_from(["p", "p", "q", "n" * 140]), ids)
special = st.builds(
    lambda fields, more, number: entry_of(fields | more, b"x", "p", number),
    metadatas,
    st.sampled_from(SPECIAL),
    ids,
)
runs = st.builds(
    lambda fields, payload, first, count: [entry_of(fields, payload, "p", first + n) for n in range(count)],
    metadatas,
    payloads,
    ids,
    st.integers(1, 20) | st.just(70),
)
replicas = st.builds(
    lambda count, origin: [
        with_replication(plain_entry("p", n, 1, b"x"), origin, Position(3, n)) for n in range(count)
    ],
    st.integers(1, 8),
    st.sampled_from(["eu", "ap"]),
)
parts = st.one_of(
    runs,
    runs,
    replicas,
    st.builds(lambda one: [one], st.one_of(plain, special)),
    st.builds(lambda kind, number: [unusual_form(kind, number)], st.sampled_from(KINDS), ids),
)
logs = st.lists(st.tuples(st.integers(0, 3) | st.just(0), parts), min_size=1, max_size=8)
"""(ids without an entry, entries), in log order."""


def in_memory(entry_id: int, data: bytes) -> StoredEntry:
    """Return an entry as it is in memory after it was published or received, in a group if it is plain."""
    info = scan_entry(data)
    run = PlainForms("?").take([PlainEntry(entry_id, data)], 0, LEDGER, -1)
    if run is not None:
        return PlainEntry(entry_id, data)
    if info.replicated_from is not None and info.marker_type is None and not info.is_batch:
        return PlainReplica(entry_id, data, info.replicated_from)
    return StoredEntry(entry_id, data, info, stored_marker(data, info))


def entries_of(log: list[tuple[int, list[bytes]]], first_id: int, *, from_store: bool) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    entry_id = first_id
    for gap, datas in log:
        entry_id += gap
        for data in datas:
            found.append((StoredEntry.read if from_store else in_memory)(entry_id, data))
            entry_id += 1
    return found


def alone(sender: Sender, entries: Sequence[StoredEntry]) -> None:
    """Send entry by entry, each in a form of its own."""
    for entry in entries:
        if sender.progress.room <= 0 or sender.reasons:
            return
        before = sender.progress.next_entry_id
        sender.forms = ReplicatedEntryCache("us", MemoryBudget("forms"))
        sender.send([StoredEntry(entry.entry_id, entry.data, scan_entry(entry.data), entry.marker)])
        if sender.progress.next_entry_id == before:
            return


windows = st.fixed_dictionaries(
    {
        "entries_max": st.sampled_from([3, 10, 1_000]),
        "bytes_max": st.sampled_from([300, 4_000, 10**7]),
        "entry_bytes_max": st.sampled_from([150, 4_000, 10**7]),
    }
)


@settings(max_examples=200)
@given(
    logs,
    st.sampled_from([0, 95, 9_990]),
    windows,
    st.lists(st.integers(1, 40), max_size=5),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_runs_are_sent_as_single_entries_are(
    log: list[tuple[int, list[bytes]]],
    first_id: int,
    limits: dict[str, int],
    sizes: list[int],
    from_store: bool,
    in_groups: bool,
    data: st.DataObject,
) -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    senders = [
        Sender("eu", 3, cache, **limits, sends_runs=data.draw(st.booleans())),
        Sender(
            "ap", data.draw(st.sampled_from([4, 300])), cache, **limits, sends_runs=data.draw(st.booleans())
        ),
    ]
    single = [Sender(one.remote, one.producer_id, cache, **limits) for one in senders]
    entries = entries_of(log, first_id, from_store=from_store)
    for size in [*sizes, len(entries)]:
        sender = data.draw(st.sampled_from(senders))
        if not sender.reasons and sender.progress.room > 0:
            begin = sender.progress.next_entry_id
            if in_groups:
                sender.send_in_groups(entries, size)
            else:
                sender.send([one for one in entries if one.entry_id >= begin][:size])
    for sender in senders:
        if not sender.reasons and sender.progress.room > 0:
            sender.send_in_groups(entries, len(entries)) if in_groups else sender.send(entries)
    for sender, one in zip(senders, single, strict=True):
        alone(one, entries)
        assert sender.outcome() == one.outcome()


def test_single_entries_are_sent_in_their_replicated_form() -> None:
    """Those are what `with_replication` and `send_frame` return, with the predecessor if it is not implied."""
    sender = Sender("eu", 3, ReplicatedEntryCache("us", MemoryBudget("forms")), **WIDE)
    datas = [plain_entry("p", 5, 1, b"x"), plain_entry("p", 6, 1, b"y"), plain_entry("q", 2, 1, b"z")]
    alone(sender, [StoredEntry.read(entry_id, one) for entry_id, one in zip((0, 1, 4), datas, strict=True)])
    forms = [
        with_replication(one, "us", Position(LEDGER, entry_id))
        for entry_id, one in zip((0, 1, 4), datas, strict=True)
    ]
    assert b"".join(sender.written) == b"".join(
        [
            send_frame(3, 5, data=forms[0]),
            send_frame(3, 6, data=forms[1]),
            _with_previous(forms[2], 1),
        ]
    )


WIDE = {"entries_max": 1_000, "bytes_max": 10**7, "entry_bytes_max": 10**7}


def _with_previous(data: bytes, previous: int) -> bytes:
    """A SEND whose predecessor is between its two ids."""
    body = b"\x08\x03" + tag(103) + bytes((previous,)) + b"\x10\x02"
    command = b"\x08\x06\x32" + bytes((len(body),)) + body
    return (len(command) + len(data) + 4).to_bytes(4) + len(command).to_bytes(4) + command + data


def test_a_run_is_built_once_for_all_regions_and_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    senders = [Sender("eu", 3, cache, **WIDE), Sender("ap", 4, cache, **WIDE)]
    entries = [PlainEntry(one, plain_entry("p", one, 1, b"x")) for one in range(500)]
    decoded, built, read = [], [], []
    monkeypatch.setattr(
        "emulator.broker.topic.stored_entry.scan_entry", lambda data: decoded.append(data) or scan_entry(data)
    )
    take = PlainForms.take
    monkeypatch.setattr(PlainForms, "take", lambda *of_run, **how: built.append(1) or take(*of_run, **how))
    of_one = PlainForms._read
    monkeypatch.setattr(PlainForms, "_read", lambda *of_entry: read.append(1) or of_one(*of_entry))
    for sender in senders:
        sender.send(entries)
    assert (len(decoded), len(built)) == (0, 1)
    is_counted = send_runs.__file__.endswith(".py")  # compiled code calls its own functions directly
    assert len(read) == (1 if is_counted else 0), "the others follow from the one before"
    for sender in senders:
        frames = FrameBuffer(10**6).feed(sender.written[0])
        assert len(sender.written) == 1
        assert [decode_send(command)[:2] for _, command, _ in frames] == [
            (sender.producer_id, one) for one in range(500)
        ]


def test_messages_of_other_regions_are_skipped_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions: list[Forwarding] = []
    sender = Sender("ap", 4, ReplicatedEntryCache("us", MemoryBudget("forms")), **WIDE)
    sender._forwarding = lambda *claims: decisions.append(forwarding(*claims)) or decisions[-1]
    replica = with_replication(plain_entry("p", 0, 1, b"x"), "eu", Position(3, 0))
    monkeypatch.setattr("emulator.broker.topic.stored_entry.scan_entry", lambda _: pytest.fail("decoded"))
    sender.send([PlainReplica(one, replica, "eu" if one < 200 else "asia") for one in range(300)])
    assert decisions == [Forwarding.FROM_OTHER_REGION] * 2, "one for each origin"
    assert (sender.written, sender.progress.confirmed) == ([], 299)


@pytest.mark.parametrize("from_store", [True, False])
@pytest.mark.parametrize("first", ["eu", "ap"])
@pytest.mark.parametrize(
    "other",
    [
        *(pytest.param(entry_of({"publish_time": 1} | one, b"x", "p", 5), id=str(one)) for one in SPECIAL),
        *(pytest.param(unusual_form(kind, 5), id=kind) for kind in KINDS),
    ],
)
def test_an_entry_that_is_not_plain_is_sent_or_skipped_alone_amid_runs(
    other: bytes, first: str, from_store: bool
) -> None:
    """Whichever region is sent it first."""
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    senders = [Sender("eu", 3, cache, **WIDE, sends_runs=True), Sender("ap", 4, cache, **WIDE)]
    plains = [plain_entry("p", number, 1, b"x") for number in range(25)]
    log = [(0, [*plains[:10], other, *plains[10:12], other, other, *plains[12:]])]
    entries = entries_of(log, 0, from_store=from_store)
    for sender in senders if first == "eu" else reversed(senders):
        sender.send(entries)
    for sender in senders:
        single = Sender(sender.remote, sender.producer_id, cache, **WIDE)
        alone(single, entries)
        assert sender.outcome() == single.outcome()


def test_a_hidden_message_is_not_sent_amid_a_run() -> None:
    """It belongs to an aborted transaction."""
    entries = [PlainEntry(one, plain_entry("p", one, 1, b"x")) for one in range(25)]
    entries[12].hidden = True
    for sends_runs in (True, False):
        cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
        sender = Sender("eu", 3, cache, **WIDE, sends_runs=sends_runs)
        sender.send(entries)
        sent = [scan_entry(entry).sequence_id for _, _, entry in FrameBuffer(10**6).feed(sender.checked())]
        assert sent == [*range(12), *range(13, 25)]


@pytest.mark.parametrize("size", [0, PLAIN_ENTRY_BYTES_MAX])
def test_a_run_ends_before_an_entry_with_another_head_or_a_large_one(size: int) -> None:
    datas = [plain_entry("p", number, 1, b"x") for number in range(9)]
    datas[5] = plain_entry("p", 5, 1, bytes(size)) if size else b"\x0e\x03" + datas[5][2:]
    entries = [PlainEntry(*one) for one in enumerate(datas)]
    forms = PlainForms("us")
    runs = [forms.take(entries, index, LEDGER, -1) for index in (0, 5, 6)]
    assert [run if run is None else (run.first_entry_id, len(run)) for run in runs] == [(0, 5), None, (6, 3)]


def test_a_run_has_the_messages_of_all_producers_and_ends_before_the_next_run() -> None:
    entries = [
        PlainEntry(number, plain_entry("p" if number < 20 else "q", number, 1, b"x")) for number in range(40)
    ]
    for stop, expected in ((-1, 40), (30, 30), (5, 5), (1, 1)):
        run = PlainForms("us").take(entries, 0, LEDGER, stop)
        assert run is not None
        assert len(run) == expected


def test_entries_of_one_size_with_commands_of_two_sizes() -> None:
    """The sequence id takes one more byte, and the payload one less."""
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    datas = [plain_entry("p", 127, 1, b"xx"), plain_entry("p", 128, 1, b"x")]
    sender = Sender("eu", 3, cache, **WIDE)
    sender.send([PlainEntry(*one) for one in enumerate(datas)])
    commands = [decode_send(command) for _, command, _ in FrameBuffer(10**6).feed(sender.checked())]
    assert [one.sequence_id for one in commands] == [127, 128]


@pytest.mark.parametrize("fits", [True, False])
def test_an_entry_of_exactly_the_limit_of_the_remote_region_is_sent(fits: bool) -> None:
    size = len(with_replication(plain_entry("p", 2, 1, bytes(100)), "us", Position(LEDGER, 2)))
    entries = [
        PlainEntry(one, plain_entry("p", one, 1, bytes({1: 99, 2: 100}.get(one, 1)))) for one in range(4)
    ]
    limits = WIDE | {"entry_bytes_max": size if fits else size - 1}
    sender = Sender("eu", 3, ReplicatedEntryCache("us", MemoryBudget("forms")), **limits)
    sender.send(entries)
    assert (sender.progress.last_sent, sender.reasons) == (3 if fits else 1, [])
    if not fits:
        assert sender.outcome()["confirmed"] == 1
        sender.send(entries)
        (reason,) = sender.reasons
        assert f"{LEDGER}:2" in reason


def test_an_entry_has_the_version_of_its_schema_in_the_remote_region() -> None:
    data = entry_of({"publish_time": 1, "schema_version": KNOWN_VERSION}, b"x", "p", 5)
    sender = Sender("eu", 3, ReplicatedEntryCache("us", MemoryBudget("forms")), **WIDE)
    sender.send([PlainEntry(0, data)])
    expected = with_replication(data, "us", Position(LEDGER, 0), b"\0" * 7 + b"\5")
    assert sender.checked() == send_frame(3, 5, data=expected)


# Runs of messages in one SEND.


def sends_of(sender: Sender) -> list[tuple[int, int, int | None]]:
    """(sequence id, number of messages, named entry before it) of each SEND; 0: a single message."""
    commands = [decode_send(command) for _, command, _ in FrameBuffer(10**8).feed(b"".join(sender.written))]
    return [(one.sequence_id, one.run_messages, one.previous_entry) for one in commands]


def similar(count: int, first: int = 0, name: str = "p", size: int = 1) -> list[bytes]:
    return [plain_entry(name, first + number, 1, bytes(size)) for number in range(count)]


def sent_in_runs(datas: list[bytes], first_id: int = 100, **limits: int) -> list[tuple[int, int, int | None]]:
    """Return the SENDs of a log for a region that accepts runs, which have the outcome of single ones."""
    limits = WIDE | limits
    entries = [PlainEntry(*one) for one in enumerate(datas, first_id)]
    sender = Sender("eu", 3, ReplicatedEntryCache("us", MemoryBudget("forms")), **limits, sends_runs=True)
    sender.send(entries)
    single = Sender("eu", 3, ReplicatedEntryCache("us", MemoryBudget("forms")), **limits)
    single.send(entries)
    assert sender.outcome() == single.outcome()
    return sends_of(sender)


@pytest.mark.parametrize(
    ("datas", "first_id", "expected"),
    [
        pytest.param(similar(50), 100, [(0, 50, -1)], id="all similar"),
        pytest.param(similar(7), 100, [(0, 0, -1), *((one, 0, None) for one in range(1, 7))], id="too few"),
        pytest.param(similar(8), 100, [(0, 8, -1)], id="just enough"),
        pytest.param(similar(20) + similar(20, name="q"), 100, [(0, 20, -1), (0, 20, None)], id="two producers"),
        pytest.param(similar(20), 90, [(0, 10, -1), (10, 10, None)], id="a longer entry id"),
        pytest.param(similar(20, 118), 100, [(118, 10, -1), (128, 10, None)], id="a longer sequence id"),
        pytest.param(similar(20, 2**14 * 5 - 10), 100, [(2**14 * 5 - 10, 20, -1)], id="another high half"),
        pytest.param(
            similar(20, 2**64 - 40), 100,
            [(2**64 - 40, 0, -1), *((one, 0, None) for one in range(2**64 - 39, 2**64 - 20))],
            id="negative sequence ids",
        ),
        pytest.param(similar(20, 2**63 - 30), 100, [(2**63 - 30, 20, -1)], id="large sequence ids"),
        pytest.param(similar(20) + similar(20), 100, [(0, 20, -1), (0, 20, None)], id="ids again"),
        pytest.param(similar(20) + similar(20, 20, size=9), 100, [(0, 40, -1)], id="payloads of two sizes"),
        pytest.param(
            similar(10, size=PLAIN_ENTRY_BYTES_MAX), 100, [(0, 0, -1), *((one, 0, None) for one in range(1, 10))],
            id="large",
        ),
    ],
)  # fmt: skip
def test_similar_messages_are_sent_in_one_frame(
    datas: list[bytes], first_id: int, expected: list[tuple[int, int, int | None]]
) -> None:
    assert sent_in_runs(datas, first_id) == expected


def test_messages_in_turns_are_followed_by_runs_as_soon_as_messages_are_similar() -> None:
    turns = [plain_entry("pq"[number % 2], number, 1, b"x") for number in range(20)]
    sends = sent_in_runs([*turns, *similar(60, 300)])
    assert [one[1] for one in sends] == [*[0] * 20, 60]


def test_similar_messages_after_others_are_in_the_runs_that_they_would_be_in_alone() -> None:
    """Also if there are too few of them for a run behind the first ones."""
    few = [plain_entry("p", number, 1, b"x") for number in range(3)]
    groups = [plain_entry("p", 200 + number, 2 + number // 10, b"x") for number in range(100)]
    assert [one[1] for one in sent_in_runs([*few, *groups])] == [*[0] * 3, *[10] * 10]


def test_a_run_is_divided_at_the_limits_of_a_frame() -> None:
    """Those of the remote region, of the frames that are sent, and of the memory of their metadata."""
    entry_bytes = len(with_replication(similar(1)[0], "us", Position(LEDGER, 100)))
    assert {one[1] for one in sent_in_runs(similar(60), entry_bytes_max=entry_bytes)} == {0}
    for more in range(96, 104):
        most = max(one[1] for one in sent_in_runs(similar(60), entry_bytes_max=entry_bytes + more))
        assert 10 < most <= 20
    sends = sent_in_runs(similar(900, 1_000, size=3_000), entries_max=1_000)
    assert 40 < max(one[1] for one in sends) <= 262_144 // 3_000, "256 KiB each, at most"
    assert sum(max(one[1], 1) for one in sends) == 900
    sends = sent_in_runs(similar(900, 1_000, name="n" * 3_000), entries_max=1_000)
    assert max(one[1] for one in sends) * 3_000 <= RUN_METADATA_BYTES_MAX < 1_000 * 3_000
    sends = sent_in_runs(similar(9_000, 1_000), 1_000, entries_max=10_000)
    assert max(one[1] for one in sends) <= RUN_MESSAGES_MAX


def test_a_part_of_a_run_is_a_run() -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    entries = [PlainEntry(*one) for one in enumerate(similar(100), 100)]
    senders = [Sender("eu", 3, cache, **WIDE, sends_runs=True) for _ in range(2)]
    senders[0].send(entries)
    for part in (entries[:30], entries[30:31], entries[31:]):
        senders[1].send(part)
    assert sends_of(senders[1]) == [(0, 30, -1), (30, 0, None), (31, 69, None)]
    assert senders[0].checked() == senders[1].checked()


def test_regions_with_and_without_runs_share_a_topic() -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    entries = [PlainEntry(*one) for one in enumerate(similar(100), 100)]
    new, old = (Sender("eu", 3, cache, **WIDE, sends_runs=runs) for runs in (True, False))
    for part in (entries[:40], entries[40:]):
        new.send(part)
        old.send(part)
    assert (len(sends_of(new)), len(sends_of(old))) == (2, 100)
    assert new.outcome() == old.outcome()


def test_the_messages_of_a_group_do_not_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those that are sent, nor those of another region, which are skipped."""
    own = EntryGroup(100, similar(50), 0, None)
    replica = with_replication(similar(1)[0], "ap", Position(3, 0))
    parts = [own, EntryGroup(150, [replica] * 20, 0, "ap"), EntryGroup(170, similar(30, 50), 0, None)]
    monkeypatch.setattr(EntryGroup, "entries", property(lambda _: pytest.fail("objects")))
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    senders = [Sender(remote, 3, cache, **WIDE, sends_runs=True) for remote in ("eu", "asia")]
    for sender in senders:
        sender._send([part_from(part, 100, 1_000) for part in parts])  # type: ignore[arg-type]
        assert sends_of(sender) == [(0, 50, -1), (50, 30, 149)]


def test_messages_that_a_replicator_decoded_are_not_searched_for_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those with a schema, by the replicator to the next region."""
    datas = [
        entry_of({"publish_time": 1, "schema_version": KNOWN_VERSION}, b"x", "p", number)
        for number in range(20)
    ]
    group = EntryGroup(100, datas, 0, None)
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    senders = [Sender(remote, 3, cache, **WIDE, sends_runs=True) for remote in ("eu", "ap")]
    for sender in senders:
        sender._send([part_from(group, 100, 1_000)])  # type: ignore[arg-type]
        assert sends_of(sender) == [(0, 0, -1), *((number, 0, None) for number in range(1, 20))]
        monkeypatch.setattr(PlainForms, "take", lambda *_, **__: pytest.fail("searched again"))
        monkeypatch.setattr(PlainForms, "take_similar", lambda *_: pytest.fail("searched again"))


def test_messages_have_frames_of_their_own_on_a_link_that_needs_them() -> None:
    """Otherwise more of them would pass, or be lost, than between regions of Pulsar."""
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    sender = Sender("eu", 3, cache, **WIDE, sends_runs=True)
    entries = [PlainEntry(*one) for one in enumerate(similar(100), 100)]
    for limited, part in ((True, entries[:40]), (False, entries[40:70]), (True, entries[70:])):
        sender.needs_single_frames = limited
        sender.send(part)
    assert [one[1] for one in sends_of(sender)] == [*[0] * 40, 30, *[0] * 30]


def test_a_run_that_fits_exactly_is_one_frame() -> None:
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    sender = Sender("eu", 3, cache, **WIDE, sends_runs=True)
    sender.send([PlainEntry(*one) for one in enumerate(similar(60), 100)])
    ((_, _, entry),) = FrameBuffer(10**6).feed(b"".join(sender.written))
    assert len(sent_in_runs(similar(60), entry_bytes_max=len(entry))) == 1
    assert len(sent_in_runs(similar(60), entry_bytes_max=len(entry) - 1)) == 2


@pytest.mark.parametrize("at", [3, 8, 13])
def test_similar_messages_end_before_an_entry_with_another_head(at: int) -> None:
    datas = similar(20)
    datas[at] = b"\x0e\x03" + datas[at][2:]
    run = PlainForms("us").take_similar(100, lambda first, count: datas[first : first + count], LEDGER, -1)
    assert (0 if run is None else len(run)) == (at if at >= 8 else 0)


@pytest.mark.parametrize("in_groups", [True, False])
def test_short_runs_take_no_time_for_the_messages_behind_them(
    monkeypatch: pytest.MonkeyPatch, in_groups: bool
) -> None:
    """As those of a topic with few messages per millisecond, of which a large part of a backlog is sent."""
    read: list[int] = []

    def counted(*of_part: Any) -> list[bytes]:
        read.append(of_part[-1])
        return datas(*of_part)

    datas = entry_forms._datas
    monkeypatch.setattr(entry_forms, "_datas", counted)
    cache = ReplicatedEntryCache("us", MemoryBudget("forms"))
    sender = Sender("eu", 3, cache, **(WIDE | {"entries_max": 2_000}), sends_runs=True)
    log = [plain_entry("p", number, 1 + number // 20, b"x") for number in range(2_000)]
    entries = [PlainEntry(*one) for one in enumerate(log, 10_000)]
    if in_groups:
        sender.send_in_groups(entries, len(entries))
    else:
        sender.send(entries)
    assert len(read) > 100
    assert sum(read) < 5 * len(log)
