"""What a client may ask of a region: a row each, and why the rest is not offered (C2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from emulator.broker.authorization import Action, ProtectedResource, TrustLevel
from emulator.broker.connection import (
    acknowledging,
    consumers,
    lookups,
    producers,
    publishing,
    schemas,
    session,
    topic_watchers,
    transactions,
)
from emulator.broker.connection.command_spec import CommandSpec, Execution
from emulator.broker.connection.dispatch import AnyCommandSpec, CommandTable
from emulator.errors import ProtocolError, ServerError
from emulator.wire import answers, codec, commands, consumer_commands, topic_lists, transaction_commands
from emulator.wire.codec import CommandType

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection

REQUEST_BYTES: Final = 2_048
"""What a request holds while it waits: its value, its task, a frame of each function it waits in."""
SCHEMA_REQUEST_BYTES: Final = 65_536
"""The same where it brings a schema: four of the largest that are allowed count as one."""


def _error(command: commands.Request, problem: ProtocolError) -> bytes:
    return answers.error(command.request_id, problem)


def _named_topic(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("topic", command.topic)


def _namespace(
    connection: ClientConnection, command: topic_lists.GetTopics | topic_lists.WatchTopics
) -> ProtectedResource:
    return ProtectedResource("namespace", command.namespace)


def _region(connection: ClientConnection, command: object) -> ProtectedResource:
    return ProtectedResource("region", connection.region.config.region)


def _topic_of_producer(connection: ClientConnection, command: Any) -> ProtectedResource:
    return publishing.topic_of(connection, command.producer_id)


def _topic_of_consumer(connection: ClientConnection, command: Any) -> ProtectedResource:
    return acknowledging.topic_of(connection, command.consumer_id)


def _coordinator(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("transaction coordinator", str(command.coordinator))


def _transaction(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("transaction", f"({command.most},{command.least})")


def _refused(type_: int, name: str, body_name: str, sentence: str) -> CommandSpec[commands.NumberedRequest]:
    """A request that is known and always refused, in words."""

    def handle(connection: ClientConnection, command: commands.NumberedRequest) -> None:
        raise ProtocolError(ServerError.NotAllowedError, sentence)

    read = commands.NumberedRequest.reader(body_name)
    return CommandSpec(type_, name, read, handle, _error, _region)


_OWN_COORDINATORS: Final = "only coordinators of this region may end a transaction on its topics"

COMMANDS: Final[tuple[AnyCommandSpec, ...]] = (
    # The connection.
    CommandSpec(
        CommandType.CONNECT,
        "CONNECT",
        commands.Connect.read,
        session.connect,
        None,
        _region,
        trust=TrustLevel.UNAUTHENTICATED,
    ),
    CommandSpec(
        CommandType.AUTH_RESPONSE,
        "AUTH_RESPONSE",
        commands.AuthResponse.read,
        session.prove,
        None,
        _region,
        trust=TrustLevel.UNAUTHENTICATED,
    ),
    CommandSpec(
        CommandType.PING,
        "PING",
        commands.read_nothing,
        session.ping,
        None,
        _region,
        trust=TrustLevel.UNAUTHENTICATED,
    ),
    CommandSpec(
        CommandType.PONG,
        "PONG",
        commands.read_nothing,
        session.pong,
        None,
        _region,
        trust=TrustLevel.UNAUTHENTICATED,
    ),
    # Lookups.
    CommandSpec(
        CommandType.LOOKUP,
        "LOOKUP",
        commands.Lookup.read,
        lookups.lookup,
        lookups.refuse_lookup,
        _named_topic,
        Action.LOOK_UP,
    ),
    CommandSpec(
        CommandType.PARTITIONED_METADATA,
        "PARTITIONED_METADATA",
        commands.PartitionMetadata.read,
        lookups.partition_metadata,
        lookups.refuse_partition_metadata,
        _named_topic,
        Action.LOOK_UP,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.GET_TOPICS_OF_NAMESPACE,
        "GET_TOPICS_OF_NAMESPACE",
        topic_lists.GetTopics.read,
        lookups.topics_of_namespace,
        _error,
        _namespace,
        Action.LOOK_UP,
    ),
    CommandSpec(
        CommandType.WATCH_TOPIC_LIST,
        "WATCH_TOPIC_LIST",
        topic_lists.WatchTopics.read,
        topic_watchers.watch,
        _error,
        _namespace,
        Action.LOOK_UP,
    ),
    CommandSpec(
        CommandType.WATCH_TOPIC_LIST_CLOSE,
        "WATCH_TOPIC_LIST_CLOSE",
        topic_lists.EndWatch.read,
        topic_watchers.close,
        _error,
        _region,
    ),
    # Schemas.
    CommandSpec(
        CommandType.GET_SCHEMA,
        "GET_SCHEMA",
        commands.GetSchema.read,
        schemas.get_schema,
        schemas.refuse_get_schema,
        _named_topic,
        Action.LOOK_UP,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.GET_OR_CREATE_SCHEMA,
        "GET_OR_CREATE_SCHEMA",
        commands.GetOrCreateSchema.read,
        schemas.get_or_create_schema,
        schemas.refuse_get_or_create_schema,
        _named_topic,
        Action.PRODUCE,
        stage=Execution.TASK,
        estimate_bytes=SCHEMA_REQUEST_BYTES,
    ),
    # Producers.
    CommandSpec(
        CommandType.PRODUCER,
        "PRODUCER",
        commands.CreateProducer.read,
        producers.create,
        _error,
        _named_topic,
        Action.PRODUCE,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.SEND,
        "SEND",
        codec.decode_send,
        publishing.send,
        publishing.refuse_send,
        _topic_of_producer,
        stage=Execution.ENTRY,
    ),
    CommandSpec(
        CommandType.CLOSE_PRODUCER,
        "CLOSE_PRODUCER",
        commands.CloseProducer.read,
        producers.close,
        _error,
        _topic_of_producer,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    # Consumers.
    CommandSpec(
        CommandType.SUBSCRIBE,
        "SUBSCRIBE",
        consumer_commands.Subscribe.read,
        consumers.subscribe,
        _error,
        _named_topic,
        Action.CONSUME,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.FLOW,
        "FLOW",
        codec.decode_flow,
        acknowledging.flow,
        None,
        acknowledging.topic_of_flow,
    ),
    CommandSpec(
        CommandType.ACK,
        "ACK",
        codec.decode_ack,
        acknowledging.acknowledge,
        acknowledging.refuse_acknowledgement,
        _topic_of_consumer,
    ),
    CommandSpec(
        CommandType.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        "REDELIVER_UNACKNOWLEDGED_MESSAGES",
        consumer_commands.Redeliver.read,
        consumers.redeliver,
        None,
        _topic_of_consumer,
    ),
    CommandSpec(
        CommandType.SEEK,
        "SEEK",
        consumer_commands.Seek.read,
        consumers.seek,
        _error,
        _topic_of_consumer,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.UNSUBSCRIBE,
        "UNSUBSCRIBE",
        consumer_commands.Unsubscribe.read,
        consumers.unsubscribe,
        _error,
        _topic_of_consumer,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.CLOSE_CONSUMER,
        "CLOSE_CONSUMER",
        consumer_commands.ConsumerRequest.read_close,
        consumers.close,
        _error,
        _topic_of_consumer,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.GET_LAST_MESSAGE_ID,
        "GET_LAST_MESSAGE_ID",
        consumer_commands.ConsumerRequest.read_last_message_id,
        consumers.get_last_message_id,
        _error,
        _topic_of_consumer,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.CONSUMER_STATS,
        "CONSUMER_STATS",
        consumer_commands.ConsumerRequest.read_stats,
        consumers.stats,
        _error,
        _topic_of_consumer,
    ),
    # Transactions.
    CommandSpec(
        CommandType.TC_CLIENT_CONNECT_REQUEST,
        "TC_CLIENT_CONNECT_REQUEST",
        transaction_commands.ConnectCoordinator.read,
        transactions.connect,
        transaction_commands.connect_refused,
        _coordinator,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.NEW_TXN,
        "NEW_TXN",
        transaction_commands.NewTransaction.read,
        transactions.begin,
        transaction_commands.begin_refused,
        _coordinator,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.ADD_PARTITION_TO_TXN,
        "ADD_PARTITION_TO_TXN",
        transaction_commands.AddPartitions.read,
        transactions.add_partitions,
        transaction_commands.partitions_added,
        _transaction,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.ADD_SUBSCRIPTION_TO_TXN,
        "ADD_SUBSCRIPTION_TO_TXN",
        transaction_commands.AddSubscriptions.read,
        transactions.add_subscriptions,
        transaction_commands.subscriptions_added,
        _transaction,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    CommandSpec(
        CommandType.END_TXN,
        "END_TXN",
        transaction_commands.EndTransaction.read,
        transactions.end,
        transaction_commands.ended,
        _transaction,
        stage=Execution.TASK,
        estimate_bytes=REQUEST_BYTES,
    ),
    # Known, and refused in words until they are built.
    _refused(
        CommandType.END_TXN_ON_PARTITION, "END_TXN_ON_PARTITION", "endTxnOnPartition", _OWN_COORDINATORS
    ),
    _refused(
        CommandType.END_TXN_ON_SUBSCRIPTION,
        "END_TXN_ON_SUBSCRIPTION",
        "endTxnOnSubscription",
        _OWN_COORDINATORS,
    ),
)

_FROM_BROKERS: Final = "only a broker sends it"

NOT_OFFERED: Final[dict[int, str]] = {
    CommandType.CONNECTED: _FROM_BROKERS,
    CommandType.SEND_RECEIPT: _FROM_BROKERS,
    CommandType.SEND_ERROR: _FROM_BROKERS,
    CommandType.MESSAGE: _FROM_BROKERS,
    CommandType.SUCCESS: _FROM_BROKERS,
    CommandType.ERROR: _FROM_BROKERS,
    CommandType.PRODUCER_SUCCESS: _FROM_BROKERS,
    CommandType.PARTITIONED_METADATA_RESPONSE: _FROM_BROKERS,
    CommandType.LOOKUP_RESPONSE: _FROM_BROKERS,
    CommandType.CONSUMER_STATS_RESPONSE: _FROM_BROKERS,
    CommandType.REACHED_END_OF_TOPIC: _FROM_BROKERS,
    CommandType.GET_LAST_MESSAGE_ID_RESPONSE: _FROM_BROKERS,
    CommandType.ACTIVE_CONSUMER_CHANGE: _FROM_BROKERS,
    CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE: _FROM_BROKERS,
    CommandType.GET_SCHEMA_RESPONSE: _FROM_BROKERS,
    CommandType.AUTH_CHALLENGE: _FROM_BROKERS,
    CommandType.ACK_RESPONSE: _FROM_BROKERS,
    CommandType.GET_OR_CREATE_SCHEMA_RESPONSE: _FROM_BROKERS,
    CommandType.NEW_TXN_RESPONSE: _FROM_BROKERS,
    CommandType.ADD_PARTITION_TO_TXN_RESPONSE: _FROM_BROKERS,
    CommandType.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: _FROM_BROKERS,
    CommandType.END_TXN_RESPONSE: _FROM_BROKERS,
    CommandType.END_TXN_ON_PARTITION_RESPONSE: "unexpected response: a region sends no requests to end transactions",
    CommandType.END_TXN_ON_SUBSCRIPTION_RESPONSE: "unexpected response: a region sends no requests to end transactions",
    CommandType.TC_CLIENT_CONNECT_RESPONSE: _FROM_BROKERS,
    CommandType.WATCH_TOPIC_LIST_SUCCESS: _FROM_BROKERS,
    CommandType.WATCH_TOPIC_UPDATE: _FROM_BROKERS,
    CommandType.TOPIC_MIGRATED: _FROM_BROKERS,
}
"""Command type -> why there is no row. Such commands, and types newer than our protocol, are ignored with a line in the
log, as newer clients may send what was never offered."""

AGAIN: Final = tuple(
    replace(row, handle=producers.create_again) for row in COMMANDS if row.type == CommandType.PRODUCER
)

TABLE: Final = CommandTable(COMMANDS, NOT_OFFERED, AGAIN)
