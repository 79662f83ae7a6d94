"""The proxy between a task and its region dies at every point of a transaction: the next task of the key processes what
is left, and nothing twice (the proposal's chaos testing)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from emulator.client import Client, ClientError, InitialPosition
from emulator.recording.tap.connection import TappedConnection
from emulator.recording.tap.tap import Tap, TappedRegion
from emulator.run.history import HistoryWriter
from tests.broker.regions import QUICK, Regions, regions
from tests.broker.transactions.test_client_transactions import stored

POINTS_MAX = 100


class DyingProxy:
    """A tap that dies at read number `after`, counted over both directions."""

    def __init__(self, path: Path, after: int, patch: pytest.MonkeyPatch) -> None:
        self._tap = Tap(HistoryWriter(path, "tap"))
        self._left = after
        self.died = asyncio.Event()
        for way in ("to_region", "to_client"):
            patch.setattr(TappedConnection, way, self._counted(getattr(TappedConnection, way)))

    def _counted(self, way: Callable[[TappedConnection, bytes], bytes]) -> Callable[..., bytes]:
        def carried(connection: TappedConnection, data: bytes) -> bytes:
            self._left -= 1
            if self._left <= 0:
                self.died.set()
            return b"" if self.died.is_set() else way(connection, data)

        return carried

    async def open(self, world: Regions) -> str:
        (region,) = await self._tap.open([TappedRegion("us", f"pulsar://127.0.0.1:{world.ports['us']}")])
        return region.service_url

    async def close(self) -> None:
        await self._tap.close()
        self._tap.history.close()


async def task(url: str, number: int) -> None:
    """Begin first and subscribe then (decision 0026); process one message."""
    client = Client(url, settings=QUICK, transaction_key="task")
    try:
        transaction = await client.new_transaction()
        consumer = await client.subscribe("inbox", "s", initial_position=InitialPosition.EARLIEST)
        producer = await client.producer("outbox")
        message = await consumer.receive()
        await producer.send(b"result of " + message.payload, transaction=transaction)
        await consumer.acknowledge_cumulative(message, transaction=transaction)
        await transaction.commit()
    finally:
        await client.close()


async def lives_until_the_proxy_dies(world: Regions, path: Path, number: int) -> bool:
    """Return whether its proxy died during the task."""
    with pytest.MonkeyPatch.context() as patch:
        proxy = DyingProxy(path, number, patch)
        work = asyncio.ensure_future(task(await proxy.open(world), number))
        death = asyncio.ensure_future(proxy.died.wait())
        try:
            await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await proxy.close()
            for one in (work, death):
                one.cancel()
            with suppress(ClientError, asyncio.CancelledError, TimeoutError):
                await work
        return proxy.died.is_set()


async def succeed(world: Regions, number: int) -> None:
    """Run the next task of the key, without a proxy."""
    service = f"pulsar://127.0.0.1:{world.ports['us']}"
    async with Client(service, settings=QUICK, transaction_key="task") as client:
        await (await client.producer("inbox")).send(b"end of %d" % number)
        transaction = await client.new_transaction()
        consumer = await client.subscribe("inbox", "s", initial_position=InitialPosition.EARLIEST)
        producer = await client.producer("outbox")
        while not (message := await consumer.receive()).payload.startswith(b"end"):
            await producer.send(b"result of " + message.payload, transaction=transaction)
        await consumer.acknowledge_cumulative(message, transaction=transaction)
        await transaction.commit()


@pytest.mark.long
async def test_every_message_is_processed_once_wherever_the_proxy_fails(tmp_path: Path) -> None:
    async with regions("us") as world, world.client("us") as client:
        inbox = await client.producer("inbox")
        for number in count(1):
            assert number < POINTS_MAX, "it never comes to an end"
            await inbox.send(b"%d" % number)
            died = await lives_until_the_proxy_dies(world, tmp_path / f"{number}.jsonl", number)
            await succeed(world, number)
            expected = [b"result of %d" % one for one in range(1, number + 1)]
            assert await stored(client, "outbox") == expected, number
            if not died:
                break
        assert number > 15, "there are fewer points than steps"
