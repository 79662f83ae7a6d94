"""The directory of a run of two messages, which warms up an engine: evaluating it loads the code of all queries."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from emulator.run.history import HistoryWriter
from emulator.storage.group import encode_group
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry

REGIONS = ("a", "b")
TOPIC = "persistent://public/default/warm-up"
MESSAGES = 2
PAYLOAD = b"warm-up"


@contextlib.contextmanager
def tiny_run() -> Iterator[Path]:
    """Write a run directory whose verdict is valid, and delete it at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="geoemu-warm-up-") as folder:
        write_tiny_run(Path(folder))
        yield Path(folder)


def write_tiny_run(run: Path) -> None:
    """Write the directory of a run of two regions, with only the files that the verdict reads."""
    regions = [{"name": name, "log": {"backend": "sqlite", "path": ""}} for name in REGIONS]
    topology = {
        "clusters": [{"name": "one", "regions": regions}],
        "namespaces": [{"name": "public/default", "regions": REGIONS, "deduplication": True}],
        "links": [],
    }
    _write_json(run / "run.json", {})
    _write_json(run / "topology.json", topology)
    for region in REGIONS:
        _write_json(run / "regions" / region / "region.json", {"log": {"backend": "sqlite", "path": ""}})
        entries = [_entry(number, region) for number in range(MESSAGES)]
        write_log(run / "regions" / region / "log.sqlite", region, entries)
    clock = count(1000)
    history = HistoryWriter(run / "history" / "warm-up.jsonl", "warm-up", lambda: next(clock))
    history.subscribed("a", TOPIC, "s", replicated=True, initial="earliest")
    producer = history.opened_producer("a", TOPIC, "p", -1)
    for number in range(MESSAGES):
        producer.asked_publish(PAYLOAD).ok(f"1:{number}:-1")
        origin = {"origin_region": "a", "producer": "p", "sequence_id": number}
        place = {"region": "a", "topic": TOPIC, "subscription": "s", "message_id": f"1:{number}:-1"}
        history.write("receive", "ok", **place, **origin)
    history.write("kill", "fact", region="b")
    history.write("start", "fact", region="b")
    history.close()


def write_log(path: Path, region: str, entries: Sequence[bytes]) -> None:
    """Write a region's log file with one group commit, in the format of docs/ARCHITECTURE.md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        database.execute(
            "CREATE TABLE logs (log_id INTEGER PRIMARY KEY, name, first_entry_id, next_entry_id)"
        )
        database.execute("CREATE TABLE entry_groups (log_id, first_entry_id, entry_count, data)")
        database.executemany("INSERT INTO meta VALUES (?, ?)", [("format_version", "1"), ("region", region)])
        database.execute("INSERT INTO logs VALUES (1, ?, 0, ?)", (TOPIC, len(entries)))
        group = encode_group(entries)
        database.execute("INSERT INTO entry_groups VALUES (1, 0, ?, ?)", (len(entries), group))


def _entry(number: int, region: str) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    if region != "a":
        metadata.replicated_from = "a"
    return build_entry(metadata, PAYLOAD)


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
