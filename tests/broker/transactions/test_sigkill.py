"""kill -9 of a real region on SQLite while a transaction ends: it counts as a whole or not at all, and responses
hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest

from emulator.client import (
    EARLIEST,
    Client,
    ClientError,
    ClientSettings,
    Consumer,
    ConsumerType,
    InitialPosition,
    Producer,
    Transaction,
)
from emulator.config.loading import load_topology
from emulator.config.topology import Topology
from emulator.runtimes.process import ProcessRuntime
from tests.runtimes.fixtures import end_all

pytestmark = [pytest.mark.real, pytest.mark.long]

PATIENCE_SECONDS = 60
TURNS = (0, 1, 2, 4, 8, 16, 64, 256)
"""Iterations of the client's loop between the commit request and the kill: earlier and later steps of it."""
QUICK = ClientSettings(backoff_seconds=0.02, backoff_seconds_max=0.2)


def one_region(folder: Path) -> Topology:
    (folder / "clusters").mkdir()
    (folder / "clusters" / "only.yaml").write_text("regions:\n  us: {service_port: 0, admin_port: 0}\n")
    path = folder / "topology.yaml"
    path.write_text(
        "name: one\nclusters: [only]\ntenants: [public]\nnamespaces: {public/default: {regions: all}}\n"
    )
    return load_topology(path)


async def url_of(run: ProcessRuntime) -> str:
    (region,) = (await run.status()).regions
    return region.service_url


async def stored(client: Client, topic: str) -> Counter[bytes]:
    reader = await client.reader(topic, EARLIEST)
    found: Counter[bytes] = Counter()
    while await reader.has_message():
        found[(await reader.receive()).payload] += 1
    await reader.close()
    return found


class Worker:
    """Receives a message, writes it to two topics and acknowledges it, in one transaction under a key."""

    def __init__(self, run: ProcessRuntime, consumer: Consumer, targets: list[Producer]) -> None:
        self.run = run
        self.consumer = consumer
        self.targets = targets
        self.told: list[bytes] = []
        """Messages whose commit was confirmed."""

    async def work(self, client: Client, turns: int) -> None:
        """Run one transaction, and kill the region while it ends."""
        payload, transaction = await self._prepared(client)
        ending = asyncio.ensure_future(transaction.commit())
        for _ in range(turns):
            await asyncio.sleep(0)
        await self.run.kill("us")
        await self.run.start("us")
        with contextlib.suppress(ClientError):
            await ending
            self.told.append(payload)

    async def _prepared(self, client: Client) -> tuple[bytes, Transaction]:
        """Do everything but its end. A message that was received before the last kill cannot be acknowledged any more,
        or not yet: then use the next one."""
        while True:
            message = await self.consumer.receive()
            transaction = await client.new_transaction(timeout_seconds=30)
            try:
                for target in self.targets:
                    await target.send(message.payload, transaction=transaction)
                await self.consumer.acknowledge(message, transaction=transaction)
            except ClientError:
                await transaction.abort()
            else:
                return message.payload, transaction


def test_a_killed_region_has_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    async def scenario(run: ProcessRuntime) -> None:
        async with Client(await url_of(run), settings=QUICK, transaction_key="worker") as client:
            inbox = await client.producer("inbox")
            for number in range(2 * len(TURNS)):
                await inbox.send(b"%d" % number)
            consumer = await client.subscribe(
                "inbox", "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
            )
            worker = Worker(run, consumer, [await client.producer(topic) for topic in ("orders", "bills")])
            epochs = []
            for turns in TURNS:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await worker.work(client, turns)
                epochs.append(client.coordinators.epoch)
            async with asyncio.timeout(PATIENCE_SECONDS), await client.new_transaction():
                orders, bills = await stored(client, "orders"), await stored(client, "bills")
            assert orders == bills == Counter(set(orders))
            assert orders.keys() >= set(worker.told)
            assert epochs == sorted(epochs)

    async def whole() -> None:
        run = ProcessRuntime.create(one_region(tmp_path), tmp_path / "run", detached=False)
        await run.up()
        try:
            await scenario(run)
        finally:
            await run.down()

    try:
        asyncio.run(whole())
    finally:
        end_all(tmp_path / "run")
