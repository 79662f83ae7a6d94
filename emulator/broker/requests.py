"""What a client may ask for besides sending, receiving and acknowledging: one small function per command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.broker import consumer_requests, producer_requests
from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import CommandType

if TYPE_CHECKING:
    from emulator.broker.connection import ClientConnection


def lookup(connection: ClientConnection, command: pb.BaseCommand) -> None:
    """Every topic of a region lives in the region: always «connect here»."""
    request = command.lookupTopic
    answer = pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE)
    response = answer.lookupTopicResponse
    response.request_id = request.request_id
    try:
        connection.region.check_topic(request.topic)
    except ProtocolError as problem:
        response.response = pb.CommandLookupTopicResponse.Failed
        response.error = problem.code.value  # type: ignore[assignment]
        response.message = str(problem)
    else:
        response.response = pb.CommandLookupTopicResponse.Connect
        region = connection.region
        response.brokerServiceUrl = region.internal_url if connection.internal else region.service_url
        response.authoritative = True
        response.proxy_through_service_url = False
    connection.send(answer)


def partitioned_metadata(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.partitionMetadata
    answer = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA_RESPONSE)
    response = answer.partitionMetadataResponse
    response.request_id = request.request_id
    try:
        connection.region.check_topic(request.topic)
    except ProtocolError as problem:
        response.response = pb.CommandPartitionedTopicMetadataResponse.Failed
        response.error = problem.code.value  # type: ignore[assignment]
        response.message = str(problem)
    else:
        response.response = pb.CommandPartitionedTopicMetadataResponse.Success
        response.partitions = 0
    connection.send(answer)


def topics_of_namespace(connection: ClientConnection, command: pb.BaseCommand) -> None:
    request = command.getTopicsOfNamespace
    answer = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    answer.getTopicsOfNamespaceResponse.request_id = request.request_id
    answer.getTopicsOfNamespaceResponse.topics.extend(connection.region.topic_names(request.namespace))
    answer.getTopicsOfNamespaceResponse.filtered = False
    answer.getTopicsOfNamespaceResponse.changed = True
    connection.send(answer)


def get_schema(connection: ClientConnection, command: pb.BaseCommand) -> None:
    """No topic has a schema here; clients read TopicNotFound as just that."""
    answer = pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE)
    answer.getSchemaResponse.request_id = command.getSchema.request_id
    answer.getSchemaResponse.error_code = pb.TopicNotFound
    answer.getSchemaResponse.error_message = "topic has no schema"
    connection.send(answer)


def get_or_create_schema(connection: ClientConnection, command: pb.BaseCommand) -> None:
    answer = pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer.getOrCreateSchemaResponse.request_id = command.getOrCreateSchema.request_id
    answer.getOrCreateSchemaResponse.schema_version = b""
    connection.send(answer)


def _refused(request_field: str, message: str) -> Callable[[ClientConnection, pb.BaseCommand], None]:
    def refuse(connection: ClientConnection, command: pb.BaseCommand) -> None:
        request_id = getattr(command, request_field).request_id
        connection.send_error(request_id, ProtocolError(ServerError.NotAllowedError, message))

    return refuse


_NO_TRANSACTIONS = "Transactions are not enabled."

HANDLERS: dict[int, Callable[[ClientConnection, pb.BaseCommand], None]] = {
    CommandType.LOOKUP: lookup,
    CommandType.PARTITIONED_METADATA: partitioned_metadata,
    CommandType.GET_TOPICS_OF_NAMESPACE: topics_of_namespace,
    CommandType.GET_SCHEMA: get_schema,
    CommandType.GET_OR_CREATE_SCHEMA: get_or_create_schema,
    CommandType.PRODUCER: producer_requests.create,
    CommandType.CLOSE_PRODUCER: producer_requests.close,
    CommandType.SUBSCRIBE: consumer_requests.subscribe,
    CommandType.CLOSE_CONSUMER: consumer_requests.close,
    CommandType.UNSUBSCRIBE: consumer_requests.unsubscribe,
    CommandType.REDELIVER_UNACKNOWLEDGED_MESSAGES: consumer_requests.redeliver,
    CommandType.SEEK: consumer_requests.seek,
    CommandType.GET_LAST_MESSAGE_ID: consumer_requests.get_last_message_id,
    CommandType.CONSUMER_STATS: consumer_requests.stats,
    CommandType.WATCH_TOPIC_LIST: _refused("watchTopicList", "topic list watchers are not enabled"),
    CommandType.TC_CLIENT_CONNECT_REQUEST: _refused("tcClientConnectRequest", _NO_TRANSACTIONS),
    CommandType.NEW_TXN: _refused("newTxn", _NO_TRANSACTIONS),
    CommandType.ADD_PARTITION_TO_TXN: _refused("addPartitionToTxn", _NO_TRANSACTIONS),
    CommandType.ADD_SUBSCRIPTION_TO_TXN: _refused("addSubscriptionToTxn", _NO_TRANSACTIONS),
    CommandType.END_TXN: _refused("endTxn", _NO_TRANSACTIONS),
}
"""By command type. What is not here is ignored, as newer clients may send what we never offered."""
