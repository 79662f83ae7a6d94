"""TC_CLIENT_CONNECT_REQUEST, NEW_TXN, ADD_PARTITION_TO_TXN, ADD_SUBSCRIPTION_TO_TXN, END_TXN."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from emulator.broker.connection.consumers import NAME_LENGTH_MAX
from emulator.broker.connection.dispatch import Work
from emulator.broker.connection.pending_responses import PendingResponse
from emulator.core.transactions.coordinator import REQUESTED
from emulator.core.transactions.journal_format import Holder, name_bytes
from emulator.core.transactions.keys import PROCESS_BYTES_MAX, client_text
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import check_key
from emulator.wire.codec_hot.transactions import (
    encode_add_partitions_response,
    encode_add_subscriptions_response,
    encode_end_transaction_response,
    encode_new_transaction_response,
)
from emulator.wire.commands import (
    AddPartitions,
    AddPartitionsResponse,
    AddSubscriptions,
    AddSubscriptionsResponse,
    ConnectCoordinator,
    CoordinatorConnected,
    EndTransaction,
    EndTransactionResponse,
    NewTransaction,
    error_fields,
)

if TYPE_CHECKING:
    from emulator.broker.connection.connection import ClientConnection, ServingRegion
    from emulator.broker.transactions.coordinator import RunningCoordinator


async def connect(connection: ClientConnection, command: ConnectCoordinator) -> None:
    coordinator = connection.region.coordinators.get_accepting(command.coordinator)
    if not command.key:
        connection.answer(CoordinatorConnected(command.request_id, None).encode())
        return
    lock = connection.transaction_keys.requests.setdefault(coordinator.number, asyncio.Lock())
    async with lock:  # of two concurrent requests the second one finds the grant of the first
        _check_key(connection, command)
        coordinator = connection.region.coordinators.get_accepting(command.coordinator)
        client = client_text(connection.client_version, connection.address)
        owner = connection.principal.acting
        epoch = await coordinator.keys.connect(
            owner, command.key, command.epoch, command.process, connection, client
        )
        holder = Holder(owner, command.key, epoch)
        connection.transaction_keys.held[command.coordinator] = holder
    connection.answer(CoordinatorConnected(command.request_id, epoch).encode())


def _check_key(connection: ClientConnection, command: ConnectCoordinator) -> None:
    try:
        check_key(command.key)
    except ValueError as problem:
        raise ProtocolError(ServerError.NotAllowedError, str(problem)) from None
    if name_bytes(command.process) > PROCESS_BYTES_MAX:
        sentence = f"the name of a client's process may have {PROCESS_BYTES_MAX} bytes in the log, quoted"
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    number = connection.region.coordinators.coordinator_of(command.key)
    if number != command.coordinator:
        sentence = (
            f"transaction key {command.key!r} is bound to coordinator {number}, not to {command.coordinator}"
        )
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    held = connection.transaction_keys.held.get(number)
    if held is not None and held.key != command.key:
        sentence = f"this connection already has transaction key {held.key!r} at coordinator {number}"
        raise ProtocolError(ServerError.NotAllowedError, sentence)


def begin(connection: ClientConnection, command: NewTransaction) -> Work:
    coordinator = connection.region.coordinators.get_accepting(command.coordinator)
    keyed = command.coordinator in connection.transaction_keys.requests
    if keyed or not coordinator.may_begin_at_once:
        return _begin_when_possible(connection, command)
    txn, written = coordinator.begin_at_once(command.timeout_ms, owner=connection.principal.acting)
    answer = encode_new_transaction_response(command.request_id, txn.most, txn.least)
    return PendingResponse(written, answer)


async def _begin_when_possible(connection: ClientConnection, command: NewTransaction) -> None:
    """Begin a transaction that belongs to a key, or that cannot begin at once."""
    lock = connection.transaction_keys.requests.get(command.coordinator)
    if lock is not None:
        await _wait_for_key(connection, command, lock)
    coordinator = connection.region.coordinators.get_accepting(command.coordinator)
    holder = connection.transaction_keys.held.get(command.coordinator)
    txn = await coordinator.begin(command.timeout_ms, holder, connection.principal.acting)
    connection.answer(encode_new_transaction_response(command.request_id, txn.most, txn.least))


async def _wait_for_key(connection: ClientConnection, command: NewTransaction, lock: asyncio.Lock) -> None:
    """Wait for the response to the connection's request of a key (INV-90). A transaction without the key could not be
    fenced, although its client requested one."""
    async with lock:
        if command.coordinator not in connection.transaction_keys.held:
            sentence = "the transaction key of this connection was refused"
            raise ProtocolError(ServerError.NotAllowedError, sentence)


def _owned(
    connection: ClientConnection, command: AddPartitions | AddSubscriptions | EndTransaction
) -> RunningCoordinator:
    """Return the coordinator of a transaction that the client may change: its own, or any one for a superuser.
    ProtocolError."""
    coordinator = connection.region.coordinators.get(command.most)
    security, role = connection.region.config.security, connection.principal.acting
    if security.authentication is not None and (
        security.authorization is None or role not in security.authorization.superusers
    ):
        coordinator.core.check_owner(command.least, role)
    return coordinator


def add_partitions(connection: ClientConnection, command: AddPartitions) -> PendingResponse:
    region = connection.region
    coordinator = _owned(connection, command)
    topics = [_participant_name(region, topic) for topic in command.topics]
    answer = encode_add_partitions_response(command.request_id, command.most, command.least)
    return PendingResponse(coordinator.add_partitions(command.least, topics), answer)


def add_subscriptions(connection: ClientConnection, command: AddSubscriptions) -> PendingResponse:
    region = connection.region
    coordinator = _owned(connection, command)
    named = [
        (_participant_name(region, topic), _checked_subscription(name))
        for topic, name in command.subscriptions
    ]
    answer = encode_add_subscriptions_response(command.request_id, command.most, command.least)
    return PendingResponse(coordinator.add_subscriptions(command.least, named), answer)


def _participant_name(region: ServingRegion, topic: str) -> str:
    """Return the full name of a participant. ProtocolError for a non-persistent topic, which cannot store messages
    until the commit."""
    name = region.check_topic(topic)
    if not name.is_persistent:
        raise ProtocolError(
            ServerError.NotAllowedError, f"{name} is not persistent: it cannot take part in a transaction"
        )
    return str(name)


def _checked_subscription(name: str) -> str:
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        sentence = (
            f"the name of a subscription must have 1 to {NAME_LENGTH_MAX:,} characters, it has {len(name):,}"
        )
        raise ProtocolError(ServerError.NotAllowedError, sentence)
    return name


def end(connection: ClientConnection, command: EndTransaction) -> PendingResponse:
    if command.commit is None:
        raise ProtocolError(ServerError.NotAllowedError, "END_TXN must say whether to commit or to abort")
    coordinator = _owned(connection, command)
    finished = coordinator.finish(command.least, commit=command.commit, why=REQUESTED)
    answer = encode_end_transaction_response(command.request_id, command.most, command.least)
    return PendingResponse(finished, answer)


def refuse(
    type_: type[AddPartitionsResponse | AddSubscriptionsResponse | EndTransactionResponse],
    command: AddPartitions | AddSubscriptions | EndTransaction,
    problem: ProtocolError,
) -> bytes:
    """Return the response to a rejected request."""
    return type_(command.request_id, command.most, command.least, **error_fields(problem)).encode()
