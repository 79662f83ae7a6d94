"""The bytes of one or more examples of every command in the table, as Pulsar clients and brokers exchange them."""

from __future__ import annotations

import pytest

from emulator.errors import ProtocolError, ServerError
from emulator.model.values import AccessMode, Position, Schema, SchemaType
from emulator.wire.codec_hot.consuming import encode_ack_response
from emulator.wire.commands.connections import (
    HANDSHAKE_REQUEST_ID,
    PROTOCOL_VERSION,
    AuthChallenge,
    AuthResponse,
    Connect,
    EndWatch,
    Error,
    GetTopics,
    GetTopicsResponse,
    Lookup,
    PartitionMetadata,
    Success,
    TopicsUpdate,
    WatchTopics,
    WatchTopicsSuccess,
    connected_response,
    lookup_connect,
    lookup_failed,
    partitions_failed,
    partitions_response,
)
from emulator.wire.commands.consumers import (
    AUTO_SPLIT,
    STICKY,
    AckResponse,
    ActiveConsumerChange,
    CloseConsumer,
    ConsumerStatsResponse,
    GetLastMessageId,
    LastMessageIdResponse,
    ReachedEndOfTopic,
    Redeliver,
    Seek,
    Subscribe,
    Unsubscribe,
    close_consumer,
)
from emulator.wire.commands.producers import (
    CloseProducer,
    CreateProducer,
    GetOrCreateSchema,
    GetOrCreateSchemaResponse,
    GetSchema,
    GetSchemaResponse,
    ProducerSuccess,
    SendError,
    close_producer,
)
from emulator.wire.commands.spec import COMMANDS, Command, MessageIdData, error_fields
from emulator.wire.commands.transactions import (
    NO_EPOCH,
    AddPartitions,
    AddPartitionsResponse,
    AddSubscriptions,
    AddSubscriptionsResponse,
    ConnectCoordinator,
    CoordinatorConnected,
    EndTransaction,
    EndTransactionResponse,
    NewTransaction,
    NewTransactionResponse,
)
from emulator.wire.frames import FrameBuffer

CODE = ServerError.TopicNotFound
PROBLEM = ProtocolError(CODE, "no such topic")
REJECTED = error_fields(PROBLEM)
SCHEMA = Schema(SchemaType.AVRO, b"{}", {"a": "b", "c": "d"})
NEVER_SENT = {"ConsumerStats", "EndTransactionOnPartition", "EndTransactionOnSubscription"}
"""Only other clients and brokers send them."""

