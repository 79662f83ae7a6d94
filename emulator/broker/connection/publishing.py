"""SEND: add one entry to the batch of its topic.

A chunk of bytes contains many: nothing here creates an object or a task for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.broker.authorization import ProtectedResource
from emulator.errors import ProtocolError, ServerError
from emulator.wire.codec import SendCommand
from emulator.wire.commands import SendError

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection


def send(connection: ClientConnection, command: SendCommand, entry: bytes) -> None:
    producer = connection.producers.open.get(command.producer_id)
    if producer is None:
        _send_without_producer(connection, command)
        return
    connection.flow_control.pending_bytes += producer.publish(command, entry)
    connection.reader.touched[producer.topic] = None


def _send_without_producer(connection: ClientConnection, command: SendCommand) -> None:
    """Handle a SEND without a producer: the producer may have been closed while it was on its way."""
    if command.producer_id not in connection.producers.closed:
        raise ProtocolError(
            ServerError.UnknownError,
            f"send for unknown producer {command.producer_id}",
            closes_connection=True,
        )


def refuse_send(command: SendCommand, problem: ProtocolError) -> bytes:
    return SendError(command.producer_id, command.sequence_id, problem.code, str(problem)).encode()


def topic_of(connection: ClientConnection, producer_id: int) -> ProtectedResource:
    producer = connection.producers.open.get(producer_id)
    return ProtectedResource("topic", producer.topic.full_name if producer is not None else "?")
