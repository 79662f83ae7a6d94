"""A region on SQLite or Kafka in a process of its own, killed behind its n-th commit (test_killed_after_commits.py).

It processes messages in a transaction, with its own client over a socket, and reports responses through the pipe:

    b <coordinator> <number>      the transaction began
    d                             the response to its end arrived
    o                             everything was written, and the process was not killed
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.client import Client, ClientSettings, Consumer, ConsumerType, InitialPosition
from emulator.config.region import BrokerSettings, LogConfig, NamespaceConfig, RegionConfig
from emulator.net.network import SocketNetwork
from emulator.storage.configuration.memory import ConfigurationMemory, MemoryConfiguration
from emulator.storage.contract import Store
from emulator.storage.kafka import open_kafka
from emulator.storage.kafka.cluster import KafkaCluster
from emulator.storage.sqlite.commit import Committer
from emulator.storage.sqlite.store import open_sqlite

KEY = "task"
QUICK = ClientSettings(backoff_seconds=0.01, backoff_seconds_max=0.1)
STILL_SECONDS = 0.2
"""Longer than any write takes that happens at all."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a region stores its data, across restarts."""

    sqlite: str = ""
    """A file."""
    kafka: str = ""
    """Servers."""
    topic_prefix: str = ""

    async def open(self) -> Store:
        if self.sqlite:
            return await open_sqlite(Path(self.sqlite), "us")
        return await open_kafka("us", self.kafka, {"topic_prefix": self.topic_prefix})


@dataclass(frozen=True, slots=True)
class Work:
    """The work in the transaction."""

    commit: bool = True
    type: ConsumerType = ConsumerType.SHARED
    messages: tuple[bytes, ...] = (b"it",)
    """Acknowledged one by one on a shared subscription, else cumulatively by the last of them."""


@asynccontextmanager
async def region_on(place: Place, port: int) -> Any:
    """Start the region and a client of it."""
    network = SocketNetwork()
    config = RegionConfig(
        region="us",
        cluster="test",
        service_port=port,
        log=LogConfig("memory"),
        settings=BrokerSettings(),
        namespaces=(NamespaceConfig("public/default", ("us",), True),),
        run_secret="known to a test",
        peers=(),
    )
    environment = Environment(
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        random=random.Random(1),
        network=network,
        peer_network=network,
        store=await place.open(),
        configuration=MemoryConfiguration(ConfigurationMemory()),
    )
    region = Region(config, environment)
    await region.start()
    try:
        async with client_at(port) as client:
            yield region, client
    finally:
        await region.stop()


def client_at(port: int) -> Client:
    return Client(f"pulsar://127.0.0.1:{port}", settings=QUICK, transaction_key=KEY)


async def subscribed(client: Client, type_: ConsumerType = ConsumerType.SHARED) -> Consumer:
    return await client.subscribe("inbox", "s", type_=type_, initial_position=InitialPosition.EARLIEST)


def live(place: Place, port: int, after: int, work: Work, pipe: Connection) -> None:
    """Run until it is killed, or everything is written."""
    deadly = _deadly(after)
    asyncio.run(_live(place, port, work, pipe.fileno(), deadly))


def _deadly(after: int) -> Iterator[None]:
    """Once resumed, count commits; kill the process after commit number `after`, before any caller gets its result."""
    yield
    commit, produce = Committer.commit, KafkaCluster.produce
    left = after

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def committed(self: Committer, group: Any) -> None:
        commit(self, group)
        count()

    async def produced(self: KafkaCluster, node: int, data: Any) -> Any:
        answer = await produce(self, node, data)
        count()
        return answer

    Committer.commit = committed  # type: ignore[method-assign]
    KafkaCluster.produce = produced  # type: ignore[method-assign]
    yield


async def _live(place: Place, port: int, work: Work, pipe: int, deadly: Iterator[None]) -> None:
    async with region_on(place, port) as (region, client):
        inbox = await client.producer("inbox")
        for payload in work.messages:
            await inbox.send(payload)
        consumer, outbox = await subscribed(client, work.type), await client.producer("outbox")
        messages = [await consumer.receive() for _ in work.messages]
        next(deadly)
        next(deadly)
        transaction = await client.new_transaction()
        os.write(pipe, b"b %d %d\n" % tuple(transaction.id))
        for message in messages:
            await outbox.send(message.payload, transaction=transaction)
            if work.type is ConsumerType.SHARED:
                await consumer.acknowledge(message, transaction=transaction)
        if work.type is not ConsumerType.SHARED:
            await consumer.acknowledge_cumulative(messages[-1], transaction=transaction)
        await (transaction.commit() if work.commit else transaction.abort())
        os.write(pipe, b"d\n")
        await _nothing_is_written(region.store)
        os.write(pipe, b"o\n")
        os._exit(0)


async def _nothing_is_written(store: Any) -> None:
    """No commit for a while: every decision is on the disk."""
    commits, since = store.commits, time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        await asyncio.sleep(0)
        if store.commits != commits:
            commits, since = store.commits, time.monotonic()
