"""A region's log in a real Kafka gives the same rows as one in SQLite."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from emulator.model.stored_keys import CursorKey, CursorPartKey, GrantKey
from emulator.runtimes.kafka_server import KafkaServer
from emulator.storage.contract import Store, ledger_id_base
from emulator.storage.group import decode_group
from emulator.storage.kafka import open_kafka
from emulator.storage.sqlite.store import open_sqlite
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import F
from spark_jobs.sources import kafka
from spark_jobs.sources.contract import Group, LogDamaged, LogHead
from spark_jobs.sources.entry_columns import ROW_SCHEMA
from spark_jobs.sources.region_log import read_region_logs, read_trimmed
from spark_jobs.sources.run_folder import RegionLog, open_run_folder
from tests.spark_jobs.sample_run import TOPIC, SampleRun, failover_drill
from tests.storage.kafka_place import new_prefix

pytestmark = pytest.mark.long

OTHER = "persistent://public/default/ä b"
FIRST = ledger_id_base("us-east") + 1
"""Id of the region's first ledger."""


@pytest.fixture
def log(kafka_server: KafkaServer) -> RegionLog:
    return RegionLog("us-east", "kafka", "", kafka_server.bootstrap_servers, {"topic_prefix": new_prefix()})


async def open_store(log: RegionLog) -> Store:
    return await open_kafka(log.region, log.bootstrap_servers, log.options)


def read(log: RegionLog) -> list[Group]:
    return [group for rows in kafka.plan(log) for group in kafka.read_groups(log, rows)]


def entries_in(log: RegionLog) -> dict[str, list[tuple[int, bytes]]]:
    found: dict[str, list[tuple[int, bytes]]] = {}
    for group in read(log):
        found.setdefault(group.topic, []).extend(enumerate(decode_group(group.data), group.first_entry_id))
    return found


async def write(log: RegionLog) -> dict[str, list[tuple[int, bytes]]]:
    """Write two topics in two sessions, so that there are fences in between; return their contents."""
    written: dict[str, list[tuple[int, bytes]]] = {}
    for incarnation in range(2):
        store = await open_store(log)
        for name in (TOPIC, OTHER):
            topic = await store.open_log(name)
            assert topic is not None
            for number in range(10):
                data = [b"%s %d %d %d" % (name.encode(), incarnation, number, i) for i in range(5)]
                first = await topic.append(data)
                written.setdefault(name, []).extend(enumerate(data, first))
            await store.put("topic/x", b"not a log")
        await store.close()
    return written


def test_all_entries_of_all_topics_and_nothing_else(log: RegionLog) -> None:
    """Fences are not returned as entries."""
    written = asyncio.run(write(log))
    assert entries_in(log) == written
    assert kafka.read_heads(log) == [LogHead(TOPIC, FIRST, 0), LogHead(OTHER, FIRST + 1, 0)]


def test_a_large_log_is_shared_out_without_loss_or_overlap(
    log: RegionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "SLICE_RECORDS", 17)
    monkeypatch.setattr(kafka, "GROUP_RECORDS", 4)
    written = asyncio.run(write(log))
    assert len(kafka.plan(log)) > 10
    assert entries_in(log) == written


async def test_trimmed_and_deleted(log: RegionLog) -> None:
    """The head is the first entry that was not trimmed; a deleted topic is not listed."""
    written = await write(log)
    cut = written[TOPIC][42][0]

    store = await open_store(log)
    topic = await store.open_log(TOPIC)
    assert topic is not None
    await topic.trim(cut)
    await store.delete_log(OTHER)
    await store.close()
    assert kafka.read_heads(log) == [LogHead(TOPIC, FIRST, cut)]
    assert entries_in(log) == {TOPIC: written[TOPIC][42:]}


async def test_an_empty_region(log: RegionLog) -> None:
    store = await open_store(log)
    await store.open_log(TOPIC)
    await store.close()
    assert read(log) == []
    assert kafka.read_heads(log) == [LogHead(TOPIC, FIRST, 0)]


