"""Valid inputs of each input class, from which fuzzing begins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

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
from tests.spark_jobs.sources.test_history_columns import PUBLISH, WRONG, all_kinds, line

ROOT = Path(__file__).parents[2]


TOPIC = "persistent://public/default/t"
SCHEMAS = ROOT / "emulator" / "schemas"
UNCONNECTED = b"\xff"
"""First byte of a session whose client has not sent CONNECT."""
FULL_DISK = b"\xfc"
"""First byte of a read from which on the disk of the region is full."""
ROLES = {b"\xfe": "guest", b"\xfd": "root"}
"""First byte of a session in a region with authorization -> role of the client."""
PAUSE = b"\xff" * 4
"""Between two reads of a session; no valid frame has this size."""
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
    yield UNCONNECTED + CONNECT_FRAME + b"".join(messages)
    for command in _commands():
        yield simple_frame(command)
        for role in ROLES:
            yield role + simple_frame(command)
    producer, subscribe, flow, *others = _after_subscribe()
    yield PAUSE.join((producer, b"".join(messages), messages[2], subscribe + flow, flow, *others))
    yield from (PAUSE.join((producer, subscribe + flow, *messages, flow, other)) for other in others)
    ack_in_transaction = frame_of(encode_ack(1, [(1, 2, None)], txn_least=1, txn_most=2))
    yield PAUSE.join((producer, subscribe, ack_in_transaction))
    other_topic = wire.create_producer(1, TOPIC + "2", 1, "p").encode()
    yield PAUSE.join((producer, FULL_DISK + other_topic, subscribe))
    by_type = {command.type: command for command in _commands()}
    by_type[pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST].tcClientConnectRequest.tc_id = 0
    by_type[pb.BaseCommand.NEW_TXN].newTxn.tc_id = 0
    transaction = [simple_frame(by_type[one]) for one in _TRANSACTION]
    yield PAUSE.join(transaction)
    yield from (PAUSE.join((transaction[0], FULL_DISK + one)) for one in transaction[1:])


_TRANSACTION = (
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST,
    pb.BaseCommand.NEW_TXN,
    pb.BaseCommand.ADD_PARTITION_TO_TXN,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
    pb.BaseCommand.END_TXN,
)


def _after_subscribe() -> Iterator[bytes]:
    """Yield PRODUCER, SUBSCRIBE, FLOW, and the further commands of a consumer."""
    yield wire.create_producer(1, TOPIC, 1, "p").encode()
    by_type = {command.type: command for command in _commands()}
    subscribe = by_type[pb.BaseCommand.SUBSCRIBE]
    subscribe.subscribe.topic = TOPIC
    yield simple_frame(subscribe)
    yield frame_of(encode_flow(1, 100))
    for kind in (
        pb.BaseCommand.ACK,
        pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        pb.BaseCommand.SEEK,
        pb.BaseCommand.GET_LAST_MESSAGE_ID,
        pb.BaseCommand.CLOSE_CONSUMER,
        pb.BaseCommand.UNSUBSCRIBE,
        pb.BaseCommand.CLOSE_PRODUCER,
        pb.BaseCommand.CONSUMER_STATS,
    ):
        yield simple_frame(by_type[kind])


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
    for body_bytes in (600, 2_000):
        body = b"x" * body_bytes
        for start in (put, put.replace(b"json", b"x")):
            yield start + b"Content-Length: %d\r\n\r\n" % body_bytes + body
            yield start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % body_bytes + body + b"\r\nzz\r\n"
    yield b"GET /admin/v2/clusters HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" * 2
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
    for choice in (_AVRO + len(SchemaType) * _FULL, _KEY_VALUE + len(SchemaType) * _FULL):
        pairs = [(incompatible, record), (with_enum, record), (record, with_enum), (aliased, record)]
        for pair in pairs:
            new, old = (json.dumps(half).encode() for half in pair)
            if choice % len(SchemaType) == _KEY_VALUE:
                new, old = join_data(new, new), join_data(old, old)
            yield bytes([choice]) + (b"\0" * 5).join((new, old))
    for halves in (b"", b",", b"BYTES,STRING", b"KEY_VALUE,AVRO", b"AVRO,NOTHING"):
        yield bytes([_KEY_VALUE]) + (b"\0" * 5).join((join_data(one, two), join_data(one, two), halves))
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


_FULL = tuple(CompatibilityStrategy).index(CompatibilityStrategy.FULL)
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
    yield from _REFUSED_TOPOLOGIES


_REFUSED_TOPOLOGIES = (
    b"a: &a [*a]",
    b"a: &a {b: 1}\nc: {<<: *a, d: 2}\ne: {<<: [*a, 3]}",
    b"a: 1\na: 2\n? [b]\n: c",
    b"a: !!python/name:os",
    b"clusters: [a]\nnamespaces: {a/b: {regions: all, unknown: 1}}\nlog: {backend: tape}\nsettings: {x: 1}",
    b"settings: {keep_alive_interval_ms: '30'}\nlinks: {defaults: {latency_ms: .inf, jitter_ms: 1.5}}",
    b"a: &a [" + b"x," * 30 + b"]\nb: &b [" + b"*a," * 5 + b"]\nc: [" + b"*b," * 5 + b"]",
)


def scenarios() -> Iterable[bytes]:
    """Yield short scenarios: each kind of step of the shipped ones alone, and what the format refuses."""
    shown: set[tuple[str, ...]] = set()
    for path in sorted((ROOT / "emulator" / "scenarios").glob("*.yaml")):
        written = yaml.safe_load(path.read_bytes())
        for step in written["steps"]:
            kind = tuple(sorted(_keys(step)))
            if kind not in shown:
                shown.add(kind)
                yield _short({**written, "description": "d", "steps": [step]})
    for changes in _REFUSED_SCENARIOS:
        yield _short(_SCENARIO | changes)


def _short(content: object) -> bytes:
    return yaml.safe_dump(content, default_flow_style=True, sort_keys=False, width=10_000).encode()


def _keys(content: object) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield key
            yield from _keys(value)


_PRODUCER = {"name": "p", "region": "us-east"}
_SCENARIO: dict[str, Any] = {
    "name": "n",
    "description": "d",
    "topic": "persistent://public/default/orders",
    "actors": {"producers": [_PRODUCER]},
    "steps": [{"begin": "p"}],
}
_HOST = {"name": "h", "region": "us-east", "count": 2}
_TASK = {"name": "t", "region": "us-east", "subscription": "s", "to": "persistent://public/default/settled"}
_PROGRAM = {"name": "q", "region": "us-east", "command": ["true"], "tap": True, "subscriptions": ["s"]}
_PARTITIONS = {"partitions": {"orders": 2}}
_REFUSED_SCENARIOS: tuple[dict[str, Any], ...] = (
    {},
    {"actors": {"producers": [_PRODUCER, _PRODUCER]}},
    {"actors": {"producers": [_PRODUCER | {"region": "nowhere"}]}},
    {"actors": {"producers": [_PRODUCER | {"topic": "other/namespace/t"}]}},
    {"actors": {"producers": [_PRODUCER | {"region": "us-central"}]}},
    {"actors": {"producers": [_PRODUCER], "programs": [_PROGRAM, 1, {"subscriptions": ["s", 1]}]}},
    {"actors": {"producers": [_PRODUCER], "programs": [_PROGRAM]}},
    {"actors": {"producers": [_PRODUCER], "tasks": [_TASK | {"to": "persistent://other/space/t"}]}},
    {"partitions": {"orders-partition-1": 2, "unused": 2}},
    _PARTITIONS,
    _PARTITIONS | {"actors": {"hosts": [_HOST]}, "steps": [{"begin": "hosts"}]},
    _PARTITIONS | {"actors": {"producers": [_PRODUCER], "tasks": [_TASK]}},
    _PARTITIONS | {"actors": {"producers": [_PRODUCER | {"access": "wait"}]}},
    _PARTITIONS
    | {
        "actors": {"producers": [_PRODUCER], "consumers": [_PRODUCER | {"name": "c", "subscription": "s"}]},
        "contract": [
            {"subscription": "s", "of": "orders", "on": "done"},
            {"subscription": "s", "of": "x", "on": "y"},
        ],
    },
)


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
    """Yield each kind of line, and wrong ones."""
    head = json.dumps({"op": "head", "run": "run", "format": 1, "others": ["a"]}).encode()
    publish = line("publish", "asked", **PUBLISH)
    for number, one in enumerate((*all_kinds(), *WRONG, *_WRONG_IN_RUN, publish + b"\n" + publish)):
        yield _of_length(head + b"\n" + one + b"\n")
        if number < 2 or one in _WRONG_IN_RUN:
            yield _of_length(one + b"\n")


def _of_length(text: bytes) -> bytes:
    """Add blanks, so that the history is read by blocks, too."""
    return text.replace(b"{", b"{" + b" " * (-len(text) % 4), 1)


_WRONG_IN_RUN = (
    line("publish", "asked", **PUBLISH | {"at_ms": 2.0**53}),
    line("publish", "asked", **PUBLISH | {"origin_region": "us-west"}),
    line("publish", "ok", at_ms=1, actor="shop", message_id="1" * 100),
    *(b"\n" * count + b"x\n" * 300 for count in (0, 1)),
)


def words_of(schema: str) -> Iterator[bytes]:
    """Yield the keys and choices of a JSON Schema, from which the fuzzer composes inputs."""
    yield from sorted(set(_words_in(json.loads((SCHEMAS / schema).read_text()))))


def _words_in(described: object) -> Iterator[bytes]:
    if isinstance(described, dict):
        for key, value in described.items():
            if key == "properties":
                yield from map(str.encode, value)
            elif key == "enum":
                yield from (one.encode() for one in value if isinstance(one, str))
            yield from _words_in(value)
    elif isinstance(described, list):
        for value in described:
            yield from _words_in(value)