EXAMPLES: dict[str, tuple[Command, str]] = {
    "connect": (Connect("c 1", PROTOCOL_VERSION), "0000000f0000000b080212070a036320312015"),
    "connect_peer": (
        Connect("repl", PROTOCOL_VERSION, "geoemu", b"eu", wants_source_positions=True),
        "000000200000001c080212180a047265706c1a02657520152a0667656f656d7552023001",
    ),
    "auth_response": (
        AuthResponse("geoemu", b"proof"),
        "0000001a000000160825aa0211120f0a0667656f656d75120570726f6f66",
    ),
    "auth_challenge": (
        AuthChallenge("geoemu", b"nonce"),
        "0000001a000000160824a20211120f0a0667656f656d7512056e6f6e6365",
    ),
    "connected": (
        connected_response(19, 5_242_880),
        "0000002d0000002908031a250a1450756c736172205365727665722067656f656d751013188080c0022206200128013001",
    ),
    "error": (
        Error(7, CODE, "no such topic"),
        "0000001b00000017080e72130807100b1a0d6e6f207375636820746f706963",
    ),
    "handshake_error": (
        Error(HANDSHAKE_REQUEST_ID, CODE, "no such topic"),
        "0000002400000020080e721c08ffffffffffffffffff01100b1a0d6e6f207375636820746f706963",
    ),
    "success": (Success(7), "0000000a00000006080d6a020807"),
    "lookup": (Lookup(7, "orders"), "000000130000000f0817ba010a0a066f72646572731007"),
    "lookup_connect": (
        lookup_connect(7, "pulsar://h:1"),
        "0000001f0000001b0818c201160a0c70756c7361723a2f2f683a311801200728014000",
    ),
    "lookup_failed": (
        lookup_failed(7, PROBLEM),
        "0000001e0000001a0818c2011518022007300b3a0d6e6f207375636820746f706963",
    ),
    "partitions_request": (
        PartitionMetadata(7, "orders", may_create=False),
        "00000015000000110815aa010c0a066f726465727310073000",
    ),
    "partitions_request_create": (
        PartitionMetadata(7, "orders", may_create=True),
        "00000015000000110815aa010c0a066f726465727310073001",
    ),
    "partitions": (partitions_response(7, 0), "0000000f0000000b0816b20106080010071800"),
    "partitions_4": (partitions_response(7, 4), "0000000f0000000b0816b20106080410071800"),
    "partitions_failed": (
        partitions_failed(7, PROBLEM),
        "0000001e0000001a0816b2011510071801200b2a0d6e6f207375636820746f706963",
    ),
    "topics_request": (
        GetTopics(7, "public/default", "a.*"),
        "000000200000001c08208202170807120e7075626c69632f64656661756c742203612e2a",
    ),
    "topics_request_hash": (
        GetTopics(7, "public/default", "a.*", "00ff"),
        "0000002600000022082082021d0807120e7075626c69632f64656661756c742203612e2a2a0430306666",
    ),
    "topics": (
        GetTopicsResponse(7, ("a", "b"), "00ff", filtered=True, changed=True),
        "0000001b0000001708218a0212080712016112016218012204303066662801",
    ),
    "topics_unchanged": (
        GetTopicsResponse(7, (), "00ff", filtered=False, changed=False),
        "000000150000001108218a020c080718002204303066662800",
    ),
    "watch": (
        WatchTopics(7, 3, "public/default", "a.*"),
        "000000220000001e0840820419080710031a0e7075626c69632f64656661756c742203612e2a",
    ),
    "watch_hash": (
        WatchTopics(7, 3, "public/default", "a.*", "00ff"),
        "0000002800000024084082041f080710031a0e7075626c69632f64656661756c742203612e2a2a0430306666",
    ),
    "watching": (
        WatchTopicsSuccess(7, 3, ("a", "b"), "00ff"),
        "000000190000001508418a0410080710031a01611a0162220430306666",
    ),
    "watched": (
        TopicsUpdate(3, ("a",), ("b",), "00ff"),
        "0000001700000013084292040e08031201611a0162220430306666",
    ),
    "end_watch": (EndWatch(7, 3), "0000000d0000000908439a040408071003"),
    "get_schema": (GetSchema(7, "orders"), "000000130000000f082292020a080712066f7264657273"),
    "get_schema_version": (
        GetSchema(7, "orders", b"\0\1"),
        "0000001700000013082292020e080712066f72646572731a020001",
    ),
    "schema": (
        GetSchemaResponse(7, schema=SCHEMA, schema_name="orders", version=b"\0\1"),
        "0000002f0000002b08239a02260807221e0a066f72646572731a027b7d20042a060a01611201622a060a01631201642a020001",
    ),
    "schema_failed": (
        GetSchemaResponse(7, **REJECTED),
        "0000001c0000001808239a02130807100b1a0d6e6f207375636820746f706963",
    ),
    "get_or_create_schema": (
        GetOrCreateSchema(7, "orders", SCHEMA),
        "000000310000002d0827ba0228080712066f72646572731a1c0a044156524f1a027b7d20042a060a01611201622a060a0163120164",
    ),
    "schema_version": (
        GetOrCreateSchemaResponse(7, version=b"\0\1"),
        "0000000f0000000b0828c20206080722020001",
    ),
    "schema_version_none": (GetOrCreateSchemaResponse(7, version=b""), "0000000d000000090828c2020408072200"),
    "schema_version_failed": (
        GetOrCreateSchemaResponse(7, **REJECTED),
        "0000001c000000180828c202130807100b1a0d6e6f207375636820746f706963",
    ),
    "producer": (
        CreateProducer(7, "orders", 3, 0, AccessMode.SHARED, is_name_given=False),
        "0000001a0000001608052a120a066f726465727310031807400048005000",
    ),
    "producer_all": (
        CreateProducer(7, "orders", 3, 2, AccessMode(2), True, "p", 5, -4, SCHEMA, "sub", encrypts=True),
        "0000004f0000004b08052a470a066f72646572731003180722017028013a1c0a044156524f1a027b7d20042a060a01611201622a060a016312016440024801500258056a0373756270fcffffffffffffffff01",
    ),
    "producer_success": (
        ProducerSuccess(7, "p", -1, b"", is_ready=True),
        "0000001d0000001908118a0114080712017018ffffffffffffffffff0122003001",
    ),
    "producer_success_all": (
        ProducerSuccess(7, "p", 12, b"\0\1", is_ready=True, topic_epoch=5),
        "000000180000001408118a010f0807120170180c2202000128053001",
    ),
    "producer_waits": (
        ProducerSuccess(7, "p", -1, b"", is_ready=False),
        "0000001d0000001908118a0114080712017018ffffffffffffffffff0122003000",
    ),
    "close_producer": (CloseProducer(7, 3), "0000000c00000008080f7a0408031007"),
    "close_producer_broker": (close_producer(3), "0000001500000011080f7a0d080310ffffffffffffffffff01"),
    "send_error": (
        SendError(3, 9, CODE, "no such topic"),
        "0000001d000000190808421508031009180b220d6e6f207375636820746f706963",
    ),
    "subscribe": (
        Subscribe(7, "orders", "sub", 0, 3, "c", 0, 0),
        "000000220000001e0804221a0a066f7264657273120373756218002003280732016338006800",
    ),
    "subscribe_all": (
        Subscribe(
            7,
            "orders",
            "sub",
            3,
            3,
            "c",
            2,
            1,
            False,
            MessageIdData(5, -1, -1),
            True,
            True,
            False,
            None,
            STICKY,
            ((0, 9), (20, 65535)),
            True,
            SCHEMA,
            {"a": "b"},
            {"c": "d"},
        ),
        "000000890000008508042280010a066f72646572731203737562180320032807320163380240004a18080510ffffffffffffffffff0120ffffffffffffffffff0152060a01611201625801621c0a044156524f1a027b7d20042a060a01611201622a060a01631201646801700178008a011208011a04080010091a06081410ffff0320019201060a0163120164",
    ),
    "subscribe_key_shared": (
        Subscribe(7, "orders", "sub", 3, 3, "c", 0, 0, key_shared_mode=AUTO_SPLIT, may_reorder=False),
        "0000002900000025080422210a066f72646572731203737562180320032807320163380068008a010408002000",
    ),
    "redeliver_all": (Redeliver(3), "0000000b000000070814a201020803"),
    "redeliver": (
        Redeliver(3, (Position(5, 1), Position(5, 2))),
        "00000017000000130814a2010e0803120408051001120408051002",
    ),
    "seek_time": (Seek(7, 3, publish_time_ms=0), "0000000f0000000b081ce20106080310072000"),
    "seek": (
        Seek(7, 3, MessageIdData(5, 2, 1, ack_set=(-2, 3))),
        "000000220000001e081ce20119080310071a1308051002200128feffffffffffffffff012803",
    ),
    "seek_earliest": (
        Seek(7, 3, MessageIdData(-1, -1, -1)),
        "000000300000002c081ce20127080310071a2108ffffffffffffffffff0110ffffffffffffffffff0120ffffffffffffffffff01",
    ),
    "last_message_id_request": (GetLastMessageId(7, 3), "0000000d00000009081dea010408031007"),
    "last_message_id": (
        LastMessageIdResponse(7, MessageIdData(5, 9, -1, -1), Position(5, -1)),
        "0000003600000032081ef2012d0a1a0805100918ffffffffffffffffff0120ffffffffffffffffff0110071a0d080510ffffffffffffffffff01",
    ),
    "last_message_id_none": (
        LastMessageIdResponse(7, MessageIdData(-1, -1, 3, 2), Position(5, 8)),
        "0000002d00000029081ef201240a1a08ffffffffffffffffff0110ffffffffffffffffff011802200310071a0408051008",
    ),
    "unsubscribe": (Unsubscribe(7, 3), "0000000c00000008080c620408031007"),
    "close_consumer": (CloseConsumer(7, 3), "0000000d00000009081082010408031007"),
    "close_consumer_broker": (close_consumer(3), "0000001600000012081082010d080310ffffffffffffffffff01"),
    "reached_end_of_topic": (ReachedEndOfTopic(3), "0000000b00000007081bda01020803"),
    "active_consumer_change": (ActiveConsumerChange(3, True), "0000000d00000009081ffa010408031001"),
    "active_consumer_change_not": (ActiveConsumerChange(3, False), "0000000d00000009081ffa010408031000"),
    "acknowledged": (AckResponse(3, 7), "0000000d000000090826b2020408033007"),
    "acknowledgement_failed": (
        AckResponse(3, 7, **REJECTED),
        "0000001e0000001a0826b202150803200b2a0d6e6f207375636820746f7069633007",
    ),
    "consumer_stats": (
        ConsumerStatsResponse(7, "c", "Shared", "h:1", 0, 2, False, 4),
        "000000230000001f081ad2011a08073a01634000480250005a03683a316a065368617265647804",
    ),
    "tc_connect": (ConnectCoordinator(7, 3), "0000000d00000009083ef2030408071003"),
    "tc_connect_key": (
        ConnectCoordinator(7, 3, "k", NO_EPOCH, "p"),
        "000000210000001d083ef2031808071003b806ffffffffffffffffff01c206016bca060170",
    ),
    "tc_connected": (CoordinatorConnected(7), "0000000b00000007083ffa03020807"),
    "tc_connected_epoch": (CoordinatorConnected(7, 4), "0000000d00000009083ffa030408072004"),
    "tc_refused": (
        CoordinatorConnected(7, **REJECTED),
        "0000001c00000018083ffa03130807100b1a0d6e6f207375636820746f706963",
    ),
    "begin": (NewTransaction(7, 3, 60_000), "000000110000000d0832920308080710e0d4031803"),
    "begun": (NewTransactionResponse(7, 1, 2), "0000000f0000000b08339a0306080710021801"),
    "begin_refused": (
        NewTransactionResponse(7, **REJECTED),
        "0000001c0000001808339a03130807200b2a0d6e6f207375636820746f706963",
    ),
    "add_partitions": (
        AddPartitions(7, 1, 2, ("t", "u")),
        "00000015000000110834a2030c080710021801220174220175",
    ),
    "partitions_added": (AddPartitionsResponse(7, 1, 2), "0000000f0000000b0835aa0306080710021801"),
    "partitions_not_added": (
        AddPartitionsResponse(7, 1, 2, **REJECTED),
        "000000200000001c0835aa0317080710021801200b2a0d6e6f207375636820746f706963",
    ),
    "add_subscription": (
        AddSubscriptions(7, 1, 2, (("t", "s"),)),
        "00000017000000130836b2030e08071002180122060a0174120173",
    ),
    "subscriptions_added": (AddSubscriptionsResponse(7, 1, 2), "0000000f0000000b0837ba0306080710021801"),
    "subscriptions_not_added": (
        AddSubscriptionsResponse(7, 1, 2, **REJECTED),
        "000000200000001c0837ba0317080710021801200b2a0d6e6f207375636820746f706963",
    ),
    "commit": (EndTransaction(7, 1, 2, commit=True), "000000110000000d0838c203080807100218012000"),
    "abort": (EndTransaction(7, 1, 2, commit=False), "000000110000000d0838c203080807100218012001"),
    "ended": (EndTransactionResponse(7, 1, 2), "0000000f0000000b0839ca0306080710021801"),
    "not_ended": (
        EndTransactionResponse(7, 1, 2, **REJECTED),
        "000000200000001c0839ca0317080710021801200b2a0d6e6f207375636820746f706963",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_command_has_the_recorded_bytes_and_is_read_back(name: str) -> None:
    command, recorded = EXAMPLES[name]
    assert command.encode().hex() == recorded
    ((type_, data, _),) = FrameBuffer(1_000_000).feed(bytes.fromhex(recorded))
    assert COMMANDS[type_].read(data) == command


def test_every_command_has_an_example() -> None:
    assert {type(command).__name__ for command, _ in EXAMPLES.values()} | NEVER_SENT == {
        one.__name__ for one in COMMANDS.values()
    }


def test_the_response_to_an_acknowledgement_has_the_same_bytes_by_hand() -> None:
    assert encode_ack_response(3, 7).hex() == EXAMPLES["acknowledged"][1]
    assert encode_ack_response(300, 2**40) == AckResponse(300, 2**40).encode()
