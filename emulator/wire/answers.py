"""What a broker says to its clients, as whole frames. Receipts and messages, of which there are many, are in `codec`.

Numbers may be signed; -1 travels as the protocol's 2**64 - 1 where a field is a u64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from emulator.errors import ProtocolError, ServerError
from emulator.model.values import Position, Schema
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.commands import HANDSHAKE_REQUEST_ID, PROTOCOL_VERSION, write_schema
from emulator.wire.frames import simple_frame
from emulator.wire.protobuf import MASK_64

SERVER_VERSION: Final = "Pulsar Server geoemu"

CODES: Final[Mapping[ServerError, pb.ServerError]] = {
    code: cast(pb.ServerError, pb.ServerError.Value(code.name)) for code in ServerError
}
"""Our error codes -> the protocol's: the only place where they meet."""


# The connection.


def connected(client_protocol_version: int, max_message_bytes: int) -> bytes:
    """CONNECTED, with the smaller of both protocol versions and the flags of what this broker can do."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.CONNECTED,
            connected=pb.CommandConnected(
                server_version=SERVER_VERSION,
                protocol_version=min(PROTOCOL_VERSION, client_protocol_version),
                max_message_size=max_message_bytes,
                feature_flags=pb.FeatureFlags(
                    supports_topic_watchers=True,
                    supports_get_partitioned_metadata_without_auto_creation=True,
                    supports_repl_dedup_by_lid_and_eid=True,
                ),
            ),
        )
    )


def auth_challenge(method: str, data: bytes) -> bytes:
    """AUTH_CHALLENGE: who connects is asked for a proof."""
    challenge = pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name=method, auth_data=data))
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))


def error(request_id: int, problem: ProtocolError) -> bytes:
    """ERROR: the request `request_id` was refused."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=request_id, error=CODES[problem.code], message=str(problem)),
        )
    )


def handshake_error(problem: ProtocolError) -> bytes:
    """ERROR of a connection that has not shaken hands; it is closed afterwards."""
    return error(HANDSHAKE_REQUEST_ID, problem)


def success(request_id: int) -> bytes:
    """SUCCESS."""
    return simple_frame(
        pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id))
    )


# Lookups.


def lookup_connect(request_id: int, service_url: str) -> bytes:
    """LOOKUP_RESPONSE: the topic is served at `service_url`."""
    return _lookup(
        pb.CommandLookupTopicResponse(
            request_id=request_id,
            response=pb.CommandLookupTopicResponse.Connect,
            brokerServiceUrl=service_url,
            authoritative=True,
            proxy_through_service_url=False,
        )
    )


def lookup_failed(request_id: int, problem: ProtocolError) -> bytes:
    """LOOKUP_RESPONSE Failed."""
    return _lookup(
        pb.CommandLookupTopicResponse(
            request_id=request_id,
            response=pb.CommandLookupTopicResponse.Failed,
            error=CODES[problem.code],
            message=str(problem),
        )
    )


def _lookup(body: pb.CommandLookupTopicResponse) -> bytes:
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=body))


def partitions(request_id: int, count: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE; 0 partitions for a topic that is not partitioned."""
    return _partitions(
        pb.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
            partitions=count,
        )
    )


def partitions_failed(request_id: int, problem: ProtocolError) -> bytes:
    """PARTITIONED_METADATA_RESPONSE Failed."""
    return _partitions(
        pb.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            response=pb.CommandPartitionedTopicMetadataResponse.Failed,
            error=CODES[problem.code],
            message=str(problem),
        )
    )


def _partitions(body: pb.CommandPartitionedTopicMetadataResponse) -> bytes:
    type_ = pb.BaseCommand.PARTITIONED_METADATA_RESPONSE
    return simple_frame(pb.BaseCommand(type=type_, partitionMetadataResponse=body))


# Schemas.


def schema_failed(request_id: int, problem: ProtocolError) -> bytes:
    """GET_SCHEMA_RESPONSE with an error; clients read TopicNotFound as "no schema"."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_SCHEMA_RESPONSE,
            getSchemaResponse=pb.CommandGetSchemaResponse(
                request_id=request_id, error_code=CODES[problem.code], error_message=str(problem)
            ),
        )
    )


def schema(request_id: int, name: str, found: Schema, version: bytes) -> bytes:
    """GET_SCHEMA_RESPONSE."""
    body = pb.CommandGetSchemaResponse(request_id=request_id, schema_version=version)
    write_schema(body.schema, name, found)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=body))


def schema_version(request_id: int, version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE; an empty version says "no schema"."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
            getOrCreateSchemaResponse=pb.CommandGetOrCreateSchemaResponse(
                request_id=request_id, schema_version=version
            ),
        )
    )


def schema_version_failed(request_id: int, problem: ProtocolError) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE with an error."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
            getOrCreateSchemaResponse=pb.CommandGetOrCreateSchemaResponse(
                request_id=request_id, error_code=CODES[problem.code], error_message=str(problem)
            ),
        )
    )


