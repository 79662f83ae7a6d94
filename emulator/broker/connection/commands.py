"""The table of commands that a region accepts from clients and peers, and why others are not supported (C2)."""

from __future__ import annotations

from collections.abc import Callable
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
from emulator.broker.connection.command_spec import CommandSpec, Execution, command_number
from emulator.broker.connection.dispatch import AnyCommandSpec, CommandTable
from emulator.errors import ProtocolError, ServerError
from emulator.wire import codec, commands
from emulator.wire.codec import CommandType

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection

REQUEST_BYTES: Final = 2_048
"""Memory of a waiting request: its value, its task, a frame of each function it waits in."""
SCHEMA_REQUEST_BYTES: Final = 65_536
"""The same for a request with a schema: four of the largest allowed ones count as one."""


def _error(command: commands.RequestCommand, problem: ProtocolError) -> bytes:
    return commands.error_response(command.request_id, problem).encode()


def _named_topic(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("topic", command.topic)


def _namespace(
    connection: ClientConnection, command: commands.GetTopics | commands.WatchTopics
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


def _task(
    name: str,
    decode: Callable[[bytes], Any],
    handle: Callable[..., Any],
    refuse: Callable[[Any, ProtocolError], bytes],
    resource: Callable[..., ProtectedResource],
    action: Action | None = None,
    *,
    estimate_bytes: int = REQUEST_BYTES,
) -> AnyCommandSpec:
    """Return the row of a request that may have to wait."""
    return CommandSpec(
        name, decode, handle, refuse, resource, action, stage=Execution.TASK, estimate_bytes=estimate_bytes
    )


def _end_by_another(connection: ClientConnection, command: object) -> None:
    sentence = "only coordinators of this region may end a transaction on its topics"
    raise ProtocolError(ServerError.NotAllowedError, sentence)


def _read_nothing(command: bytes) -> None:
    """PING and PONG have no content."""


COMMANDS: Final[tuple[AnyCommandSpec, ...]] = (
    # The connection.
    CommandSpec(
        "CONNECT", commands.Connect.read, session.connect, None, _region, trust=TrustLevel.UNAUTHENTICATED
    ),
    CommandSpec(
        "AUTH_RESPONSE",
        commands.AuthResponse.read,
        session.prove,
        None,
        _region,
        trust=TrustLevel.UNAUTHENTICATED,
    ),
    CommandSpec("PING", _read_nothing, session.ping, None, _region, trust=TrustLevel.UNAUTHENTICATED),
    CommandSpec("PONG", _read_nothing, session.pong, None, _region, trust=TrustLevel.UNAUTHENTICATED),
    # Lookups.
    CommandSpec(
        "LOOKUP", commands.Lookup.read, lookups.lookup, lookups.refuse_lookup, _named_topic, Action.LOOK_UP
    ),
    _task(
        "PARTITIONED_METADATA",
        commands.PartitionMetadata.read,
        lookups.partition_metadata,
        lookups.refuse_partition_metadata,
        _named_topic,
        Action.LOOK_UP,
    ),
    CommandSpec(
        "GET_TOPICS_OF_NAMESPACE",
        commands.GetTopics.read,
        lookups.topics_of_namespace,
        _error,
        _namespace,
        Action.LOOK_UP,
    ),
    CommandSpec(
        "WATCH_TOPIC_LIST",
        commands.WatchTopics.read,
        topic_watchers.watch,
        _error,
        _namespace,
        Action.LOOK_UP,
    ),
    CommandSpec("WATCH_TOPIC_LIST_CLOSE", commands.EndWatch.read, topic_watchers.close, _error, _region),
    # Schemas.
    _task(
        "GET_SCHEMA",
        commands.GetSchema.read,
        schemas.get_schema,
        schemas.refuse_get_schema,
        _named_topic,
        Action.LOOK_UP,
    ),
    _task(
        "GET_OR_CREATE_SCHEMA",
        commands.GetOrCreateSchema.read,
        schemas.get_or_create_schema,
        schemas.refuse_get_or_create_schema,
        _named_topic,
        Action.PRODUCE,
        estimate_bytes=SCHEMA_REQUEST_BYTES,
    ),
    # Producers.
    _task("PRODUCER", commands.CreateProducer.read, producers.create, _error, _named_topic, Action.PRODUCE),
    CommandSpec(
        "SEND",
        codec.decode_send,
        publishing.send,
        publishing.refuse_send,
        _topic_of_producer,
        stage=Execution.ENTRY,
    ),
    _task("CLOSE_PRODUCER", commands.CloseProducer.read, producers.close, _error, _topic_of_producer),
    # Consumers.
    _task(
        "SUBSCRIBE",
        commands.Subscribe.read,
        consumers.subscribe,
        _error,
        _named_topic,
        Action.CONSUME,
    ),
    CommandSpec("FLOW", codec.decode_flow, acknowledging.flow, None, acknowledging.topic_of_flow),
    CommandSpec(
        "ACK",
        codec.decode_ack,
        acknowledging.acknowledge,
        acknowledging.refuse_acknowledgement,
        _topic_of_consumer,
    ),
    CommandSpec(
        "REDELIVER_UNACKNOWLEDGED_MESSAGES",
        commands.Redeliver.read,
        consumers.redeliver,
        None,
        _topic_of_consumer,
    ),
    _task("SEEK", commands.Seek.read, consumers.seek, _error, _topic_of_consumer),
    _task("UNSUBSCRIBE", commands.Unsubscribe.read, consumers.unsubscribe, _error, _topic_of_consumer),
    _task(
        "CLOSE_CONSUMER",
        commands.CloseConsumer.read,
        consumers.close,
        _error,
        _topic_of_consumer,
    ),
    _task(
        "GET_LAST_MESSAGE_ID",
        commands.GetLastMessageId.read,
        consumers.get_last_message_id,
        _error,
        _topic_of_consumer,
    ),
    CommandSpec(
        "CONSUMER_STATS",
        commands.ConsumerStats.read,
        consumers.stats,
        _error,
        _topic_of_consumer,
    ),
    # Transactions.
    _task(
        "TC_CLIENT_CONNECT_REQUEST",
        commands.ConnectCoordinator.read,
        transactions.connect,
        transactions.connect_refused,
        _coordinator,
    ),
    _task(
        "NEW_TXN",
        commands.NewTransaction.read,
        transactions.begin,
        transactions.begin_refused,
        _coordinator,
    ),
    _task(
        "ADD_PARTITION_TO_TXN",
        commands.AddPartitions.read,
        transactions.add_partitions,
        transactions.add_partitions_response,
        _transaction,
    ),
    _task(
        "ADD_SUBSCRIPTION_TO_TXN",
        commands.AddSubscriptions.read,
        transactions.add_subscriptions,
        transactions.add_subscriptions_response,
        _transaction,
    ),
    _task(
        "END_TXN",
        commands.EndTransaction.read,
        transactions.end,
        transactions.end_response,
        _transaction,
    ),
    # Requests that are always rejected.
    CommandSpec(
        "END_TXN_ON_PARTITION", commands.EndTransactionOnPartition.read, _end_by_another, _error, _region
    ),
    CommandSpec(
        "END_TXN_ON_SUBSCRIPTION",
        commands.EndTransactionOnSubscription.read,
        _end_by_another,
        _error,
        _region,
    ),
)

_SENT_BY_BROKERS: Final = """
    CONNECTED SEND_RECEIPT SEND_ERROR MESSAGE SUCCESS ERROR PRODUCER_SUCCESS PARTITIONED_METADATA_RESPONSE
    LOOKUP_RESPONSE CONSUMER_STATS_RESPONSE REACHED_END_OF_TOPIC GET_LAST_MESSAGE_ID_RESPONSE
    ACTIVE_CONSUMER_CHANGE GET_TOPICS_OF_NAMESPACE_RESPONSE GET_SCHEMA_RESPONSE AUTH_CHALLENGE ACK_RESPONSE
    GET_OR_CREATE_SCHEMA_RESPONSE NEW_TXN_RESPONSE ADD_PARTITION_TO_TXN_RESPONSE
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE END_TXN_RESPONSE TC_CLIENT_CONNECT_RESPONSE WATCH_TOPIC_LIST_SUCCESS
    WATCH_TOPIC_UPDATE TOPIC_MIGRATED
"""

NOT_OFFERED: Final[dict[int, str]] = dict.fromkeys(
    map(command_number, _SENT_BY_BROKERS.split()), "only a broker sends it"
) | dict.fromkeys(
    (CommandType.END_TXN_ON_PARTITION_RESPONSE, CommandType.END_TXN_ON_SUBSCRIPTION_RESPONSE),
    "unexpected response: a region sends no requests to end transactions",
)
"""Command type -> why it has no row. Such commands, and types that are newer than this protocol, are ignored with a
line in the log: newer clients may send them unasked."""

AGAIN: Final = tuple(
    replace(row, handle=producers.create_again) for row in COMMANDS if row.type == CommandType.PRODUCER
)

TABLE: Final = CommandTable(COMMANDS, NOT_OFFERED, AGAIN)
