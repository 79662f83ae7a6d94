"""What a region says to a client, as values. Messages and receipts, of which there are many, are in `codec`.

A reply is the answer to a request and carries its id. Notices come unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from emulator.errors import ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec import CommandType, decode_command

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


Reply = Done | Refused | ProducerOpened | LookedUp | LastMessage


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


class Connected(NamedTuple):
    """CONNECTED: a notice, for a connection has no request id."""


Notice = SendRefused | ProducerClosed | ConsumerClosed | ActiveChanged | Connected


def _done(command: pb.BaseCommand) -> Reply:
    return Done(command.success.request_id)


def _refused(command: pb.BaseCommand) -> Reply:
    body = command.error
    return Refused(body.request_id, ServerError(body.error), body.message, True)


def _producer_opened(command: pb.BaseCommand) -> Reply:
    body = command.producer_success
    epoch = body.topic_epoch if body.HasField("topic_epoch") else None
    return ProducerOpened(
        body.request_id, body.producer_name, body.last_sequence_id, epoch, body.producer_ready
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
    return LastMessage(body.request_id, place)


def _acknowledged(command: pb.BaseCommand) -> Reply:
    body = command.ackResponse
    if body.HasField("error"):
        return Refused(body.request_id, ServerError(body.error), body.message, False)
    return Done(body.request_id)


_REPLIES: Final[dict[int, Callable[[pb.BaseCommand], Reply]]] = {
    CommandType.SUCCESS: _done,
    CommandType.ERROR: _refused,
    CommandType.PRODUCER_SUCCESS: _producer_opened,
    CommandType.LOOKUP_RESPONSE: _looked_up,
    CommandType.GET_LAST_MESSAGE_ID_RESPONSE: _last_message,
    CommandType.ACK_RESPONSE: _acknowledged,
}


def read_reply(type_: int, data: bytes) -> Reply | None:
    """The answer to a request; None: it is none, or not one that a client of ours asks for."""
    read = _REPLIES.get(type_)
    return None if read is None else read(decode_command(data))


def read_notice(type_: int, data: bytes) -> Notice | None:
    """What a region says unasked; None: nothing that a client of ours has to know."""
    if type_ == CommandType.CONNECTED:
        return Connected()
    command = decode_command(data)
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
    return None
