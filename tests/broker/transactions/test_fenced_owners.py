"""An exclusive owner that loses its topic loses its transactions there."""

from __future__ import annotations

import pytest

from emulator.client import ClientError
from emulator.model.transaction_names import TransactionStatus
from emulator.model.values import AccessMode
from tests.broker.regions import regions, until
from tests.broker.topic.test_transaction_buffer import readable
from tests.broker.transactions.controlled_coordinator import TOPIC


async def test_a_fenced_owner_s_transaction_is_aborted_and_the_next_one_s_messages_are_readable() -> None:
    async with regions("us") as world, world.client("us") as first, world.client("us") as second:
        owner = await first.producer(TOPIC, name="first", access_mode=AccessMode.EXCLUSIVE)
        transaction = await first.new_transaction()
        await owner.send(b"no", transaction=transaction)
        taker = await second.producer(TOPIC, name="second", access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)
        await taker.send(b"yes")
        authority = world.running["us"].coordinators
        await until(lambda: authority.status(transaction.id) is TransactionStatus.ABORTED, 30)
        assert await readable(world) == [b"yes"]
        with pytest.raises(ClientError):
            await transaction.commit()


async def test_an_owner_s_transaction_is_aborted_when_another_producer_gets_the_topic_after_a_kill() -> None:
    async with regions("us", exclusive_grace_period_ms=50) as world, world.client("us") as second:
        async with world.client("us") as first:
            owner = await first.producer(TOPIC, name="first", access_mode=AccessMode.EXCLUSIVE)
            transaction = await first.new_transaction()
            await owner.send(b"no", transaction=transaction)
            await world.crash("us")
        await world.start("us")
        taker = await second.producer(TOPIC, name="second", access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        await taker.send(b"yes")
        authority = world.running["us"].coordinators
        await until(lambda: authority.status(transaction.id) is TransactionStatus.ABORTED, 30)
        assert await readable(world) == [b"yes"]
