"""A region's disk does not grow while every message of a stream is acknowledged."""

from __future__ import annotations

import random
import time
from pathlib import Path

from emulator.broker.environment import Environment
from emulator.broker.region import Region
from emulator.client import Client, ClientSettings
from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig
from emulator.net.network import SocketNetwork
from emulator.storage.configuration.memory import MemoryConfiguration
from emulator.storage.sqlite.store import open_sqlite
from tests.broker.regions import until

TOPIC = "persistent://public/default/orders"
ROUND_MESSAGES, MESSAGE_BYTES = 20, 100_000


async def started(path: Path) -> Region:
    config = RegionConfig(
        region="us",
        cluster="test",
        log=LogConfig("sqlite", str(path)),
        settings=BrokerSettings(housekeeping_interval_ms=5),
        namespaces=(
            NamespaceConfig("public/default", ("us",), True, retention_minutes=0, retention_megabytes=0),
        ),
    )
    network = SocketNetwork()
    environment = Environment(
        lambda: time.time_ns() // 1_000_000,
        random.Random(1),
        network,
        network,
        await open_sqlite(path, "us"),
        MemoryConfiguration(),
    )
    region = Region(config, environment)
    await region.start()
    return region


async def test_a_file_holds_a_round_or_two_of_many(tmp_path: Path) -> None:
    """The topology has no retention, so a later round reuses the space of an earlier one."""
    path = tmp_path / "log.sqlite"

    region = await started(path)
    async with Client(
        [f"pulsar://127.0.0.1:{region.clients.ports.service_port}"], settings=ClientSettings()
    ) as client:
        producer = await client.producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s")
        topic = region.directory.serving[TOPIC]
        for _ in range(8):
            for _ in range(ROUND_MESSAGES):
                await producer.send(bytes(MESSAGE_BYTES))
                await consumer.acknowledge(await consumer.receive())
            await until(lambda: topic.log.size_bytes == 0, 30)
    await region.stop()
    assert path.stat().st_size < 4 * ROUND_MESSAGES * MESSAGE_BYTES
