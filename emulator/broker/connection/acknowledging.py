"""FLOW and ACK. A chunk of bytes contains many; its acknowledgements share one write of their cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.broker.authorization import ProtectedResource
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.core.transactions.names import TxnId
from emulator.core.transactions.pending_acks import ClaimedAck
from emulator.errors import ProtocolError, ServerError
from emulator.wire.codec import AckCommand
from emulator.wire.commands import AckResponse, error_fields

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection


def flow(connection: ClientConnection, command: tuple[int, int]) -> None:
    """(consumer id, permits)."""
    consumer_id, permits = command
    consumer = connection.consumers.open.get(consumer_id)
    if consumer is not None:
        consumer.subscription.flow(consumer, permits)


def acknowledge(connection: ClientConnection, command: AckCommand) -> None:
    consumer = connection.consumers.open.get(command.consumer_id)
    if consumer is None:
        if command.request_id is None:
            return  # its consumer may have been closed while the command was on its way
        sentence = f"no consumer {command.consumer_id} on this connection"
        raise ProtocolError(ServerError.ConsumerNotFound, sentence)
    if command.txn_least is not None:
        _acknowledge_in_transaction(consumer, TxnId(command.txn_most or 0, command.txn_least), command)
    else:
        consumer.subscription.acknowledge(consumer, command.ids, cumulative=command.cumulative)
    if command.request_id is not None:
        connection.reader.confirmations.setdefault(consumer.subscription, []).append(command)


def _acknowledge_in_transaction(consumer: ConnectedConsumer, txn: TxnId, command: AckCommand) -> None:
    ids = [
        (ledger, ClaimedAck(entry_id, ack_set, size))
        for (ledger, entry_id, ack_set), size in zip(command.ids, command.batch_sizes, strict=True)
    ]
    consumer.subscription.acknowledge_in_transaction(consumer, txn, ids, cumulative=command.cumulative)


def refuse_acknowledgement(command: AckCommand, problem: ProtocolError) -> bytes:
    """Return the error response; empty when the client expects none."""
    if command.request_id is None:
        return b""
    return AckResponse(command.consumer_id, command.request_id, **error_fields(problem)).encode()


def topic_of_flow(connection: ClientConnection, command: tuple[int, int]) -> ProtectedResource:
    return topic_of(connection, command[0])


def topic_of(connection: ClientConnection, consumer_id: int) -> ProtectedResource:
    consumer = connection.consumers.open.get(consumer_id)
    return ProtectedResource("topic", consumer.subscription.topic.full_name if consumer is not None else "?")
