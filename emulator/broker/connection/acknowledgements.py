"""ACK: the acknowledgements of a consumer, in transactions or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.core.transactions.pending_acks import ClaimedAck
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import TxnId
from emulator.wire.codec_hot.ack_groups import take_acks
from emulator.wire.codec_hot.consuming import AckCommand
from emulator.wire.commands import AckResponse, error_fields
from emulator.wire.frames import Frame, is_followed

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection
    from emulator.broker.subscription.consumer import ConnectedConsumer


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


def acknowledge_group(
    connection: ClientConnection, command: AckCommand, frames: Sequence[Frame], index: int
) -> int:
    """Apply the group of plain acknowledgements that begins with an ACK. Return their number; 0: `acknowledge` has to
    handle this ACK alone. It also does if no other one would be in the group, which is quicker."""
    if not is_followed(frames, index):
        return 0
    group = take_acks(command, frames, index)
    if group is None:
        return 0
    consumer = connection.consumers.open.get(command.consumer_id)
    if consumer is not None:
        consumer.subscription.acknowledge_runs(consumer, group.ledger_id, group.runs)
    return group.commands


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
