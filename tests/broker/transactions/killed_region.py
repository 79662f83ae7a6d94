"""A region on SQLite or Kafka in its own process, killed after its n-th commit (test_killed_after_commits.py).

The process handles messages in a transaction, with a client over a socket, and reports responses through a pipe:

    b <coordinator> <number>      the transaction began
    d                             the response to its end arrived
    o                             all commits are done, and the process was not killed
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
from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
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
"""Time without a commit after which no more commits follow; longer than any write takes."""


@dataclass(frozen=True, slots=True)
class Place:
    """The storage of a region, which it keeps across restarts: SQLite or Kafka."""

    sqlite: str = ""
    """Path of the SQLite file; empty: the region uses Kafka."""
    kafka: str = ""
    """Bootstrap servers of Kafka."""
    topic_prefix: str = ""

    async def open(self) -> Store:
        if self.sqlite:
            return await open_sqlite(Path(self.sqlite), "us")
        return await open_kafka("us", self.kafka, {"topic_prefix": self.topic_prefix})


@dataclass(frozen=True, slots=True)
class Work:
    """The messages that the transaction processes, and its end."""

    commit: bool = True
    type: ConsumerType = ConsumerType.SHARED
    messages: tuple[bytes, ...] = (b"it",)
    """Payloads of the messages. A Shared subscription acknowledges each, any other one all of them cumulatively."""


@asynccontextmanager
async def region_on(place: Place, port: int) -> Any:
    """Run the region and a client of it inside the `async with` block."""
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
    """Run the region and the transaction, until the process is killed or all commits are done."""
    deadly = _deadly(after)
    asyncio.run(_live(place, port, work, pipe.fileno(), deadly))


def _deadly(after: int) -> Iterator[None]:
    """After the second `next`, count commits, and kill the process after commit number `after`, before any caller
    receives its result."""
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
    """Wait until there was no commit for STILL_SECONDS: every decision is then durable."""
    commits, since = store.commits, time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        await asyncio.sleep(0)
        if store.commits != commits:
            commits, since = store.commits, time.monotonic()