# Producers.


def producer_success(
    request_id: int,
    producer_name: str,
    last_sequence_id: int,
    topic_epoch: int | None = None,
    *,
    schema_version: bytes = b"",
) -> bytes:
    """PRODUCER_SUCCESS. `last_sequence_id` is the last one known of this name, -1 for none. `topic_epoch`: where
    exclusive access was asked for (PIP-68)."""
    return _producer_success(
        pb.CommandProducerSuccess(
            request_id=request_id,
            producer_name=producer_name,
            last_sequence_id=last_sequence_id,
            schema_version=schema_version,
            producer_ready=True,
            topic_epoch=topic_epoch,
        )
    )


def producer_waits(request_id: int, producer_name: str) -> bytes:
    """PRODUCER_SUCCESS that says: not yet. Another one with the same request id follows when it is its turn."""
    return _producer_success(
        pb.CommandProducerSuccess(
            request_id=request_id,
            producer_name=producer_name,
            last_sequence_id=-1,
            schema_version=b"",
            producer_ready=False,
        )
    )


def _producer_success(body: pb.CommandProducerSuccess) -> bytes:
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS, producer_success=body))


def send_error(producer_id: int, sequence_id: int, problem: ProtocolError) -> bytes:
    """SEND_ERROR: one SEND was refused."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.SEND_ERROR,
            send_error=pb.CommandSendError(
                producer_id=producer_id,
                sequence_id=sequence_id,
                error=CODES[problem.code],
                message=str(problem),
            ),
        )
    )


def close_producer(producer_id: int) -> bytes:
    """CLOSE_PRODUCER: the client creates it again and sends again what has no receipt."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_PRODUCER,
            close_producer=pb.CommandCloseProducer(producer_id=producer_id, request_id=HANDSHAKE_REQUEST_ID),
        )
    )


# Consumers.


def close_consumer(consumer_id: int) -> bytes:
    """CLOSE_CONSUMER: the client subscribes again."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.CLOSE_CONSUMER,
            close_consumer=pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=HANDSHAKE_REQUEST_ID),
        )
    )


def reached_end_of_topic(consumer_id: int) -> bytes:
    """REACHED_END_OF_TOPIC: the consumer has everything, and nothing more will come."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.REACHED_END_OF_TOPIC,
            reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=consumer_id),
        )
    )


def active_consumer_change(consumer_id: int, is_active: bool) -> bytes:
    """ACTIVE_CONSUMER_CHANGE."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.ACTIVE_CONSUMER_CHANGE,
            active_consumer_change=pb.CommandActiveConsumerChange(
                consumer_id=consumer_id, is_active=is_active
            ),
        )
    )


def acknowledged(consumer_id: int, request_id: int) -> bytes:
    """ACK_RESPONSE: the acknowledgement is durable."""
    body = pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ackResponse=body))


def acknowledgement_failed(consumer_id: int, request_id: int, problem: ProtocolError) -> bytes:
    """ACK_RESPONSE with an error."""
    body = pb.CommandAckResponse(
        consumer_id=consumer_id, request_id=request_id, error=CODES[problem.code], message=str(problem)
    )
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ackResponse=body))


def last_message_id(
    request_id: int, last: Position, partition: int, batch_index: int, mark_delete: Position
) -> bytes:
    """GET_LAST_MESSAGE_ID_RESPONSE. `last` is (-1, -1) when there is no message, `batch_index` -1 for none,
    `mark_delete` is the asking consumer's."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
            getLastMessageIdResponse=pb.CommandGetLastMessageIdResponse(
                request_id=request_id,
                last_message_id=pb.MessageIdData(
                    ledgerId=last.ledger & MASK_64,
                    entryId=last.entry & MASK_64,
                    partition=partition,
                    batch_index=batch_index,
                ),
                consumer_mark_delete_position=pb.MessageIdData(
                    ledgerId=mark_delete.ledger & MASK_64, entryId=mark_delete.entry & MASK_64
                ),
            ),
        )
    )


def consumer_stats(
    request_id: int,
    *,
    consumer_name: str,
    subscription_type: str,
    address: str,
    available_permits: int,
    unacknowledged_messages: int,
    is_blocked: bool,
    backlog_entries: int,
) -> bytes:
    """CONSUMER_STATS_RESPONSE."""
    return simple_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.CONSUMER_STATS_RESPONSE,
            consumerStatsResponse=pb.CommandConsumerStatsResponse(
                request_id=request_id,
                consumerName=consumer_name,
                type=subscription_type,
                address=address,
                availablePermits=available_permits,
                unackedMessages=unacknowledged_messages,
                blockedConsumerOnUnackedMsgs=is_blocked,
                msgBacklog=backlog_entries,
            ),
        )
    )
