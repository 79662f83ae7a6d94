"""A region dies after every durable step of a transaction that acknowledges cumulatively, and after its restart it
cannot reach the subscription for a while. The next task of the key does not wait for that, and processes what is
left."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from emulator.broker.subscription.subscription import Subscription
from emulator.broker.transactions import key_registry as key_life
from emulator.client import Client, ClientError, Consumer, ConsumerType, InitialPosition, Transaction
from emulator.errors import ProtocolError, ServerError
from emulator.simulation.world import World
from tests.broker.transactions.test_successors import acknowledge_upto
from tests.simulation.test_transaction_steps import (
    KEY,
    SUBSCRIPTION,
    Bench,
    Killed,
    killed_behind_every_step,
)

END_SUBSCRIPTION = Subscription.end_subscription
UNREACHABLE_SECONDS = 15.0
NEWCOMERS_WAIT_SECONDS = 0.5
MESSAGES = [b"it", b"2", b"3"]
"""`Bench` publishes the first."""


class _Unreachable:
    """Makes subscriptions unreachable, for a while from the region's death on."""

    def __init__(self, w: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.until = 0.0

        async def ended(subscription: Subscription, *arguments: object) -> None:
            if w.simulation.now < self.until:
                raise ProtocolError(ServerError.ServiceNotReady, "of a test")
            await END_SUBSCRIPTION(subscription, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Subscription, "end_subscription", ended)


async def _in_order(client: Client) -> Consumer:
    return await client.subscribe(
        "inbox", SUBSCRIPTION, type_=ConsumerType.FAILOVER, initial_position=InitialPosition.EARLIEST
    )


async def _processed(client: Client, count: int | None = None) -> Transaction:
    """Process this number of messages, or what arrives within a while; do everything but the end."""
    transaction = await client.new_transaction(timeout_seconds=600)
    consumer, outbox = await _in_order(client), await client.producer("outbox")
    message = None
    try:
        for _ in range(len(MESSAGES) if count is None else count):
            async with asyncio.timeout(2 * UNREACHABLE_SECONDS):
                message = await consumer.receive()
            await outbox.send(message.payload, transaction=transaction)
    except TimeoutError:
        assert count is None
    if message is not None:
        await acknowledge_upto(message, consumer, transaction)
    return transaction


def test_nothing_is_processed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_life, "FENCE_SECONDS", NEWCOMERS_WAIT_SECONDS)

    async def scenario(bench: Bench, killed: Killed) -> None:
        unreachable = _Unreachable(bench.w, monkeypatch)
        die = killed._die

        def died() -> None:
            unreachable.until = bench.w.simulation.now + UNREACHABLE_SECONDS
            die()

        killed._die = died  # type: ignore[method-assign]
        await bench.consumer.close()
        inbox = await bench.client.producer("inbox")
        for payload in MESSAGES[1:]:
            await inbox.send(payload)
        killed.arm()
        try:
            ending = asyncio.ensure_future(_worked(bench.client))
            await bench.w.simulation.until(lambda: ending.done() or killed.stored is not None)
        finally:
            ending.cancel()
            await asyncio.wait([ending])
        killed.disarm()
        await bench.w.ready()
        await bench.client.close()
        host = bench.w.client_host("newcomer", "us")
        host.network.loop = bench.w.simulation.driver.loop
        bench.client = bench.w.client_on(host, ("us",), transaction_key=KEY)
        await (await _processed(bench.client)).commit()
        assert await bench.results() == MESSAGES, killed.stored

    steps = killed_behind_every_step(scenario, KEY)
    assert any("decided" in one and "ended" not in one for one in steps)


async def _worked(client: Client) -> None:
    with suppress(ClientError):
        await (await _processed(client, 2)).commit()
