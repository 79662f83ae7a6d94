"""A Kafka that is killed, hangs or is not there yet: nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.errors import ConfigurationError, StorageError
from emulator.runtimes.kafka_server import KafkaServer
from emulator.storage.contract import Log, Store
from emulator.storage.kafka import KafkaStore, open_kafka

from .harness import DEADLINE_SECONDS, data_of, open_log, opened, read_all
from .kafka_place import new_prefix, running_kafka, start_owner, until

pytestmark = [pytest.mark.long, pytest.mark.within(DEADLINE_SECONDS)]

LOGS = ("a", "b", "c")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka that tests may kill or freeze; every test leaves it running."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


async def open_store(server: KafkaServer, prefix: str, **options: int) -> KafkaStore:
    return await open_kafka("eu", server.bootstrap_servers, {"topic_prefix": prefix, **options})


class Load:
    """Appends to several logs and puts a key, a few requests in flight each, until `stop` is called."""

    def __init__(self, store: Store, logs: list[Log]) -> None:
        self.acknowledged: dict[str, list[tuple[int, bytes]]] = {log.name: [] for log in logs}
        self.puts = 0
        self._stopping = False
        self._store = store
        self._tasks = [asyncio.ensure_future(self._append(log)) for log in logs]
        self._tasks.append(asyncio.ensure_future(self._put()))

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def beyond(self, count: int) -> None:
        """Wait until more than this many entries are acknowledged."""
        while self.count <= count:
            assert not any(task.done() for task in self._tasks)
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _append(self, log: Log) -> None:
        number = 0
        while not self._stopping:
            data = [b"%s %d" % (log.name.encode(), number + i) for i in range(6)]
            number += 6
            for first, some in zip(
                await asyncio.gather(log.append(data[:1]), log.append(data[1:])),
                (data[:1], data[1:]),
                strict=True,
            ):
                self.acknowledged[log.name] += [(first + i, entry) for i, entry in enumerate(some)]

    async def _put(self) -> None:
        while not self._stopping:
            assert await self._store.put("k", b"%d" % self.puts) == self.puts
            self.puts += 1


async def check(load: Load, server: KafkaServer, prefix: str) -> None:
    """Check that the next owner finds exactly what was acknowledged."""
    store = await open_store(server, prefix)
    for name in LOGS:
        assert await read_all(await open_log(store, name)) == load.acknowledged[name]
    value = store.get("k")
    assert value is not None
    assert value == (b"%d" % (load.puts - 1), load.puts - 1)
    await store.close()


@pytest.mark.real
async def test_kill_9_of_kafka_under_load_only_takes_time(
    server: KafkaServer, caplog: pytest.LogCaptureFixture
):
    """Writes wait while it is down and continue when it is back. The log says so in two lines."""
    prefix = new_prefix()
    store = await open_store(server, prefix)
    load = Load(store, [await open_log(store, name) for name in LOGS])
    with caplog.at_level(logging.DEBUG, logger="emulator"):
        await load.beyond(2000)
        await asyncio.to_thread(server.kill)
        before = load.count
        await asyncio.sleep(0.5)  # so that the store retries several times
        assert load.count == before
        await asyncio.to_thread(server.start)
        await load.beyond(before + 2000)
    await load.stop()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("emulator")]
    assert len(said) == 2, said
    assert "does not respond" in said[0]
    assert "responds again" in said[1]
    await store.close()
    await check(load, server, prefix)


@pytest.mark.real
async def test_kill_9_of_region_and_kafka_at_once_loses_nothing_acknowledged(
    server: KafkaServer, tmp_path: Path
):
    """The page cache outlives both."""
    prefix, path = new_prefix(), tmp_path / "acknowledged"
    region = start_owner(server, prefix, path)
    try:
        await until(lambda: path.exists() and len(path.read_text().splitlines()) > 1000)
    finally:
        await asyncio.to_thread(server.kill)
        region.kill()
        region.wait()
        await asyncio.to_thread(server.start)
    store = await open_store(server, prefix)
    stored = await read_all(await open_log(store, "t"))
    acknowledged = [line.split(" ", 1) for line in path.read_text().splitlines()]
    assert [[str(entry_id), data.decode()] for entry_id, data in stored[: len(acknowledged)]] == acknowledged
    assert data_of(stored) == [b"old %d" % n for n in range(len(stored))]
    await store.close()


@pytest.mark.real
async def test_requests_to_a_hanging_kafka_are_retried_and_stored_once(server: KafkaServer):
    """The first request may have been carried out after all; the second has the same bytes."""
    prefix = new_prefix()
    store = await open_store(server, prefix, request_timeout_ms=200)
    load = Load(store, [await open_log(store, name) for name in LOGS])
    for _ in range(3):
        await load.beyond(load.count + 500)
        server.pause()
        await asyncio.sleep(0.7)  # more than three times the time after which the store retries
        server.resume()
    await load.beyond(load.count + 500)
    await load.stop()
    await store.close()
    await check(load, server, prefix)


@pytest.mark.real
async def test_a_region_that_starts_before_its_kafka_waits_for_it(server: KafkaServer):
    server.stop()
    opening = asyncio.ensure_future(open_store(server, new_prefix()))
    await asyncio.sleep(0.2)
    assert not opening.done()
    await asyncio.to_thread(server.start)
    store = await opening
    log = await open_log(store, "t")
    await log.append([b"x"])
    assert data_of(await read_all(log)) == [b"x"]
    await store.close()


async def test_a_kafka_that_never_responds_is_reported_in_one_sentence():
    """With the address, and the remedy."""
    with pytest.raises(StorageError, match=r"no usable Kafka at 127\.0\.0\.1:1: .*is it running\?"):
        await open_kafka("eu", "127.0.0.1:1", {"open_timeout_ms": 50})


async def test_closing_does_not_wait_for_ever_for_an_unavailable_kafka(
    server: KafkaServer, monkeypatch: pytest.MonkeyPatch
):
    """An unacknowledged write fails, and may or may not be stored."""
    monkeypatch.setattr("emulator.storage.kafka.store.CLOSE_SECONDS", 0.1)
    store, log = await opened(open_store(server, new_prefix()))
    server.pause()
    try:
        waiting = [log.append([b"%d" % n]) for n in range(3)]
        await store.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        server.resume()
    assert all(isinstance(outcome, StorageError) for outcome in outcomes)
    assert isinstance(outcomes[0], StorageError)
    assert not outcomes[0].definite


@pytest.mark.parametrize(
    ("servers", "options", "said"),
    [
        ("", {}, "log.bootstrap_servers"),
        ("host:port", {}, "must be host:port"),
        ("k:1", {"topic_prefx": "x"}, "did you mean 'topic_prefix'?"),
        ("k:1", {"topic_prefix": "a_b"}, "letters, digits"),
        ("k:1", {"request_timeout_ms": "5"}, "must be of type int"),
        ("k:1", {"security_protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            "k:1",
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
            "is not supported; supported are PLAIN",
        ),
        ("k:1", {"security_protocol": "SSL", "ssl_cafile": "/nowhere"}, "cannot be used"),
    ],
)
async def test_invalid_options_are_rejected(servers: str, options: dict[str, str], said: str):
    """Before any connection is opened."""
    with pytest.raises(ConfigurationError) as refused:
        await open_kafka("eu", servers, options)
    assert said in str(refused.value)
