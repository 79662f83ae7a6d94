"""Two owners of one region's log on a real Kafka: they never both write (S6), whatever Kafka has forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from emulator.errors import StorageError, StorageFenced
from emulator.runtimes.kafka_server import KafkaServer
from emulator.storage.kafka import KafkaStore, open_kafka

from .harness import DEADLINE_SECONDS, data_of, open_log, opened, read_all
from .kafka_owner import FENCED
from .kafka_place import new_prefix, running_kafka, start_owner, until

pytestmark = [pytest.mark.long, pytest.mark.within(DEADLINE_SECONDS)]

REGION = "eu"


@pytest.fixture(scope="module")
def forgetful_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka that forgets producers and transactional ids within about a second, as others do within days."""
    forgetful = {
        "producer.id.expiration.ms": "1000",
        "producer.id.expiration.check.interval.ms": "100",
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    with running_kafka(tmp_path_factory.mktemp("kafka"), **forgetful) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return new_prefix()


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def admin_of(server: KafkaServer) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


async def open_store(server: KafkaServer, prefix: str, clock: Clock | None = None) -> KafkaStore:
    options = {"topic_prefix": prefix}
    return await open_kafka(REGION, server.bootstrap_servers, options, clock=clock or Clock())


async def close_all(*stores: KafkaStore) -> None:
    for store in stores:
        await store.close()


@pytest.mark.real
async def test_an_owner_that_is_replaced_while_paused_writes_nothing_and_ends(
    kafka_server: KafkaServer, prefix: str, tmp_path: Path
):
    """Its acknowledged entries are there once, in order; none of its entries follows those of the new owner."""
    path = tmp_path / "acknowledged"
    old = start_owner(kafka_server, prefix, path)
    try:
        await until(lambda: path.exists() and len(path.read_text().splitlines()) > 300)
        os.kill(old.pid, signal.SIGSTOP)
        new, log = await opened(open_store(kafka_server, prefix))
        inherited = await read_all(log)
        first = await log.append([b"new"])
        os.kill(old.pid, signal.SIGCONT)
        assert await asyncio.to_thread(old.wait, DEADLINE_SECONDS) == FENCED
    finally:
        old.kill()
    stored = await read_all(log)
    assert stored == [*inherited, (first, b"new")]
    acknowledged = [line.split(" ", 1) for line in path.read_text().splitlines()]
    assert [(str(i), data.decode()) for i, data in inherited[: len(acknowledged)]] == [
        (entry_id, data) for entry_id, data in acknowledged
    ]
    assert data_of(inherited) == [b"old %d" % n for n in range(len(inherited))]
    await new.close()


async def test_all_pending_writes_of_a_fenced_owner_fail_as_fenced(kafka_server: KafkaServer, prefix: str):
    """Appends to all logs, puts, and later writes; none of them is stored."""
    old = await open_store(kafka_server, prefix)
    logs = [await open_log(old, name) for name in "ab"]
    await asyncio.gather(*(log.append([b"before"]) for log in logs), old.put("k", b"before"))
    new = await open_store(kafka_server, prefix)
    waiting = [*(log.append([b"after"]) for log in logs * 10), *(old.put("k", b"after") for _ in range(10))]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, StorageError) for outcome in outcomes)
    assert any(isinstance(outcome, StorageFenced) for outcome in outcomes)
    with pytest.raises(StorageFenced):
        await old.put("other", b"later")
    for name in "ab":
        assert data_of(await read_all(await open_log(new, name))) == [b"before"]
    assert new.get("k") == (b"before", 0)
    await close_all(old, new)


async def test_an_owner_without_recent_writes_checks_ownership_before_it_writes(
    forgetful_server: KafkaServer, prefix: str
):
    """Kafka has forgotten the fence, and would accept its append."""
    clock = Clock()
    old, log = await opened(open_store(forgetful_server, prefix, clock))
    await log.append([b"old"])
    new = await open_store(forgetful_server, prefix)
    await until(lambda: not known_producers(forgetful_server, log.topic))
    clock.now += 61
    with pytest.raises(StorageFenced):
        await log.append([b"zombie"])
    assert data_of(await read_all(await open_log(new, "t"))) == [b"old"]
    await close_all(old, new)


async def test_an_owner_without_recent_writes_that_is_still_the_owner_continues(
    forgetful_server: KafkaServer, prefix: str
):
    """It finds only its own records after the last one it knew."""
    clock = Clock()
    store, log = await opened(open_store(forgetful_server, prefix, clock))
    for n in range(3):
        await log.append([b"%d" % n])
        await store.put("k", b"%d" % n)
        clock.now += 61
    await until(lambda: not known_producers(forgetful_server, log.topic))
    await log.append([b"3"])
    assert data_of(await read_all(log)) == [b"0", b"1", b"2", b"3"]
    await store.close()


async def test_an_owner_with_another_producer_id_fences_the_older_one_too(
    forgetful_server: KafkaServer, prefix: str
):
    """Kafka has forgotten the transactional id and assigned a new producer id, which it never compares with the old."""
    old, log = await opened(open_store(forgetful_server, prefix))
    await log.append([b"old"])
    await until(lambda: not known_transactions(forgetful_server, prefix))
    new = await open_store(forgetful_server, prefix)
    assert new._writer.producer.id != old._writer.producer.id
    with pytest.raises(StorageFenced):
        await log.append([b"zombie"])
    again = await open_log(new, "t")
    await again.append([b"new"])
    assert data_of(await read_all(again)) == [b"old", b"new"]
    third = await open_store(forgetful_server, prefix)
    assert data_of(await read_all(await open_log(third, "t"))) == [b"old", b"new"]
    await close_all(old, new, third)


def known_producers(server: KafkaServer, topic: str) -> bool:
    """Return whether Kafka still knows the producers of a topic."""
    with admin_of(server) as admin:
        found = admin.describe_producers([TopicPartition(topic, 0)])
    return bool(next(iter(found.values())).active_producers)


def known_transactions(server: KafkaServer, prefix: str) -> bool:
    """Return whether Kafka still knows the transactional id of the region."""
    with admin_of(server) as admin:
        return f"{prefix}.{REGION}" in str(admin.list_transactions())