def test_an_unavailable_or_empty_kafka_is_reported_as_damage(
    log: RegionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT_MS", 200)
    with pytest.raises(LogDamaged, match="has no topic"):
        kafka.plan(log)
    for servers in ("127.0.0.1:1", "", "nonsense"):
        with pytest.raises(LogDamaged, match=r"the Kafka of us-east at .* cannot be read"):
            kafka.plan(RegionLog("us-east", "kafka", "", servers))


def test_cursors_and_grants_are_what_was_stored_last_and_nothing_else_is_one(log: RegionLog) -> None:
    head, part, gone = CursorKey(TOPIC, "s"), CursorPartKey(TOPIC, "s", "1-0"), CursorKey(TOPIC, "gone")
    grant = GrantKey.of(TOPIC, 0)

    async def scenario() -> None:
        store = await open_store(log)
        for key, value in ((head, b"old"), (part, b"part"), (gone, b"away"), (head, b"new"), (grant, b"{}")):
            await store.put(key.text, value)
        await store.put("topic/x", b"no cursor")
        await store.delete(gone.text)
        await store.close()

    asyncio.run(scenario())
    kept = [(head.text, b"new"), (part.text, b"part"), (grant.text, b"{}")]
    assert kafka.read_values(log) == sorted(kept)


def test_the_end_of_a_log_may_be_a_fence(log: RegionLog) -> None:
    async def open_once() -> None:
        store = await open_store(log)
        topic = await store.open_log(TOPIC)
        assert topic is not None
        await topic.append([b"one"])
        await store.close()

    asyncio.run(open_once())
    before = kafka.read_ends(log)[TOPIC]
    (newest,) = (number for number, _ in entries_in(log)[TOPIC])
    assert before >= newest

    async def open_again() -> None:
        store = await open_store(log)
        await store.open_log(TOPIC)
        await store.close()

    asyncio.run(open_again())
    assert kafka.read_ends(log)[TOPIC] > before


COLUMNS = [name for name in ROW_SCHEMA.names if name not in ("damage", "ledger_id", "entry_id")]
"""Columns that are equal for both backends: all except those of positions."""


@pytest.mark.real
def test_the_same_entries_give_the_same_rows_as_from_sqlite(
    kafka_server: KafkaServer, engine: QueryEngine, tmp_path: Path
) -> None:
    """The same run is written to SQLite and to Kafka."""
    run = failover_drill(seconds=4.0, per_second=50)
    on_sqlite = run.write(tmp_path / "sqlite")
    on_kafka = run.write(tmp_path / "kafka")
    prefix = new_prefix()
    asyncio.run(move_to_kafka(run, on_kafka, kafka_server, prefix))
    rows = []
    for path in (on_sqlite, on_kafka):
        read = read_region_logs(open_run_folder(path))
        assert read.where(F.col("damage").isNotNull()).collect() == []
        in_order = read.orderBy("region", "ledger_id", "entry_id").select(*COLUMNS)
        rows.append([row.asDict() for row in in_order.collect()])
    assert rows[0] == rows[1]
    assert len(rows[0]) == sum(map(len, run.logs.values()))
    trimmed, damages = read_trimmed(open_run_folder(on_kafka), [])
    assert (trimmed.count(), damages) == (0, [])


async def move_to_kafka(run: SampleRun, path: Path, server: KafkaServer, prefix: str) -> None:
    """Move the regions' logs from their files into Kafka."""
    for region in run.regions:
        folder = path / "regions" / region
        config = json.loads((folder / "region.json").read_text())
        options = {"topic_prefix": prefix}
        config["log"].update(backend="kafka", bootstrap_servers=server.bootstrap_servers, options=options)
        (folder / "region.json").write_text(json.dumps(config))
        source = await open_sqlite(folder / "log.sqlite", region)
        store = await open_kafka(region, server.bootstrap_servers, options)
        for name in source.log_names():
            old, new = await source.open_log(name), await store.open_log(name)
            assert old is not None
            assert new is not None
            await new.append([entry.data for entry in await old.read(0, 10**6, 10**9)])
        await store.close()
        await source.close()
        (folder / "log.sqlite").unlink()
