"""The table of commands that a region accepts from clients and peers, and the reasons to ignore others (C2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from emulator.broker.authentication.gate import Session
from emulator.broker.authentication.refresh import CredentialRefresh, unsolicited
from emulator.broker.authentication.refusals import REGION
from emulator.broker.authorization import ProtectedResource, TrustLevel
from emulator.broker.connection import (
    acknowledgements,
    consumers,
    lookups,
    producers,
    requirements,
    schemas,
    topic_watchers,
    transactions,
)
from emulator.broker.connection.dispatch import (
    AnyCommandSpec,
    CommandSpec,
    CommandTable,
    Execution,
    command_number,
)
from emulator.broker.connection.requirements import CommandRequirements
from emulator.broker.replication import peer_auth
from emulator.core.admission import Peer
from emulator.errors import ProtocolError, ServerError
from emulator.model.principals import NO_PRINCIPAL
from emulator.wire import commands as wire
from emulator.wire.codec_hot.consuming import decode_ack, decode_flow
from emulator.wire.codec_hot.opening import (
    decode_close_producer,
    decode_create_producer,
    decode_lookup,
    decode_partition_metadata,
)
from emulator.wire.codec_hot.publishing import decode_send
from emulator.wire.codec_hot.transactions import (
    decode_add_partitions,
    decode_end_transaction,
    decode_new_transaction,
)
from emulator.wire.command_types import CommandType
from emulator.wire.frames import PONG_FRAME

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection

REQUEST_BYTES: Final = 2_048
"""Estimated memory of a waiting request: the decoded command, its task, and the frames of its coroutines."""
SCHEMA_REQUEST_BYTES: Final = 65_536
"""Estimated memory of a waiting request with a schema: a quarter of the default `schema_bytes_max`."""

Refusal = Callable[[Any, ProtocolError], bytes]
"""(command, problem): the error response."""


# Error responses.


def _error_by(build: Callable[[int, ProtocolError], Any]) -> Refusal:
    return lambda command, problem: build(command.request_id, problem).encode()


def _error_in(response: Callable[..., Any]) -> Refusal:
    """Return the builder of error responses in the command's own type of response."""
    return lambda command, problem: response(command.request_id, **wire.error_fields(problem)).encode()


_error = _error_by(wire.error_response)


# The resources of commands, for the log.


