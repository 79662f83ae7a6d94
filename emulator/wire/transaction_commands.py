"""What clients ask a transaction coordinator for, as values, and what it answers, as whole frames.

Transaction ids are (most, least) as `core.transactions.status.TxnId` has them; the wire knows them as two numbers.
The fields of transaction keys have private numbers, kept at the head of `pulsar.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.answers import CODES
from emulator.wire.codec import decode_command
from emulator.wire.frames import simple_frame
from emulator.wire.protobuf import MASK_64
from emulator.wire.transaction_requests import NO_EPOCH


@dataclass(frozen=True, slots=True)
class ConnectCoordinator:
    """TC_CLIENT_CONNECT_REQUEST."""

    request_id: int
    coordinator: int
    key: str
    """Transaction key; empty: none."""
    epoch: int
    """Signed. Of the key's last connection that this client knows of."""
    process: str
    """What the client calls itself, the same for as long as it lives; empty: nothing."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).tcClientConnectRequest
        return cls(
            body.request_id,
            body.tc_id,
            body.transaction_key,
            signed(body.transaction_key_epoch) if body.HasField("transaction_key_epoch") else NO_EPOCH,
            body.transaction_key_process,
        )


@dataclass(frozen=True, slots=True)
class NewTransaction:
    """NEW_TXN."""

    request_id: int
    coordinator: int
    timeout_ms: int

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).newTxn
        return cls(body.request_id, body.tc_id, body.txn_ttl_seconds)


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """ADD_PARTITION_TO_TXN."""

    request_id: int
    most: int
    least: int
    topics: tuple[str, ...]

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).addPartitionToTxn
        return cls(body.request_id, body.txnid_most_bits, body.txnid_least_bits, tuple(body.partitions))


@dataclass(frozen=True, slots=True)
class AddSubscriptions:
    """ADD_SUBSCRIPTION_TO_TXN."""

    request_id: int
    most: int
    least: int
    subscriptions: tuple[tuple[str, str], ...]
    """(topic, subscription)."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).addSubscriptionToTxn
        named = tuple((each.topic, each.subscription) for each in body.subscription)
        return cls(body.request_id, body.txnid_most_bits, body.txnid_least_bits, named)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """END_TXN."""

    request_id: int
    most: int
    least: int
    commit: bool | None
    """None: the client does not say."""

    @classmethod
    def read(cls, command: bytes) -> Self:
        body = decode_command(command).endTxn
        commit = body.txn_action == pb.COMMIT if body.HasField("txn_action") else None
        return cls(body.request_id, body.txnid_most_bits, body.txnid_least_bits, commit)


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


# Answers.


def connected(request_id: int, epoch: int | None) -> bytes:
    """TC_CLIENT_CONNECT_RESPONSE. `epoch`: granted to a client with a key."""
    body = pb.CommandTcClientConnectResponse(request_id=request_id)
    if epoch is not None:
        body.epoch = epoch & MASK_64
    return simple_frame(
        pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=body)
    )


def connect_refused(command: ConnectCoordinator, problem: ProtocolError) -> bytes:
    body = pb.CommandTcClientConnectResponse(
        request_id=command.request_id, error=CODES[problem.code], message=str(problem)
    )
    return simple_frame(
        pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=body)
    )


def begun(request_id: int, most: int, least: int) -> bytes:
    """NEW_TXN_RESPONSE."""
    body = pb.CommandNewTxnResponse(request_id=request_id, txnid_most_bits=most, txnid_least_bits=least)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=body))


def begin_refused(command: NewTransaction, problem: ProtocolError) -> bytes:
    body = pb.CommandNewTxnResponse(
        request_id=command.request_id, error=CODES[problem.code], message=str(problem)
    )
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=body))


def partitions_added(command: AddPartitions, problem: ProtocolError | None = None) -> bytes:
    """ADD_PARTITION_TO_TXN_RESPONSE."""
    body = pb.CommandAddPartitionToTxnResponse(
        request_id=command.request_id, txnid_most_bits=command.most, txnid_least_bits=command.least
    )
    _tell(body, problem)
    type_ = pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE
    return simple_frame(pb.BaseCommand(type=type_, addPartitionToTxnResponse=body))


def subscriptions_added(command: AddSubscriptions, problem: ProtocolError | None = None) -> bytes:
    """ADD_SUBSCRIPTION_TO_TXN_RESPONSE."""
    body = pb.CommandAddSubscriptionToTxnResponse(
        request_id=command.request_id, txnid_most_bits=command.most, txnid_least_bits=command.least
    )
    _tell(body, problem)
    type_ = pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE
    return simple_frame(pb.BaseCommand(type=type_, addSubscriptionToTxnResponse=body))


def ended(command: EndTransaction, problem: ProtocolError | None = None) -> bytes:
    """END_TXN_RESPONSE."""
    body = pb.CommandEndTxnResponse(
        request_id=command.request_id, txnid_most_bits=command.most, txnid_least_bits=command.least
    )
    _tell(body, problem)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.END_TXN_RESPONSE, endTxnResponse=body))


def _tell(
    body: pb.CommandAddPartitionToTxnResponse
    | pb.CommandAddSubscriptionToTxnResponse
    | pb.CommandEndTxnResponse,
    problem: ProtocolError | None,
) -> None:
    if problem is not None:
        body.error = CODES[problem.code]
        body.message = str(problem)
