"""Valid inputs of each input class, from which fuzzing begins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from emulator.broker.admin.resources import TABLE as ADMIN
from emulator.broker.connection.commands import COMMANDS
from emulator.config.loading import load_topology
from emulator.config.region import RegionConfig
from emulator.config.topology import Topology
from emulator.core.schemas.compatibility import CompatibilityStrategy
from emulator.core.schemas.key_value import join_data
from emulator.model.markers import (
    AckedEntries,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionUpdate,
)
from emulator.model.values import Position, SchemaType
from emulator.storage.group import encode_group
from emulator.storage.kafka.records import (
    BYTES_BEFORE,
    ProducedRecord,
    ProducerId,
    encode_entries,
    encode_records,
)
from emulator.wire import commands as wire
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_ack, encode_flow
from emulator.wire.codec_hot.publishing import encode_receipt, send_frame
from emulator.wire.command_types import CommandType
from emulator.wire.entry import build_entry, plain_entry, with_replication, with_transaction
from emulator.wire.frames import FrameBuffer, frame_of, simple_frame
from emulator.wire.markers import encode_marker, encode_transaction_end
from emulator.wire.payloads import Compression
from emulator.wire.source_position import POSITION_KEY
from tests.spark_jobs.sources.test_history_columns import all_kinds

ROOT = Path(__file__).parents[2]


TOPIC = "persistent://public/default/t"
CONNECT_FRAME = wire.Connect("fuzzer", wire.PROTOCOL_VERSION, "", b"").encode()


@cache
def topology() -> Topology:
    return load_topology(ROOT / "topology.yaml")


def _commands() -> Iterator[pb.BaseCommand]:
    """Yield a command of each type, with values in its required fields."""
    for field in pb.BaseCommand.DESCRIPTOR.fields:
        if field.message_type is None or field.number not in pb.BaseCommand.Type.values():
            continue
        command = pb.BaseCommand(type=field.number)  # type: ignore[arg-type] # the number of the field is that of the type
        _fill(getattr(command, field.name), 3)
        yield command


def _fill(message: object, depth: int) -> None:
    """Set every field of a message, nested ones to `depth`."""
    for field in message.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        if field.message_type is not None:
            if depth:
                inner = getattr(message, field.name)
                _fill(inner.add() if field.is_repeated else inner, depth - 1)
                if not field.is_repeated:
                    inner.SetInParent()
            continue
        value: object = (
            TOPIC if field.name == "topic" else {"string": "a", "bytes": b"b"}.get(_kind(field), 1)
        )
        if field.enum_type is not None:
            value = field.enum_type.values[0].number
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


def _kind(field: object) -> str:
    return {9: "string", 12: "bytes"}.get(field.type, "number")  # type: ignore[attr-defined]


def sessions() -> Iterable[bytes]:
    """Yield the commands of a client that publishes and consumes, and each other command alone."""
    messages = [send_frame(1, number, data=plain_entry("p", number, 1, b"x")) for number in range(3)]
    yield b"".join([wire.create_producer(1, TOPIC, 1, "p").encode(), *messages])
    yield b"\xff" + CONNECT_FRAME + b"".join(messages)
    for command in _commands():
        yield simple_frame(command)


def requests() -> Iterable[bytes]:
    """Yield a request for each row of the admin API and each of its methods."""
    for resource in ADMIN.resources:
        path = "/".join(_NAMES.get(part, "x") if part.startswith("{") else part for part in resource.segments)
        for method in resource.operations:
            body = b"{}" if method in ("POST", "PUT") else b""
            head = f"{method} /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            if method == "GET":
                yield head.replace("GET", "HEAD").encode() + b"\r\n"
            yield (head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    put = b"PUT /admin/v2/tenants/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    yield put + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    yield put + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    yield put + b"Content-Length: 99999999999\r\n\r\n{}"
    yield put + b"Host: other\r\n\r\n"
    yield b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"GET http://127.0.0.1/admin/v2/tenants/%ff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    yield b"GET /admin/v2/persistent//default/t/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


_NAMES = {"{tenant}": "public", "{namespace}": "default", "{topic}": "t", "{region}": "us", "{cluster}": "us"}


def frames() -> Iterable[bytes]:
    stream = b"".join(simple_frame(command) for command in _commands())
    yield b"\x07" + stream[:2000]
    yield b"\x20" + frame_of(b"\x08\x06\x3a\x04\x08\x01\x10\x02", plain_entry("p", 1, 2, b"payload"))
    yield b"\x01" + frame_of(encode_flow(1, 100)) + encode_receipt(1, 2, 3, 4, 5)


def commands(decoders: int) -> Iterable[bytes]:
    """Yield each command as input of each decoder that reads its type, and of the general one."""
    by_type = {row.type: number for number, row in enumerate(COMMANDS)}
    for command in _commands():
        encoded = command.SerializeToString()
        yield bytes([by_type.get(command.type, len(COMMANDS))]) + encoded
    ack = bytes([by_type[CommandType.ACK]])
    yield ack + encode_ack(1, [(1, 2, None)])
    yield ack + encode_ack(1, [(1, 2, None)], cumulative=True, request_id=3)
    yield ack + encode_ack(1, [(1, 2, (3,)), (4, 5, None)], txn_least=1, txn_most=2, batch_sizes=(3, 0))
    yield ack + encode_ack(1 << 40, [(1 << 50, 1 << 50, None)])
    for sequence_id, messages in ((1, 1), (1 << 40, 1), (2, 300)):
        ((_, command_of_send, _),) = FrameBuffer(10_000).feed(
            send_frame(1, sequence_id, messages, data=b"abcdefghij")
        )
        yield bytes([by_type[CommandType.SEND]]) + command_of_send
    for number in range(len(COMMANDS), decoders):
        yield bytes([number]) + pb.BaseCommand(type=pb.BaseCommand.PING).SerializeToString()


def entries() -> Iterable[bytes]:
    full = pb.MessageMetadata()
    _fill(full, 1)
    full.compression = pb.NONE
    full.ClearField("encryption_keys")
    yield plain_entry("p", 1, 2, b"payload")
    yield with_transaction(plain_entry("p", 1, 2, b"payload"), (3, 4))
    yield build_entry(full, b"x" * 3_000)
    yield b"\x0e\x02\0\0\0\0" + plain_entry("p", 1, 2, b"behind broker metadata")
    for position in (b"-1:-1", b"9223372036854775807:0", b"9223372036854775808:0", b"x", b""):
        properties = [pb.KeyValue(key="a", value="b"), pb.KeyValue(key=POSITION_KEY, value=position.decode())]
        head = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, replicated_from="us")
        head.properties.extend(properties)
        yield build_entry(head, b"")
    yield with_replication(plain_entry("p", 1, 2, b"payload"), "us", Position(1, 2))
    yield build_entry(full, b"payload")
    single = pb.SingleMessageMetadata(payload_size=3, partition_key="k").SerializeToString()
    message = len(single).to_bytes(4, "big") + single + b"abc"
    for compression in (Compression.NONE, Compression.ZLIB):
        head = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=2)
        if compression:
            head.compression, head.uncompressed_size = int(compression), 2 * len(message)  # type: ignore[assignment]
        yield build_entry(head, compression.compress(2 * message))
    chunk = pb.MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=2,
        uuid="u",
        num_chunks_from_msg=2,
        chunk_id=0,
        total_chunk_msg_size=9,
    )
    yield build_entry(chunk, b"abc")


def compressed() -> Iterable[bytes]:
    for compression in Compression:
        yield bytes([(1 << 3) | compression]) + compression.compress(b"a" * 4096)


def markers() -> Iterable[bytes]:
    position = Position(1, 2)
    acked = AckedEntries("us", 1, ((1, 4),), ((9, 5),))
    for marker in (
        SnapshotRequest("id", "us", wants_received=True),
        SnapshotResponse("id", "eu", position, (("ap", position),)),
        Snapshot("id", position, (("eu", position), ("ap", position))),
        SubscriptionUpdate("sub", (("us", position), ("eu", position)), (acked,)),
    ):
        yield encode_marker(marker, 1, ("us",))[0]
    yield encode_transaction_end((1, 2), 1, committed=True)[0]


def schemas() -> Iterable[bytes]:
    """Yield two schemas of each type, for each strategy."""
    record = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": ["null", "int"], "default": None}],
    }
    more = {**record, "fields": [*record["fields"], {"name": "b", "type": "string"}]}
    one, two = json.dumps(record).encode(), json.dumps(more).encode()
    forms = {
        SchemaType.KEY_VALUE: (join_data(one, two), join_data(two, one)),
        SchemaType.PROTOBUF_NATIVE: (
            b'{"fileDescriptorSet": "", "rootMessageTypeName": "m", "rootFileDescriptorName": "f"}',
            b'{"fileDescriptorSet": "", "rootMessageTypeName": "n", "rootFileDescriptorName": "f"}',
        ),
        SchemaType.STRING: (b'{"key": "a", "value": {"type": "int"}}', b""),
    }
    for number, type_ in enumerate(SchemaType):
        for strategy in range(len(CompatibilityStrategy)):
            choice = number + strategy * len(SchemaType)
            if choice < 256:
                yield bytes([choice]) + (b"\0" * 5).join(forms.get(type_, (one, two)))
    aliased = {**record, "fields": [{"name": "c", "aliases": ["a"], "type": "int"}]}
    enum = {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}
    with_enum = {**record, "fields": [{"name": "e", "type": enum}]}
    incompatible = {**record, "fields": [{"name": f"f{number}", "type": "int"} for number in range(20)]}
    for other in (
        aliased,
        with_enum,
        incompatible,
        ["null", "int"],
        {"type": "enum", "name": "e", "symbols": ["A"] * 9_000},
    ):
        yield bytes([_AVRO]) + json.dumps(other).encode() + b"\0" * 5 + one
    yield bytes([_KEY_VALUE]) + join_data(b"", b"") + b"\0" * 5 + join_data(one, two)
    json_schema = b'{"type": "object", "id": "%s"}'
    yield bytes([_JSON]) + json_schema % b"a" + b"\0" * 5 + json_schema % b"b"
    yield bytes([_JSON]) + json_schema % b"a" + b"\0" * 5 + one
    yield (
        b"\0"
        + b'{"type": "enum", "name": "e", "symbols": ["A"]}'
        + b"\0" * 5
        + b'{"type": "fixed", "name": "f", "size": 2}'
    )


_JSON, _AVRO, _KEY_VALUE = map(
    tuple(SchemaType).index, (SchemaType.JSON, SchemaType.AVRO, SchemaType.KEY_VALUE)
)


def topologies() -> Iterable[bytes]:
    for path in (
        ROOT / "topology.yaml",
        ROOT / "compose" / "topology.yaml",
        *sorted((ROOT / "clusters").glob("*.yaml")),
    ):
        yield path.read_bytes()


def scenarios() -> Iterable[bytes]:
    for path in sorted((ROOT / "emulator" / "scenarios").glob("*.yaml")):
        yield path.read_bytes()


def configurations() -> Iterable[bytes]:
    yield b"\0" + RegionConfig("us", "c").to_json().encode()
    yield b"\1" + topology().to_json().encode()


def groups() -> Iterable[bytes]:
    for entries_ in ([b"a"], [b"ab", b"", b"c"], [b"x" * 300] * 3):
        yield b"\0" + bytes(encode_group(entries_))


def kafka() -> Iterable[bytes]:
    producer = ProducerId(4711, 12)
    control = bytearray(encode_entries(producer, 0, [b"a" * 300], 7))
    control[22] |= 0x20  # the attribute of a control batch
    yield b"\1" + bytes(control)
    yield b"\0" + encode_entries(producer, 0, [b"a", b"bc"], 7)
    yield b"\0" + encode_records(
        producer, 0, [ProducedRecord(b"k", b"v", ((BYTES_BEFORE, b"1"),)), ProducedRecord(b"k", None)]
    )


def histories() -> Iterable[bytes]:
    """Yield each kind of line, as input of the reader by lines and of that by blocks."""
    head = json.dumps({"op": "head", "run": "run", "format": 1, "others": ["a"]}).encode()
    for number, line in enumerate(all_kinds()):
        yield bytes([number % 2]) + head + b"\n" + line + b"\n"
