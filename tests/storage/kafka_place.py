"""A real Kafka for tests, one per worker; and a place for Kafka stores in it, with ways to damage one."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from emulator.errors import RuntimeFailure
from emulator.runtimes.kafka_server import KafkaServer, fetch_jars
from emulator.storage.contract import Store
from emulator.storage.kafka import KafkaStore, open_kafka

from .harness import DEADLINE_SECONDS, Harness

_prefixes = (f"test{os.getpid()}-{number}" for number in itertools.count())


def new_prefix() -> str:
    """Return a prefix for fresh topics instead of a fresh Kafka."""
    return next(_prefixes)


@contextmanager
def running_kafka(
    folder: Path, port: int = 0, format_arguments: Sequence[str] = (), **settings: str
) -> Iterator[KafkaServer]:
    """Start a Kafka; without one the test is skipped, and fails in CI."""
    try:
        if shutil.which("java") is None:
            raise RuntimeFailure("there is no Java")
        jars = fetch_jars()
        server = KafkaServer(folder, jars, port=port, settings=settings, format_arguments=format_arguments)
    except RuntimeFailure as reason:
        if os.environ.get("CI"):
            pytest.fail(f"no Kafka: {reason}")
        pytest.skip(f"no Kafka: {reason}")
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


class KafkaHarness(Harness):
    """A region of its own in a shared Kafka."""

    def __init__(self, server: KafkaServer, **options: Any) -> None:
        super().__init__()
        self.server = server
        self.options = {"topic_prefix": new_prefix(), **options}

    async def _open(self) -> Store:
        return await open_kafka("eu", self.server.bootstrap_servers, self.options)

    async def crash(self, store: Store) -> Store:
        kill(store)
        return await self.open()

    def fill_disk(self, store: Store) -> None:
        self._limit(100_000)

    def empty_disk(self, store: Store) -> None:
        self._limit(64 * 1024 * 1024)

    def _limit(self, bytes_max: int) -> None:
        """Set the largest batch that Kafka accepts: this stands for a full disk."""
        admin = KafkaAdminClient(bootstrap_servers=self.server.bootstrap_servers)
        ours = [name for name in admin.list_topics() if name.startswith(self.options["topic_prefix"])]
        changes = [
            ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": str(bytes_max)})
            for name in ours
        ]
        admin.alter_configs(changes)
        admin.close()
        time.sleep(0.1)  # Kafka applies it a moment after it accepted it

    def commits(self, store: Store) -> int:
        assert isinstance(store, KafkaStore)
        return store.commits


def kill(store: Store) -> None:
    """Act like `kill -9` of the region: unsent requests are never sent, and no caller gets a response to the others."""
    assert isinstance(store, KafkaStore)
    store.cluster._closed = True
    for connection in store.cluster._connections.values():
        if connection._transport is not None:
            connection._transport.abort()
    store._watch.cancel()
    writer = store._writer
    writer._commit = _never  # type: ignore[method-assign]
    writer._send_to = _never  # type: ignore[method-assign,assignment]
    writer._task.cancel()
    store._closing = asyncio.get_running_loop().create_future()
    store._closing.set_result(None)


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


def start_owner(server: KafkaServer, prefix: str, acknowledged: Path) -> subprocess.Popen[bytes]:
    """Start `kafka_owner` as a process."""
    arguments = [server.bootstrap_servers, prefix, str(acknowledged)]
    return subprocess.Popen([sys.executable, "-m", "tests.storage.kafka_owner", *arguments])


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something in Kafka or in another process."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)
