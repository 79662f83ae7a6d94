"""What a client asks of transaction coordinators, as whole frames. Transactions are (most, least)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.frames import simple_frame
from emulator.wire.protobuf import MASK_64

Txn = tuple[int, int]
NO_EPOCH: Final = -1
"""What a client says that was granted no epoch of its key yet."""


def connect(
    request_id: int, coordinator: int, *, key: str = "", epoch: int = NO_EPOCH, process: str = ""
) -> bytes:
    """TC_CLIENT_CONNECT_REQUEST. With a key: the epoch of its last connection (-1: none), and what the client calls
    itself."""
    body = pb.CommandTcClientConnectRequest(request_id=request_id, tc_id=coordinator)
    if key:
        body.transaction_key = key
        body.transaction_key_epoch = epoch & MASK_64
        body.transaction_key_process = process
    type_ = pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST
    return simple_frame(pb.BaseCommand(type=type_, tcClientConnectRequest=body))


def begin(request_id: int, coordinator: int, timeout_ms: int) -> bytes:
    """NEW_TXN."""
    body = pb.CommandNewTxn(request_id=request_id, txn_ttl_seconds=timeout_ms, tc_id=coordinator)
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=body))


def add_partitions(request_id: int, txn: Txn, topics: Sequence[str]) -> bytes:
    """ADD_PARTITION_TO_TXN."""
    most, least = txn
    body = pb.CommandAddPartitionToTxn(
        request_id=request_id, txnid_most_bits=most, txnid_least_bits=least, partitions=topics
    )
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=body))


def add_subscription(request_id: int, txn: Txn, topic: str, subscription: str) -> bytes:
    """ADD_SUBSCRIPTION_TO_TXN."""
    most, least = txn
    body = pb.CommandAddSubscriptionToTxn(request_id=request_id, txnid_most_bits=most, txnid_least_bits=least)
    body.subscription.add(topic=topic, subscription=subscription)
    type_ = pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN
    return simple_frame(pb.BaseCommand(type=type_, addSubscriptionToTxn=body))


def end(request_id: int, txn: Txn, *, commit: bool) -> bytes:
    """END_TXN."""
    most, least = txn
    body = pb.CommandEndTxn(
        request_id=request_id,
        txnid_most_bits=most,
        txnid_least_bits=least,
        txn_action=pb.COMMIT if commit else pb.ABORT,
    )
    return simple_frame(pb.BaseCommand(type=pb.BaseCommand.END_TXN, endTxn=body))
