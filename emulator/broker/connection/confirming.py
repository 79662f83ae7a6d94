"""Responses to acknowledgements that request one: one write of the cursor for all of a chunk."""

from __future__ import annotations

from emulator.broker.connection.dispatch import CommandingConnection, refuse
from emulator.broker.subscription.consumer import SubscriptionOfConsumer
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.wire.codec import AckCommand, CommandType, encode_ack_response


async def confirm(
    connection: CommandingConnection, subscription: SubscriptionOfConsumer, commands: list[AckCommand]
) -> None:
    """Respond to acknowledgements once the cursor that includes them is durable."""
    try:
        await subscription.persisted()
    except StorageError as failure:
        problem = ProtocolError(ServerError.PersistenceError, str(failure))
        for command in commands:
            refuse(connection, connection.table.rows[CommandType.ACK], command, problem)
        return
    confirmed = [
        encode_ack_response(command.consumer_id, command.request_id)
        for command in commands
        if command.request_id is not None
    ]
    connection.answer(b"".join(confirmed))
