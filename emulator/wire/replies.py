"""What a region says to a client, as values. Messages and receipts, of which there are many, are in `codec`.

A reply is the answer to a request and carries its id. Notices come unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from emulator.errors import ServerError
from emulator.model.values import Schema
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import CommandType, decode_command
from emulator.wire.commands import schema_of

NOWHERE: Final = 2**63
"""From here on an entry id says that there is no entry."""


class Done(NamedTuple):
    """SUCCESS, and whatever answers with nothing that a client of ours asks for."""

    request_id: int


class Refused(NamedTuple):
    """ERROR, and a lookup or acknowledgement that failed."""

    request_id: int
    code: ServerError
    message: str
    is_definite: bool
    """Whether it certainly did not happen."""


class ProducerOpened(NamedTuple):
    """PRODUCER_SUCCESS."""

    request_id: int
    name: str
    last_sequence_id: int
    topic_epoch: int | None
    schema_version: bytes
    """Of the schema it brought; empty: it brought none."""
    is_ready: bool
    """False: it stands in the waiting line, and hears again when it is its turn (PIP-68)."""


class LookedUp(NamedTuple):
    """LOOKUP_RESPONSE: where to connect to."""

    request_id: int
    service_url: str


class LastMessage(NamedTuple):
    """GET_LAST_MESSAGE_ID_RESPONSE."""

    request_id: int
    place: tuple[int, int, int] | None
    """(ledger, entry, batch index); None when there is none."""
    done: tuple[int, int] | None
    """(ledger, entry) up to which the asking consumer is done; None when the region does not say."""


class Partitions(NamedTuple):
    """PARTITIONED_METADATA_RESPONSE: how many; 0: it is not partitioned."""

    request_id: int
    partitions: int


class TopicsListed(NamedTuple):
    """GET_TOPICS_OF_NAMESPACE_RESPONSE and WATCH_TOPIC_LIST_SUCCESS."""

    request_id: int
    names: tuple[str, ...]
    hash: str
    """Of all names. Where it is the one that the client brought, they are not said again."""


class CoordinatorConnected(NamedTuple):
    """TC_CLIENT_CONNECT_RESPONSE."""

    request_id: int
    epoch: int | None
    """Granted to a client with a transaction key."""


class TransactionBegun(NamedTuple):
    """NEW_TXN_RESPONSE."""

    request_id: int
    most: int
    least: int


class SchemaFound(NamedTuple):
    """GET_SCHEMA_RESPONSE and GET_OR_CREATE_SCHEMA_RESPONSE."""

    request_id: int
    version: bytes
    schema: Schema | None
    """None: it was not asked for."""


Reply = (
    Done
    | Refused
    | ProducerOpened
    | LookedUp
    | LastMessage
    | Partitions
    | TopicsListed
    | CoordinatorConnected
    | TransactionBegun
    | SchemaFound
)


class SendRefused(NamedTuple):
    """SEND_ERROR: a notice to a producer."""

    producer_id: int
    sequence_id: int
    code: ServerError
    message: str


class ProducerClosed(NamedTuple):
    """CLOSE_PRODUCER: a notice."""

    producer_id: int


class ConsumerClosed(NamedTuple):
    """CLOSE_CONSUMER: a notice."""

    consumer_id: int


class ActiveChanged(NamedTuple):
    """ACTIVE_CONSUMER_CHANGE: a notice."""

    consumer_id: int
    is_active: bool


class TopicsChanged(NamedTuple):
    """WATCH_TOPIC_UPDATE: a notice."""

    watcher_id: int
    new: tuple[str, ...]
    deleted: tuple[str, ...]
    hash: str
    """Of all that there are now."""


class Connected(NamedTuple):
    """CONNECTED: a notice, for a connection has no request id."""

    max_message_bytes: int
    """0: it does not say."""


Notice = SendRefused | ProducerClosed | ConsumerClosed | ActiveChanged | TopicsChanged | Connected


def _done(command: pb.BaseCommand) -> Reply:
    return Done(command.success.request_id)


def _refused(command: pb.BaseCommand) -> Reply:
    body = command.error
    return Refused(body.request_id, ServerError(body.error), body.message, True)


def _producer_opened(command: pb.BaseCommand) -> Reply:
    body = command.producer_success
    epoch = body.topic_epoch if body.HasField("topic_epoch") else None
    return ProducerOpened(
        body.request_id,
        body.producer_name,
        body.last_sequence_id,
        epoch,
        body.schema_version,
        body.producer_ready,
    )


def _looked_up(command: pb.BaseCommand) -> Reply:
    body = command.lookupTopicResponse
    if body.response == pb.CommandLookupTopicResponse.Failed:
        return Refused(body.request_id, ServerError(body.error), body.message, True)
    return LookedUp(body.request_id, body.brokerServiceUrl)


def _last_message(command: pb.BaseCommand) -> Reply:
    body = command.getLastMessageIdResponse
    last = body.last_message_id
    place = None if last.entryId >= NOWHERE else (last.ledgerId, last.entryId, last.batch_index)
    if not body.HasField("consumer_mark_delete_position"):
        return LastMessage(body.request_id, place, None)
    cursor = body.consumer_mark_delete_position
    # Before the first entry of a log stands -1, which the wire has no sign for.
    entry = -1 if cursor.entryId >= NOWHERE else cursor.entryId
    return LastMessage(body.request_id, place, (cursor.ledgerId, entry))


def _acknowledged(command: pb.BaseCommand) -> Reply:
    body = command.ackResponse
    if body.HasField("error"):
        return Refused(body.request_id, ServerError(body.error), body.message, False)
    return Done(body.request_id)


def _partitions(command: pb.BaseCommand) -> Reply:
    body = command.partitionMetadataResponse
    if body.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
        return Refused(body.request_id, ServerError(body.error), body.message, True)
    return Partitions(body.request_id, body.partitions)


def _topics(command: pb.BaseCommand) -> Reply:
    body = command.getTopicsOfNamespaceResponse
    return TopicsListed(body.request_id, tuple(body.topics), body.topics_hash)


def _watching(command: pb.BaseCommand) -> Reply:
    body = command.watchTopicListSuccess
    return TopicsListed(body.request_id, tuple(body.topic), body.topics_hash)


_Answer = TypeVar(
    "_Answer",
    pb.CommandTcClientConnectResponse,
    pb.CommandNewTxnResponse,
    pb.CommandAddPartitionToTxnResponse,
    pb.CommandAddSubscriptionToTxnResponse,
    pb.CommandEndTxnResponse,
)


def _coordinated(
    body_of: Callable[[pb.BaseCommand], _Answer], accepted: Callable[[_Answer], Reply]
) -> Callable[[pb.BaseCommand], Reply]:
    """Reads what a transaction coordinator answers: all of its answers say no in the same way."""

    def read(command: pb.BaseCommand) -> Reply:
        body = body_of(command)
        if not body.HasField("error"):
            return accepted(body)
        code = ServerError(body.error)
        # What it could not store may be stored all the same.
        return Refused(body.request_id, code, body.message, code is not ServerError.PersistenceError)

    return read


def _coordinator_connected(body: pb.CommandTcClientConnectResponse) -> Reply:
    return CoordinatorConnected(body.request_id, body.epoch if body.HasField("epoch") else None)


def _begun(body: pb.CommandNewTxnResponse) -> Reply:
    return TransactionBegun(body.request_id, body.txnid_most_bits, body.txnid_least_bits)


def _schema(command: pb.BaseCommand) -> Reply:
    body = command.getSchemaResponse
    if body.HasField("error_code"):
        return Refused(body.request_id, ServerError(body.error_code), body.error_message, True)
    return SchemaFound(body.request_id, body.schema_version, schema_of(body))


def _schema_version(command: pb.BaseCommand) -> Reply:
    body = command.getOrCreateSchemaResponse
    if body.HasField("error_code"):
        return Refused(body.request_id, ServerError(body.error_code), body.error_message, False)
    return SchemaFound(body.request_id, body.schema_version, None)


_REPLIES: Final[dict[int, Callable[[pb.BaseCommand], Reply]]] = {
    CommandType.SUCCESS: _done,
    CommandType.ERROR: _refused,
    CommandType.PRODUCER_SUCCESS: _producer_opened,
    CommandType.LOOKUP_RESPONSE: _looked_up,
    CommandType.GET_LAST_MESSAGE_ID_RESPONSE: _last_message,
    CommandType.ACK_RESPONSE: _acknowledged,
    CommandType.PARTITIONED_METADATA_RESPONSE: _partitions,
    CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE: _topics,
    CommandType.WATCH_TOPIC_LIST_SUCCESS: _watching,
    CommandType.TC_CLIENT_CONNECT_RESPONSE: _coordinated(
        lambda command: command.tcClientConnectResponse, _coordinator_connected
    ),
    CommandType.NEW_TXN_RESPONSE: _coordinated(lambda command: command.newTxnResponse, _begun),
    CommandType.ADD_PARTITION_TO_TXN_RESPONSE: _coordinated(
        lambda command: command.addPartitionToTxnResponse, lambda body: Done(body.request_id)
    ),
    CommandType.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: _coordinated(
        lambda command: command.addSubscriptionToTxnResponse, lambda body: Done(body.request_id)
    ),
    CommandType.END_TXN_RESPONSE: _coordinated(
        lambda command: command.endTxnResponse, lambda body: Done(body.request_id)
    ),
    CommandType.GET_SCHEMA_RESPONSE: _schema,
    CommandType.GET_OR_CREATE_SCHEMA_RESPONSE: _schema_version,
}


def read_reply(type_: int, data: bytes) -> Reply | None:
    """The answer to a request; None: it is none, or not one that a client of ours asks for."""
    read = _REPLIES.get(type_)
    return None if read is None else read(decode_command(data))


def read_notice(type_: int, data: bytes) -> Notice | None:
    """What a region says unasked; None: nothing that a client of ours has to know."""
    command = decode_command(data)
    if type_ == CommandType.CONNECTED:
        return Connected(max(0, command.connected.max_message_size))
    if type_ == CommandType.SEND_ERROR:
        error = command.send_error
        return SendRefused(error.producer_id, error.sequence_id, ServerError(error.error), error.message)
    if type_ == CommandType.CLOSE_PRODUCER:
        return ProducerClosed(command.close_producer.producer_id)
    if type_ == CommandType.CLOSE_CONSUMER:
        return ConsumerClosed(command.close_consumer.consumer_id)
    if type_ == CommandType.ACTIVE_CONSUMER_CHANGE:
        change = command.active_consumer_change
        return ActiveChanged(change.consumer_id, change.is_active)
    if type_ == CommandType.WATCH_TOPIC_UPDATE:
        update = command.watchTopicUpdate
        new, deleted = tuple(update.new_topics), tuple(update.deleted_topics)
        return TopicsChanged(update.watcher_id, new, deleted, update.topics_hash)
    return None
