"""Requests to transaction coordinators, over a raw connection."""

from __future__ import annotations

from emulator.model.transaction_names import TransactionStatus, TxnId
from emulator.storage.memory import MemoryStore
from emulator.wire import pulsar_pb2 as pb
from tests.broker.connection.raw import RawClient
from tests.broker.regions import Regions

TOPIC = "persistent://public/default/orders"
KEY = "task"
NO_EPOCH = 2**64 - 1


def home(world: Regions, key: str = KEY) -> int:
    """Return the number of the coordinator that is responsible for a transaction key."""
    return world.running["us"].coordinators.coordinator_of(key)


def status(world: Regions, txn: pb.CommandNewTxnResponse) -> TransactionStatus | None:
    return world.running["us"].coordinators.status(TxnId(txn.txnid_most_bits, txn.txnid_least_bits))


def store_of(world: Regions) -> MemoryStore:
    store = world.running["us"].store
    assert isinstance(store, MemoryStore)
    return store


def ids(txn: pb.CommandNewTxnResponse) -> dict[str, int]:
    return {"txnid_most_bits": txn.txnid_most_bits, "txnid_least_bits": txn.txnid_least_bits}


def connect_command(
    coordinator: int, key: str = "", epoch: int = -1, process: str = "", request_id: int = 7
) -> pb.BaseCommand:
    body = pb.CommandTcClientConnectRequest(request_id=request_id, tc_id=coordinator)
    if key:
        body.transaction_key = key
        body.transaction_key_epoch = epoch & NO_EPOCH
        body.transaction_key_process = process
    type_ = pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST
    return pb.BaseCommand(type=type_, tcClientConnectRequest=body)


async def connect(
    client: RawClient, coordinator: int = 0, *, key: str = "", epoch: int = -1, process: str = ""
) -> pb.CommandTcClientConnectResponse:
    command = connect_command(coordinator, key, epoch, process)
    return (await client.ask(command)).tcClientConnectResponse


def begin_command(coordinator: int, timeout_ms: int = 60_000) -> pb.BaseCommand:
    body = pb.CommandNewTxn(request_id=8, txn_ttl_seconds=timeout_ms, tc_id=coordinator)
    return pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=body)


async def begin(
    client: RawClient, coordinator: int = 0, timeout_ms: int = 60_000
) -> pb.CommandNewTxnResponse:
    return (await client.ask(begin_command(coordinator, timeout_ms))).newTxnResponse


async def add_partition(
    client: RawClient, txn: pb.CommandNewTxnResponse, topic: str = TOPIC
) -> pb.CommandAddPartitionToTxnResponse:
    body = pb.CommandAddPartitionToTxn(request_id=9, partitions=[topic], **ids(txn))
    command = pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=body)
    return (await client.ask(command)).addPartitionToTxnResponse


async def add_subscription(
    client: RawClient, txn: pb.CommandNewTxnResponse, subscription: str, topic: str = TOPIC
) -> pb.CommandAddSubscriptionToTxnResponse:
    named = pb.Subscription(topic=topic, subscription=subscription)
    body = pb.CommandAddSubscriptionToTxn(request_id=9, subscription=[named], **ids(txn))
    command = pb.BaseCommand(type=pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=body)
    return (await client.ask(command)).addSubscriptionToTxnResponse


def end_command(txn: pb.CommandNewTxnResponse, *, commit: bool) -> pb.BaseCommand:
    action = pb.COMMIT if commit else pb.ABORT
    body = pb.CommandEndTxn(request_id=10, txn_action=action, **ids(txn))
    return pb.BaseCommand(type=pb.BaseCommand.END_TXN, endTxn=body)


async def end(
    client: RawClient, txn: pb.CommandNewTxnResponse, *, commit: bool = True
) -> pb.CommandEndTxnResponse:
    return (await client.ask(end_command(txn, commit=commit))).endTxnResponse
