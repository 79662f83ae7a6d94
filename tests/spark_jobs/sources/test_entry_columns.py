"""Entries become the right rows, on the fast path and on the slow path."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.model.values import SOURCE_POSITION_PROPERTY, Position
from emulator.run.history_events import attributes_digest, payload_digest
from emulator.storage.group import encode_group
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication
from emulator.wire.markers import encode_transaction_end
from spark_jobs.sources.contract import Group
from spark_jobs.sources.entry_columns import EntryColumns
from spark_jobs.sources.history_files import digest_number

TOPIC = "persistent://public/default/t"


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(
        **{"producer_name": "p", "sequence_id": 7, "publish_time": 1_763_712_000_000, **fields}
    )  # type: ignore[arg-type]


def entry(payload: bytes = b"payload", **fields: object) -> bytes:
    return build_entry(metadata(**fields), payload)


def batch(sequence_ids: list[int], payload: bytes | None = None, **fields: object) -> bytes:
    body = b""
    for sequence_id in sequence_ids:
        single = pb.SingleMessageMetadata(payload_size=3, sequence_id=sequence_id).SerializeToString()
        body += len(single).to_bytes(4, "big") + single + b"%3d" % sequence_id
    return build_entry(
        metadata(
            **{
                "sequence_id": sequence_ids[0],
                "highest_sequence_id": sequence_ids[-1],
                "num_messages_in_batch": len(sequence_ids),
                **fields,
            }
        ),
        body if payload is None else payload,
    )


def rows(entries: list[bytes], trimmed_below: int = 0, first_entry_id: int = 0) -> list[dict[str, object]]:
    columns = EntryColumns("here")
    columns.add_group(Group(TOPIC, 3, first_entry_id, trimmed_below, bytes(encode_group(entries))))
    return sorted(columns.take().to_pylist(), key=lambda row: (row["entry_id"] is None, row["entry_id"] or 0))


@pytest.mark.parametrize("first", [-1, 2**36 - 1, 2**62])
def test_entries_at_positions_that_no_log_can_have_are_a_damage(first: int) -> None:
    (row,) = rows([PLAIN, PLAIN], first_entry_id=first)
    assert f"entries from 3:{first}: a position that no log can have" in str(row["damage"])


def test_the_last_position_of_a_ledger_is_read() -> None:
    assert [row["entry_id"] for row in rows([PLAIN, PLAIN], first_entry_id=2**36 - 2)] == [
        2**36 - 2,
        2**36 - 1,
    ]


def rows_the_long_way(entries: list[bytes]) -> list[dict[str, object]]:
    columns = EntryColumns("here")
    for entry_id, data in enumerate(entries):
        columns._add_scanned(TOPIC, 3, entry_id, data)
    result: list[dict[str, object]] = columns.take().to_pylist()
    return result


PLAIN = entry()
KINDS = {
    "plain": PLAIN,
    "large numbers": entry(sequence_id=2**62, publish_time=2**53),
    "empty payload": entry(b""),
    "large": entry(b"x" * 70_000),
    "long name": entry(producer_name="p" * 200),
    "name with the next field's key in it": entry(producer_name="a\x10\x05\x18\x06b"),
    "name that is not ASCII": entry(producer_name="Größe-é"),
    "properties": entry(properties=[pb.KeyValue(key="k", value="v")], partition_key="key", event_time=5),
    "for some regions": entry(replicate_to=["a", "b"]),
    "replicated": with_replication(PLAIN, "there", Position(12, 3456)),
    "replicated with properties": with_replication(
        entry(properties=[pb.KeyValue(key="k", value="v")]), "there", Position(1, 2)
    ),
    "a property that looks like replication": entry(
        properties=[pb.KeyValue(key="k", value="\x0a\x1f" + SOURCE_POSITION_PROPERTY + "\x12\x031:2")]
    ),
    "a copy of the property": entry(properties=[pb.KeyValue(key=SOURCE_POSITION_PROPERTY, value="1:2")]),
    "replicated with a copy of the property": with_replication(
        entry(properties=[pb.KeyValue(key=SOURCE_POSITION_PROPERTY, value="1:2")]), "there", Position(3, 4)
    ),
    "the property, but not at the end": entry(
        properties=[pb.KeyValue(key=SOURCE_POSITION_PROPERTY, value="1:2")], partition_key="key"
    ),
    "marker": build_entry(metadata(producer_name="pulsar.marker", sequence_id=0, marker_type=10), b"marker"),
    "marker of an unknown kind": entry(marker_type=0),
    "transaction marker": entry(sequence_id=2**64 - 1, marker_type=21),
    "of a transaction": entry(txnid_most_bits=0, txnid_least_bits=7),
    "of a large transaction": entry(txnid_most_bits=2**63 + 1, txnid_least_bits=2**64 - 1),
    "batch of a transaction": batch([4, 5], txnid_most_bits=3),
    "batch": batch([4, 5, 6]),
    "batch of one": batch([4]),
    "replicated batch": with_replication(batch([4, 5, 6]), "there", Position(1, 2)),
    "replicated, at the largest position": with_replication(PLAIN, "there", Position(2**62, 2**63 - 1)),
    "no checksum": PLAIN[6:],
    "broker metadata": b"\x0e\x02\x00\x00\x00\x02\x08\x01" + PLAIN,
}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS.keys())
def test_shortcut_and_long_way_agree(data: bytes) -> None:
    # Twice, because the second one uses the caches that the first one filled.
    assert rows([data, data]) == rows_the_long_way([data, data])


@settings(deadline=None)
@given(
    st.text(min_size=1, max_size=140),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.none() | st.tuples(st.text(min_size=1, max_size=20), st.integers(0, 2**40), st.integers(0, 2**40)),
    st.binary(max_size=40),
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2),
)
def test_they_agree_on_anything(
    name: str,
    sequence_id: int,
    publish_time: int,
    source: tuple[str, int, int] | None,
    payload: bytes,
    properties: list[tuple[str, str]],
) -> None:
    pairs = [pb.KeyValue(key=key, value=value) for key, value in properties]
    data = entry(
        payload, producer_name=name, sequence_id=sequence_id, publish_time=publish_time, properties=pairs
    )
    if source is not None:
        data = with_replication(data, source[0], Position(*source[1:]))
    assert rows([PLAIN, data]) == rows_the_long_way([PLAIN, data])


def test_a_plain_message() -> None:
    (row,) = rows([PLAIN], first_entry_id=40)
    assert row == {
        "region": "here",
        "damage": None,
        "topic": TOPIC,
        "ledger_id": 3,
        "entry_id": 40,
        "batch_index": -1,
        "producer_name": "p",
        "sequence_id": 7,
        "publish_time_ms": 1_763_712_000_000,
        "replicated_from": None,
        "origin_region": "here",
        "marker_type": None,
        "replicate_to": None,
        "source_ledger": None,
        "source_entry": None,
        "payload_bytes": 7,
        "payload_digest": digest_number(payload_digest(b"payload")),
        "attributes_digest": 0,
        "bytes_digest": row["bytes_digest"],
        "is_sound": True,
        "marker": None,
        "transaction": None,
        "claim": None,
    }


@pytest.mark.parametrize(
    ("kind", "transaction"),
    [
        ("of a transaction", "0,7"),
        ("of a large transaction", f"{2**63 + 1},{2**64 - 1}"),
        ("batch of a transaction", "3,0"),
    ],
)
def test_a_message_names_its_transaction_in_its_own_region_alone(kind: str, transaction: str) -> None:
    data = KINDS[kind]
    here, there = rows([data]), rows([with_replication(data, "there", Position(1, 2))])
    assert {row["transaction"] for row in here} == {transaction}
    assert {row["transaction"] for row in there} == {None}
    # The copy has the same digests, which the comparison of regions uses.
    assert [row["bytes_digest"] for row in here] == [row["bytes_digest"] for row in there]


def test_a_marker_names_the_transaction_that_it_ends() -> None:
    data, _ = encode_transaction_end((1, 2), 5, committed=False)
    (row,) = rows([data])
    assert (row["marker_type"], row["transaction"]) == (22, "1,2")


def test_a_replicated_message_knows_its_origin() -> None:
    (row,) = rows([KINDS["replicated"]])
    assert (row["replicated_from"], row["origin_region"], (row["source_ledger"], row["source_entry"])) == (
        "there",
        "there",
        (12, 3456),
    )


def test_replication_changes_no_digest_and_everything_else_does() -> None:
    (here,) = rows([PLAIN])
    (there,) = rows([with_replication(PLAIN, "there", Position(12, 3456))])
    names = ("payload_digest", "attributes_digest", "bytes_digest")
    assert [here[name] for name in names] == [there[name] for name in names]
    others = [
        entry(b"another"),
        entry(publish_time=5),
        entry(partition_key="k"),
        entry(event_time=5),
        entry(properties=[pb.KeyValue(key="a", value="b")]),
        entry(schema_version=b"1"),
        batch([7]),
    ]
    assert len({row["bytes_digest"] for row in rows([PLAIN, *others])}) == 1 + len(others)


def test_a_stored_message_has_the_digest_of_its_publish_request() -> None:
    given = {"partition_key": "k", "event_time": 5, "properties": [pb.KeyValue(key="a", value="b")]}
    digest = digest_number(attributes_digest("k", {"a": "b"}, 5) or "")
    single = pb.SingleMessageMetadata(payload_size=3, sequence_id=7, **given).SerializeToString()
    body = len(single).to_bytes(4, "big") + single + b"one"
    replicated = with_replication(entry(**given), "there", Position(1, 2))
    for data, payload in (
        (entry(**given), b"payload"),
        (replicated, b"payload"),
        (batch([7], body), b"one"),
    ):
        (row,) = rows([data])
        assert row["attributes_digest"] == digest
        assert row["payload_digest"] == digest_number(payload_digest(payload))


def test_an_entry_that_does_not_match_its_checksum_is_reported_by_both_parsers() -> None:
    for data in (PLAIN, batch([7, 8])):
        broken = data[:-1] + bytes([data[-1] ^ 1])
        assert {row["is_sound"] for row in rows([broken])} == {False}
        assert {row["is_sound"] for row in rows([data])} == {True}


def test_a_marker_is_a_row_of_its_own() -> None:
    assert [row["marker_type"] for row in rows([KINDS["marker"], PLAIN])] == [10, None]


def places(found: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(row["entry_id"], row["batch_index"], row["sequence_id"], row["payload_bytes"]) for row in found]


def test_batches_are_split() -> None:
    assert places(rows([batch([4, 5, 9])])) == [(0, 0, 4, 3), (0, 1, 5, 3), (0, 2, 9, 3)]


def test_messages_of_a_batch_may_have_keys() -> None:
    single = pb.SingleMessageMetadata(payload_size=1, sequence_id=5, partition_key="k").SerializeToString()
    body = len(single).to_bytes(4, "big") + single + b"x"
    assert places(rows([batch([5], body)])) == [(0, 0, 5, 1)]


def test_compressed_batches_are_opened() -> None:
    plain = batch([4, 5])
    body = plain[plain.index(b"\x18\x03") - 4 :]
    packed = batch([4, 5], zlib.compress(body), compression=pb.ZLIB, uncompressed_size=len(body))
    assert places(rows([packed])) == [(0, 0, 4, 3), (0, 1, 5, 3)]


@pytest.mark.parametrize(
    "secret", [{"compression": pb.ZSTD}, {"encryption_keys": [{"key": "k", "value": b"v"}]}]
)
def test_a_batch_that_cannot_be_opened_is_known_by_its_first_and_last_number(
    secret: dict[str, object],
) -> None:
    sealed = batch([4, 5, 6], b"ciphertext..", **secret)
    assert places(rows([sealed])) == [(0, 0, 4, 4), (0, 1, 5, 4), (0, 2, 6, 4)]


def test_a_chunked_message_counts_once_where_its_last_piece_is() -> None:
    pieces = [entry(uuid="u", chunk_id=number, num_chunks_from_msg=3) for number in range(3)]
    assert places(rows(pieces)) == [(2, -1, 7, 7)]


def test_trimmed_entries_are_not_there() -> None:
    assert [row["entry_id"] for row in rows([PLAIN] * 5, trimmed_below=12, first_entry_id=10)] == [12, 13, 14]


def test_a_garbled_group_is_a_damage() -> None:
    group = bytearray(encode_group([PLAIN, PLAIN]))
    group[30] ^= 1
    columns = EntryColumns("here")
    columns.add_group(Group(TOPIC, 3, 10, 0, bytes(group)))
    (row,) = columns.take().to_pylist()
    assert row["region"] == "here"
    assert "3:10" in row["damage"]
    assert "checksum" in row["damage"]


def test_an_unreadable_entry_is_a_damage_and_its_neighbours_are_read() -> None:
    found = rows([PLAIN, b"\x0e\x01garbage", PLAIN])
    assert [row["entry_id"] for row in found] == [0, 2, None]
    assert "3:1" in str(found[2]["damage"])


def test_a_source_position_beyond_64_bits_is_a_damage() -> None:
    digits = "9" * 40
    for position in (f"{digits}:1", f"1:{digits}", f"{2**63}:0"):
        data = with_replication(PLAIN, "there", Position(1, 2))
        copied = entry(
            replicated_from="there", properties=[pb.KeyValue(key=SOURCE_POSITION_PROPERTY, value=position)]
        )
        found = rows([copied, data])
        assert [row["entry_id"] for row in found] == [1, None]
        assert "3:0" in str(found[1]["damage"])


def test_garbage_is_never_an_exception() -> None:
    random.seed(1)
    for data in KINDS.values():
        for _ in range(60):
            garbled = bytearray(data[:300])
            for _ in range(random.randint(1, 4)):
                garbled[random.randrange(len(garbled))] = random.randrange(256)
            rows([bytes(garbled[: random.randint(1, len(garbled))])])