def _topic(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("topic", command.topic)


def _namespace(connection: ClientConnection, command: wire.GetTopics | wire.WatchTopics) -> ProtectedResource:
    return ProtectedResource("namespace", command.namespace)


def _region(connection: ClientConnection, command: object) -> ProtectedResource:
    return ProtectedResource("region", connection.region.config.region)


def _coordinator(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("transaction coordinator", str(command.coordinator))


def _transaction(connection: ClientConnection, command: Any) -> ProtectedResource:
    return ProtectedResource("transaction", f"({command.most},{command.least})")


_of_producer, _of_consumer = producers.topic_of, consumers.topic_of


# Rows of the table.


def _inline(
    name: str,
    command: type[Any],
    handle: Callable[..., Any],
    resource: Callable[..., ProtectedResource],
    requires: CommandRequirements | None = None,
    refuse: Refusal | None = _error,
    *,
    decode: Callable[[bytes], Any] | None = None,
    estimate_bytes: int = 0,
) -> AnyCommandSpec:
    """Return the row of a command that is handled inline, or in a task if `estimate_bytes` is set. `decode`: reads the
    command as `command.read` does, but faster."""
    stage = Execution.TASK if estimate_bytes else Execution.INLINE
    read = decode or command.read
    return CommandSpec(
        name, read, handle, refuse, resource, requires, stage=stage, estimate_bytes=estimate_bytes
    )


_task = partial(_inline, estimate_bytes=REQUEST_BYTES)
"""Like `_inline`, for a request that may have to wait."""


def _handshake(name: str, decode: Callable[[bytes], Any], handle: Callable[..., Any]) -> AnyCommandSpec:
    """Return the row of a command that clients may send before and after they are authenticated."""
    return CommandSpec(name, decode, handle, None, _region, trust=TrustLevel.UNAUTHENTICATED)


# The session of a client: CONNECT, the authentication of a region, PING and PONG.


def _connect(connection: ClientConnection, command: wire.Connect) -> None:
    if connection.trust is not TrustLevel.UNAUTHENTICATED or connection.handshake is not None:
        raise ProtocolError(ServerError.UnknownError, "CONNECT may be sent once only", closes_connection=True)
    config, method = connection.region.config, command.auth_method_name
    if method == peer_auth.METHOD:
        random_bytes = connection.region.environment.random.randbytes
        with connection.region.resources.refused_authentications.counting(REGION, "proof"):
            challenge = peer_auth.challenge(config, command.auth_data, random_bytes)
        connection.region.removed_regions.check_accepted(challenge.region)
        connection.handshake = peer_auth.Handshake(command, challenge)
        connection.answer(wire.AuthChallenge(method, challenge.nonce).encode())
        return
    gate, peer = (
        connection.region.gate,
        peer_auth.declared_peer(config.pulsar_peers, method, command.auth_data),
    )
    session = (
        None
        if gate is None or peer is not None
        else gate.admit(command, connection.certificate, connection.host)
    )
    _complete_handshake(connection, command, peer, session)


def _authenticate(connection: ClientConnection, command: wire.AuthResponse) -> None:
    handshake, connection.handshake = connection.handshake, None
    if handshake is not None:
        _authenticate_region(connection, handshake, command)
    elif connection.credential_refresh is not None:
        connection.credential_refresh.respond(command.method, command.data)
    else:
        raise unsolicited()


def _authenticate_region(
    connection: ClientConnection, handshake: peer_auth.Handshake, command: wire.AuthResponse
) -> None:
    region = connection.region
    with region.resources.refused_authentications.counting(REGION, "proof"):
        peer, token = handshake.challenge.verify(region.config, command.method, command.data)
    session = None if region.gate is None else region.gate.admit_region(peer.region, token)
    _complete_handshake(connection, handshake.greeting, peer, session)


def _complete_handshake(
    connection: ClientConnection, greeting: wire.Connect, peer: Peer | None, session: Session | None
) -> None:
    if peer is None:
        connection.region.clients.counts.admit(connection.address)
    connection.client_version = greeting.client_version
    connection.peer = peer
    connection.flow_control.is_exempt = peer is not None
    trust = TrustLevel.CLIENT if peer is None else TrustLevel.PEER
    connection.raise_trust(trust, NO_PRINCIPAL if session is None else session.principal)
    if session is not None:
        assert connection.region.gate is not None
        connection.credential_refresh = CredentialRefresh(connection, connection.region.gate, session)
    if peer is None:
        connection.region.clients.client_admitted(connection)
    settings = connection.region.config.settings
    connection.answer(wire.connected_response(greeting.protocol_version, settings.max_message_bytes).encode())


def _ping(connection: ClientConnection, command: None) -> None:
    connection.answer(PONG_FRAME)


def _pong(connection: ClientConnection, command: None) -> None:
    """Do nothing: every received byte already shows that the client is alive."""


def _end_by_another(connection: ClientConnection, command: object) -> None:
    sentence = "only coordinators of this region may end a transaction on its topics"
    raise ProtocolError(ServerError.NotAllowedError, sentence)


def _read_nothing(command: bytes) -> None:
    """Decode PING or PONG, which have no content."""


COMMANDS: Final[tuple[AnyCommandSpec, ...]] = (
    # The connection.
    _handshake("CONNECT", wire.Connect.read, _connect),
    _handshake("AUTH_RESPONSE", wire.AuthResponse.read, _authenticate),
    _handshake("PING", _read_nothing, _ping),
    _handshake("PONG", _read_nothing, _pong),
    # Lookups.
    _inline(
        "LOOKUP",
        wire.Lookup,
        lookups.lookup,
        _topic,
        requirements.LOOK_UP,
        _error_by(wire.lookup_failed),
        decode=decode_lookup,
    ),
    _task(
        "PARTITIONED_METADATA",
        wire.PartitionMetadata,
        lookups.partition_metadata,
        _topic,
        requirements.COUNT_PARTITIONS,
        _error_by(wire.partitions_failed),
        decode=decode_partition_metadata,
    ),
    _inline(
        "GET_TOPICS_OF_NAMESPACE",
        wire.GetTopics,
        lookups.topics_of_namespace,
        _namespace,
        requirements.LIST_TOPICS,
    ),
    _inline("WATCH_TOPIC_LIST", wire.WatchTopics, topic_watchers.watch, _namespace, requirements.LIST_TOPICS),
    _inline("WATCH_TOPIC_LIST_CLOSE", wire.EndWatch, topic_watchers.close, _region),
    # Schemas.
    _task(
        "GET_SCHEMA",
        wire.GetSchema,
        schemas.get_schema,
        _topic,
        requirements.READ_SCHEMA,
        _error_in(wire.GetSchemaResponse),
    ),
    _task(
        "GET_OR_CREATE_SCHEMA",
        wire.GetOrCreateSchema,
        schemas.get_or_create_schema,
        _topic,
        requirements.REGISTER_SCHEMA,
        _error_in(wire.GetOrCreateSchemaResponse),
        estimate_bytes=SCHEMA_REQUEST_BYTES,
    ),
    # Producers.
    _task(
        "PRODUCER",
        wire.CreateProducer,
        producers.create,
        _topic,
        requirements.PRODUCE,
        decode=decode_create_producer,
    ),
    CommandSpec(
        "SEND",
        decode_send,
        producers.send,
        producers.refuse_send,
        _of_producer,
        stage=Execution.ENTRY,
        handle_group=producers.send_group,
    ),
    _task("CLOSE_PRODUCER", wire.CloseProducer, producers.close, _of_producer, decode=decode_close_producer),
    # Consumers.
    _task("SUBSCRIBE", wire.Subscribe, consumers.subscribe, _topic, requirements.CONSUME),
    CommandSpec("FLOW", decode_flow, consumers.flow, None, consumers.topic_of_flow),
    CommandSpec(
        "ACK",
        decode_ack,
        acknowledgements.acknowledge,
        acknowledgements.refuse_acknowledgement,
        _of_consumer,
        handle_group=acknowledgements.acknowledge_group,
    ),
    _inline(
        "REDELIVER_UNACKNOWLEDGED_MESSAGES", wire.Redeliver, consumers.redeliver, _of_consumer, None, None
    ),
    _task("SEEK", wire.Seek, consumers.seek, _of_consumer),
    _task("UNSUBSCRIBE", wire.Unsubscribe, consumers.unsubscribe, _of_consumer),
    _task("CLOSE_CONSUMER", wire.CloseConsumer, consumers.close, _of_consumer),
    _task("GET_LAST_MESSAGE_ID", wire.GetLastMessageId, consumers.get_last_message_id, _of_consumer),
    _inline("CONSUMER_STATS", wire.ConsumerStats, consumers.stats, _of_consumer),
    # Transactions.
    _task(
        "TC_CLIENT_CONNECT_REQUEST",
        wire.ConnectCoordinator,
        transactions.connect,
        _coordinator,
        requirements.ANY_ROLE,
        _error_in(wire.CoordinatorConnected),
    ),
    _task(
        "NEW_TXN",
        wire.NewTransaction,
        transactions.begin,
        _coordinator,
        requirements.ANY_ROLE,
        _error_in(wire.NewTransactionResponse),
        decode=decode_new_transaction,
    ),
    _task(
        "ADD_PARTITION_TO_TXN",
        wire.AddPartitions,
        transactions.add_partitions,
        _transaction,
        requirements.ADD_PARTITIONS,
        partial(transactions.refuse, wire.AddPartitionsResponse),
        decode=decode_add_partitions,
    ),
    _task(
        "ADD_SUBSCRIPTION_TO_TXN",
        wire.AddSubscriptions,
        transactions.add_subscriptions,
        _transaction,
        requirements.ADD_SUBSCRIPTIONS,
        partial(transactions.refuse, wire.AddSubscriptionsResponse),
    ),
    _task(
        "END_TXN",
        wire.EndTransaction,
        transactions.end,
        _transaction,
        requirements.ANY_ROLE,
        partial(transactions.refuse, wire.EndTransactionResponse),
        decode=decode_end_transaction,
    ),
    # Requests that are always rejected.
    _inline("END_TXN_ON_PARTITION", wire.EndTransactionOnPartition, _end_by_another, _region),
    _inline("END_TXN_ON_SUBSCRIPTION", wire.EndTransactionOnSubscription, _end_by_another, _region),
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
"""Command type -> why it has no row. After CONNECT such commands, and types that are newer than this protocol, are
ignored with a line in the log, because newer clients may send them without checking the region's features."""

REPEATED: Final = tuple(
    replace(row, handle=producers.repeat_create) for row in COMMANDS if row.type == CommandType.PRODUCER
)

TABLE: Final = CommandTable(COMMANDS, NOT_OFFERED, REPEATED)
