"""Commands that are not supported: each gets a response that its client understands, and one line in the region's
log."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import encode_ack
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.frames import frame_of
from tests.broker.connection.raw import RawClient, entry, raw_client
from tests.broker.regions import regions

ORDERS = "persistent://public/default/orders"
COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"
HALF_A_CHARACTER = pb.Schema(
    name="s", schema_data=b'{"type": "record", "name": "R\\ud800", "fields": []}', type=pb.Schema.Avro
)
"""Valid in JSON, but a message that quotes it cannot be sent."""
BROKEN = pb.Schema(name="s", schema_data=b"{", type=pb.Schema.Avro)


def producer(**fields: object) -> pb.BaseCommand:
    body = pb.CommandProducer(**{"topic": ORDERS, "producer_id": 1, "request_id": 7} | fields)  # type: ignore[arg-type]
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body)


def subscribe(**fields: object) -> pb.BaseCommand:
    usual = {"topic": ORDERS, "subscription": "s", "subType": 0, "consumer_id": 1, "request_id": 7}
    return pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=pb.CommandSubscribe(**usual | fields))  # type: ignore[arg-type]


def lookup(topic: str, **fields: object) -> pb.BaseCommand:
    body = pb.CommandLookupTopic(topic=topic, request_id=7, **fields)  # type: ignore[arg-type]
    return pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=body)


def partitions(topic: str) -> pb.BaseCommand:
    body = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=7)
    return pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=body)


def create_schema(schema: pb.Schema) -> pb.BaseCommand:
    body = pb.CommandGetOrCreateSchema(topic=ORDERS, request_id=7, schema=schema)
    return pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=body)


Refusal = tuple[int, int, str]


def in_error(answer: pb.BaseCommand) -> Refusal:
    return answer.error.request_id, answer.error.error, answer.error.message


def in_lookup(answer: pb.BaseCommand) -> Refusal:
    body = answer.lookupTopicResponse
    assert body.response == pb.CommandLookupTopicResponse.Failed
    return body.request_id, body.error, body.message


def in_partitions(answer: pb.BaseCommand) -> Refusal:
    body = answer.partitionMetadataResponse
    assert body.response == pb.CommandPartitionedTopicMetadataResponse.Failed
    return body.request_id, body.error, body.message


def in_schema(answer: pb.BaseCommand) -> Refusal:
    body = answer.getOrCreateSchemaResponse
    return body.request_id, body.error_code, body.error_message


REFUSED: dict[str, tuple[pb.BaseCommand, Callable[[pb.BaseCommand], Refusal], int, str]] = {
    "a producer with a schema": (
        producer(schema=BROKEN),
        in_error,
        pb.IncompatibleSchema,
        "not a valid AVRO schema",
    ),
    "a producer of a reserved subscription": (
        producer(initial_subscription_name="pulsar.dedup"),
        in_error,
        pb.NotAllowedError,
        "'pulsar.dedup' is reserved",
    ),
    "a consumer with a schema": (
        subscribe(schema=BROKEN),
        in_error,
        pb.IncompatibleSchema,
        "not a valid AVRO schema",
    ),
    "a consumer with a schema whose name is half a character": (
        subscribe(schema=HALF_A_CHARACTER),
        in_error,
        pb.IncompatibleSchema,
        "not a valid AVRO schema",
    ),
    "a producer of a subscription with an endless name": (
        producer(initial_subscription_name="n" * 4_097),
        in_error,
        pb.NotAllowedError,
        "a subscription name of 4,097 characters",
    ),
    "a consumer with an endless name": (
        subscribe(consumer_name="n" * 4_097, subType=pb.CommandSubscribe.Key_Shared),
        in_error,
        pb.NotAllowedError,
        "a name of 4,097 characters; 4,096 are allowed",
    ),
    "a subscription with an endless name": (
        subscribe(subscription="n" * 1_000_000),
        in_error,
        pb.NotAllowedError,
        "a name of 1,000,000 characters; 4,096 are allowed",
    ),
    "a sticky consumer without ranges": (
        subscribe(subType=3, keySharedMeta=pb.KeySharedMeta(keySharedMode=pb.STICKY)),
        in_error,
        pb.ConsumerAssignError,
        "must name ranges",
    ),
    "a schema of a topic that is not there": (
        create_schema(BROKEN),
        in_schema,
        pb.TopicNotFound,
        "Topic not found",
    ),
    "what was compacted of a topic that keeps nothing": (
        subscribe(topic="non-persistent://public/default/t", read_compacted=True),
        in_error,
        pb.NotAllowedError,
        "readCompacted only allowed on persistent topics",
    ),
    "partitions in a namespace that does not exist": (
        partitions("non-persistent://no/such/t"),
        in_partitions,
        pb.TopicNotFound,
        "no/such",
    ),
    "a namespace that does not exist": (lookup("no/such/t"), in_lookup, pb.TopicNotFound, "no/such"),
    "a name of several lines": (
        lookup("persistent://a\nb/c/d"),
        in_lookup,
        pb.InvalidTopicName,
        "is not a valid tenant or namespace name",
    ),
    "another listener": (
        lookup(ORDERS, advertised_listener_name="inner"),
        in_lookup,
        pb.ServiceNotReady,
        "listener 'inner' is not known",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_rejection_is_sent_and_logged_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The line has connection, topic and code; and the connection stays open."""
    command, read, code, sentence = REFUSED[name]

    with caplog.at_level(logging.INFO, "emulator.broker"):
        async with regions("us") as world, raw_client(world) as client:
            request_id, error, message = read(await client.ask(command))
            assert (request_id, error) == (7, code)
            assert sentence in message
            assert (await client.open_producer(5)).producer_name
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert sentence in lines[0]
    assert pb.ServerError.Name(code) in lines[0]
    assert "connection 127.0.0.1:" in lines[0]


