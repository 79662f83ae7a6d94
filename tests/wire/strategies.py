"""Hypothesis strategies of the wire tests, and ways to damage bytes."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.model.values import Position
from emulator.wire import pulsar_pb2 as pb

patient = settings(deadline=None)
"""For every Hypothesis test here: a busy machine must not fail a test."""

U64_MAX = 2**64 - 1
ABSENT = 2**63
"""The number that stands for "absent" in compact forms; no peer counts that far."""

u64 = st.integers(0, U64_MAX).filter(lambda value: value != ABSENT)
i64 = st.integers(-(2**63) + 1, 2**63 - 1)
i32 = st.integers(-(2**31) + 1, 2**31 - 1)
u32 = st.integers(0, 2**32 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=20)
name = text.filter(bool)
maybe = st.none


def as_u64(value: int) -> int:
    """Encode a signed number for an unsigned protobuf field."""
    return value % 2**64


ack_sets = st.none() | st.lists(i64, min_size=1, max_size=4).map(tuple)
ack_ids = st.tuples(i64, i64, ack_sets)
positions = st.builds(Position, i64, i64)
log_positions = st.builds(Position, st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1))
"""Positions in a log; -1 comes before everything."""
region_positions = st.lists(st.tuples(text, positions), max_size=4).map(tuple)
properties = st.lists(st.builds(pb.KeyValue, key=text, value=text), max_size=3)

metadatas = st.builds(
    pb.MessageMetadata,
    producer_name=name,
    sequence_id=u64,
    publish_time=u64,
    properties=properties,
    replicated_from=maybe() | name,
    partition_key=maybe() | text,
    replicate_to=st.lists(text, max_size=3),
    compression=maybe() | st.sampled_from([pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]),
    uncompressed_size=maybe() | u32,
    num_messages_in_batch=maybe() | st.integers(1, 2**31 - 1),
    event_time=maybe() | u64,
    encryption_keys=st.lists(st.builds(pb.EncryptionKeys, key=text, value=st.binary(max_size=5)), max_size=2),
    schema_version=maybe() | st.binary(min_size=1, max_size=8),
    partition_key_b64_encoded=maybe() | st.booleans(),
    ordering_key=maybe() | st.binary(min_size=1, max_size=8),
    deliver_at_time=maybe() | i64,
    marker_type=maybe() | i32,
    txnid_least_bits=maybe() | u64,
    txnid_most_bits=maybe() | u64,
    highest_sequence_id=maybe() | u64,
    null_value=maybe() | st.booleans(),
    uuid=maybe() | name,
    num_chunks_from_msg=maybe() | i32,
    chunk_id=maybe() | i32,
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Damaged bytes: valid ones cut short, with bytes overwritten, with bytes inserted; or random ones."""
    data = bytearray(draw(whole))
    match draw(st.sampled_from(["cut", "overwritten", "inserted", "noise"])):
        case "cut":
            return bytes(data[: draw(st.integers(0, len(data)))])
        case "overwritten" if data:
            for _ in range(draw(st.integers(1, 4))):
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        case "inserted":
            at = draw(st.integers(0, len(data)))
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        case "noise":
            return draw(st.binary(max_size=60))
    return bytes(data)


def refusal(read: Callable[[], object]) -> ProtocolError | None:
    """Return the error of reading, or None. Any other error fails the test."""
    try:
        read()
    except ProtocolError as problem:
        return problem
    return None
