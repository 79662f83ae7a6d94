"""A region on SQLite in a process of its own, killed behind its n-th commit; test_killed_behind_steps.py runs it.

It processes one message in a transaction, by its own client over a socket, and tells through the pipe what was told:

    b <coordinator> <number>      the transaction began
    d                             its end was answered
    o                             everything was written, and nothing killed it
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.client import Client, ClientSettings, Consumer, ConsumerType, InitialPosition
from emulator.network import SocketNetwork
from emulator.region_config import BrokerSettings, LogConfig, NamespaceConfig, RegionConfig
from emulator.storage.configuration_memory import ConfigurationMemory, MemoryConfiguration
from emulator.storage.sqlite import open_sqlite
from emulator.storage.sqlite_commit import Committer

KEY = "task"
QUICK = ClientSettings(backoff_seconds=0.01, backoff_seconds_max=0.1)
STILL_SECONDS = 0.2
"""Longer than anything waits that is written in the end."""


@asynccontextmanager
async def region_on(path: Path, port: int) -> Any:
    """The region, and a client of it."""
    network = SocketNetwork()
    config = RegionConfig(
        region="us",
        cluster="test",
        service_port=port,
        log=LogConfig("sqlite", str(path)),
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
        store=await open_sqlite(path, "us"),
        configuration=MemoryConfiguration(ConfigurationMemory()),
    )
    region = Region(config, environment)
    await region.start()
    try:
        async with Client(f"pulsar://127.0.0.1:{port}", settings=QUICK, transaction_key=KEY) as client:
            yield region, client
    finally:
        await region.stop()


async def subscribed(client: Client) -> Consumer:
    return await client.subscribe(
        "inbox", "s", type_=ConsumerType.SHARED, initial_position=InitialPosition.EARLIEST
    )


def live(path: Path, port: int, after: int, commit: bool, pipe: Connection) -> None:
    """Until it is killed, or everything is written."""
    deadly = _deadly(after)
    asyncio.run(_live(path, port, commit, pipe.fileno(), deadly))


def _deadly(after: int) -> Iterator[None]:
    """Begun, it counts commits; behind so many of them the process dies."""
    yield
    really = Committer.commit
    left = after

    def counted(self: Committer, group: Any) -> None:
        nonlocal left
        really(self, group)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Committer.commit = counted  # type: ignore[method-assign]
    yield


async def _live(path: Path, port: int, commit: bool, pipe: int, deadly: Iterator[None]) -> None:
    async with region_on(path, port) as (region, client):
        await (await client.producer("inbox")).send(b"it")
        consumer, outbox = await subscribed(client), await client.producer("outbox")
        message = await consumer.receive()
        next(deadly)
        next(deadly)
        transaction = await client.new_transaction()
        os.write(pipe, b"b %d %d\n" % tuple(transaction.id))
        await outbox.send(b"result", transaction=transaction)
        await consumer.acknowledge(message, transaction=transaction)
        await (transaction.commit() if commit else transaction.abort())
        os.write(pipe, b"d\n")
        await _nothing_is_written(region.store)
        os.write(pipe, b"o\n")
        os._exit(0)


async def _nothing_is_written(store: Any) -> None:
    """No commit for a while: whatever was decided is on the disk."""
    commits, since = store.commits, time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        await asyncio.sleep(0)
        if store.commits != commits:
            commits, since = store.commits, time.monotonic()