async def sent_in_a_transaction(client: RawClient) -> Refusal:
    await client.open_producer()
    client.writer.write(send_frame(1, 3, data=entry(), txn_least=0, txn_most=0))
    failure = (await client.next()).send_error
    assert (failure.producer_id, failure.sequence_id) == (1, 3)
    return 7, failure.error, failure.message


async def acknowledged_in_a_transaction(client: RawClient) -> Refusal:
    await client.subscribe()
    client.writer.write(frame_of(encode_ack(1, [(0, 0, None)], request_id=7, txn_least=0, txn_most=0)))
    answer = (await client.next()).ackResponse
    return answer.request_id, answer.error, answer.message


@pytest.mark.parametrize("attempt", [sent_in_a_transaction, acknowledged_in_a_transaction])
async def test_a_refused_send_or_acknowledgement_names_its_topic(
    attempt: Callable[[RawClient], object], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "emulator.broker"):
        async with regions("us", transaction_coordinators=0) as world, raw_client(world) as client:
            refusal = await attempt(client)  # type: ignore[misc]
            assert refusal == (7, pb.NotAllowedError, "Transactions are not enabled.")
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert f"topic {ORDERS}, NotAllowedError" in line


async def test_the_broker_rejects_an_acknowledgement_of_an_unknown_consumer() -> None:
    """Its client would wait for ever. An acknowledgement without a request id may have crossed the close of its
    consumer on the wire."""
    async with regions("us") as world, raw_client(world) as client:
        client.writer.write(frame_of(encode_ack(9, [(0, 0, None)])))
        client.writer.write(frame_of(encode_ack(9, [(0, 0, None)], request_id=7)))
        answer = (await client.next()).ackResponse
        assert (answer.consumer_id, answer.request_id, answer.error) == (9, 7, pb.ConsumerNotFound)


BYTES = [None, pb.Schema(name="", schema_data=b"", type=pb.Schema.NoSchema)]


@pytest.mark.parametrize("schema", BYTES)
async def test_plain_bytes_need_no_schema(schema: pb.Schema | None) -> None:
    """Clients of plain bytes send no schema, or one of type none."""
    async with regions("us") as world, raw_client(world) as client:
        assert (await client.ask(producer(schema=schema))).producer_success.request_id == 7
        assert (await client.ask(subscribe(schema=schema))).success.request_id == 7


async def test_a_consumer_may_accept_any_schema_of_the_topic() -> None:
    """AUTO_CONSUME registers no schema, and GET_SCHEMA returns TopicNotFound."""
    schema = pb.Schema(name="", schema_data=b"", type=pb.Schema.AutoConsume)

    async with regions("us") as world, raw_client(world) as client:
        assert (await client.ask(subscribe(schema=schema))).success.request_id == 7
        get = pb.CommandGetSchema(request_id=8, topic=ORDERS)
        answer = await client.ask(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA, getSchema=get))
        assert answer.getSchemaResponse.error_code == pb.TopicNotFound


async def test_where_transactions_are_not_enabled_there_are_no_coordinators() -> None:
    """Clients with transactions enabled look them up first: they read zero partitions as "not enabled", and
    TopicNotFound as a broken cluster."""
    connect = pb.CommandTcClientConnectRequest(request_id=7, tc_id=0)

    async with regions("us", transaction_coordinators=0) as world, raw_client(world) as client:
        answer = (await client.ask(partitions(COORDINATORS))).partitionMetadataResponse
        assert answer.response == pb.CommandPartitionedTopicMetadataResponse.Success
        assert (answer.request_id, answer.partitions) == (7, 0)
        refusal = in_lookup(await client.ask(lookup(COORDINATORS)))
        assert refusal == (7, pb.NotAllowedError, "Transactions are not enabled.")
        type_ = pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST
        connected = await client.ask(pb.BaseCommand(type=type_, tcClientConnectRequest=connect))
        response = connected.tcClientConnectResponse
        assert (response.request_id, response.error) == (7, pb.NotAllowedError)
        assert response.message == "Transactions are not enabled."
