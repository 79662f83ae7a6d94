"""The next task of a key receives no message that the task before it processed, even if that commit is decided and not
applied yet: the region died in between, and cannot reach the subscription at once (INV-83)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from emulator.broker.region import Region
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.transactions import key_registry
from emulator.broker.transactions.completion import RETRY_SECONDS
from emulator.client import Client, ClientError, Consumer, ConsumerType, InitialPosition, Message, Transaction
from emulator.errors import ProtocolError, ServerError
from emulator.model.transaction_names import TransactionStatus
from tests.broker.regions import Regions, regions, until
from tests.broker.transactions.test_client_transactions import TOPIC, keyed, status, stored

MESSAGES = [b"%d" % number for number in range(5)]
PROCESSED = 3


@pytest.fixture(autouse=True)
def _newcomers_wait_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_registry, "FENCE_SECONDS", 0.05)


class Unreachable:
    """Subscriptions receive no transaction's end before `set`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.refused = 0
        really = Subscription.end_subscription

        async def ended(subscription: Subscription, *arguments: object) -> None:
            if not self.reached.is_set():
                self.refused += 1
                raise ProtocolError(ServerError.ServiceNotReady, "of a test")
            await really(subscription, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Subscription, "end_subscription", ended)


async def in_order(client: Client) -> Consumer:
    return await client.subscribe(
        "orders", "s", type_=ConsumerType.FAILOVER, initial_position=InitialPosition.EARLIEST
    )


async def processed(client: Client) -> Transaction:
    """Everything but the end."""
    transaction = await client.new_transaction()
    consumer, target = await in_order(client), await client.producer("bills")
    for _ in range(PROCESSED):
        message = await consumer.receive()
        await target.send(message.payload, transaction=transaction)
    await consumer.acknowledge_cumulative(message, transaction=transaction)
    return transaction


async def acknowledge_upto(message: Message, consumer: Consumer, transaction: Transaction) -> None:
    """Retry while another transaction holds any of it: an aborted one's messages may be redelivered before it is
    released."""
    while True:
        try:
            await consumer.acknowledge_cumulative(message, transaction=transaction)
            return
        except ClientError as refused:
            if refused.code is not ServerError.TransactionConflict:
                raise
        await asyncio.sleep(RETRY_SECONDS)


@contextlib.asynccontextmanager
async def with_messages() -> AsyncIterator[Regions]:
    async with regions("us") as world:
        async with world.client("us") as client:
            source = await client.producer("orders")
            for payload in MESSAGES:
                await source.send(payload)
        yield world


def subscription(region: Region, topic: str = TOPIC) -> Subscription:
    return region.directory.serving[topic].subscriptions["s"]


def wants_messages(region: Region, topic: str = TOPIC) -> bool:
    """Return whether the active consumer has permits left, so that every available message was delivered."""
    active = subscription(region, topic).dispatcher.strategy.active
    return active is not None and active.can_receive


async def test_a_successor_receives_the_rest_once_the_acknowledgement_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with with_messages() as world:
        unreachable, first = Unreachable(monkeypatch), keyed(world)
        transaction = await processed(first)
        ending = asyncio.ensure_future(transaction.commit())
        await until(lambda: unreachable.refused > 0)  # so the commit is decided and durable
        await first.close()
        ending.cancel()
        await world.crash("us")
        await world.start("us")
        async with keyed(world) as second:
            await second.new_transaction()
            consumer = await in_order(second)
            await until(lambda: wants_messages(world.running["us"]))
            assert status(world, transaction) is TransactionStatus.COMMITTING
            unreachable.reached.set()
            left = [(await consumer.receive()).payload for _ in MESSAGES[PROCESSED:]]
            assert left == MESSAGES[PROCESSED:]
            assert await stored(second, "bills") == MESSAGES[:PROCESSED]


async def test_a_successor_receives_everything_that_an_aborted_transaction_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with with_messages() as world:
        unreachable = Unreachable(monkeypatch)
        async with keyed(world) as first, keyed(world) as second:
            transaction = await processed(first)
            await second.new_transaction()
            await first.close()
            consumer = await in_order(second)
            assert status(world, transaction) is TransactionStatus.ABORTING
            assert [(await consumer.receive()).payload for _ in MESSAGES] == MESSAGES
            assert unreachable.refused > 0


async def test_messages_held_by_an_open_transaction_are_redelivered_after_a_failover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As upstream, which has no keys (P4)."""
    async with with_messages() as world, world.client("us") as first, world.client("us") as second:
        await processed(first)
        consumer = await in_order(second)
        for one in list(subscription(world.running["us"]).consumers.values()):
            if one.state is subscription(world.running["us"]).dispatcher.strategy.active:
                one.connection.abort()
        assert (await consumer.receive()).payload == MESSAGES[0]
