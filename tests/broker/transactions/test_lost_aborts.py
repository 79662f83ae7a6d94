"""A subscription that loses an abort it received: its topic is loaded again from what the store still has."""

from __future__ import annotations

import asyncio

import pytest

from emulator.broker.region import Region
from emulator.broker.topic.transactions import TopicTransactions
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import PendingAckKey
from emulator.model.transaction_names import TxnId
from emulator.storage.memory import MemoryStore
from tests.broker.regions import regions, until
from tests.broker.transactions.test_client_transactions import TOPIC, shared, status
from tests.broker.transactions.test_successors import subscription

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions


def _fail_one_deletion(region: Region, prefix: str) -> None:
    store = region.store
    assert isinstance(store, MemoryStore)
    really = store.delete

    def failing(key: str) -> asyncio.Future[None]:
        if not key.startswith(prefix):
            return really(key)
        store.delete = really  # type: ignore[method-assign]
        return store.failed_future(StorageError("of a test", definite=True))

    store.delete = failing  # type: ignore[method-assign]


async def test_a_subscription_redelivers_what_a_lost_abort_had_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another participant has not responded: so the abort is decided and not over when the topic is loaded. It is over
    when the coordinator, which had its response from here, has nothing more to send."""
    may_end, really = asyncio.Event(), TopicTransactions.end_partition

    def end_partition(transactions: TopicTransactions, *arguments: object) -> asyncio.Future[None]:
        if not may_end.is_set():
            raise ProtocolError(ServerError.ServiceNotReady, "of a test")
        return really(transactions, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TopicTransactions, "end_partition", end_partition)

    async with regions("us") as world, world.client("us") as client:
        region = world.running["us"]
        source, target = await client.producer("orders"), await client.producer("bills")
        consumer = await shared(client)
        await source.send(b"it")
        message = await consumer.receive()
        transaction = await client.new_transaction()
        await target.send(b"result", transaction=transaction)
        await consumer.acknowledge(message, transaction=transaction)
        before = subscription(region)
        _fail_one_deletion(region, PendingAckKey.prefix(TOPIC))
        ending = asyncio.ensure_future(transaction.abort())
        await until(lambda: _is_loaded_again(region, before, transaction.id))
        may_end.set()
        await ending
        assert (await consumer.receive()).payload == b"it"
        assert status(world, transaction) is not None


def _is_loaded_again(region: Region, before: object, txn: TxnId) -> bool:
    topic = region.directory.serving.get(TOPIC)
    if topic is None or topic.subscriptions["s"] is before:
        return False
    pending = topic.subscriptions["s"].pending_acks
    return pending is not None and txn in pending.acks.by_txn
