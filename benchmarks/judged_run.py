"""A run of any size, as real stores and a real history would have left it: what engines are measured on.

    python -m benchmarks.judged_run FOLDER MESSAGES

Three regions, each publishes a third and stores everything; a consumer receives and acknowledges all of it in one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from emulator.model.values import Position
from emulator.run.history_events import framed, payload_digest
from emulator.storage.group import encode_group
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry, with_replication

REGIONS = ("us-east", "us-west", "eu-central")
TOPIC = "persistent://public/default/orders"
GROUP_ENTRIES = 200
START_MS = 1_763_712_000_000.0


def write_run(run: Path, messages: int, payload_bytes: int = 100) -> Path:
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}\n")
    regions = [{"name": name, "log": {"backend": "sqlite", "path": ""}} for name in REGIONS]
    namespaces = [{"name": "public/default", "regions": REGIONS, "deduplication": True}]
    topology = {"clusters": [{"name": "all", "regions": regions}], "namespaces": namespaces, "links": []}
    (run / "topology.json").write_text(json.dumps(topology))
    for region in REGIONS:
        folder = run / "regions" / region
        folder.mkdir(parents=True)
        (folder / "region.json").write_text(json.dumps({"log": {"backend": "sqlite", "path": ""}}))
        _write_log(folder / "log.sqlite", region, _entries(region, messages, payload_bytes))
    (run / "history").mkdir()
    for region in REGIONS:
        actor = f"shop-{region}"
        _write_history(
            run / "history" / f"{actor}.jsonl", actor, _told(actor, region, messages, payload_bytes)
        )
    _write_history(run / "history" / "billing.jsonl", "billing", _received(messages))
    return run


def payload_of(number: int, size: int) -> bytes:
    return b"order %d" % number + b" " * (size - 6 - len(str(number)))


def _entries(region: str, messages: int, size: int) -> Iterator[bytes]:
    """Yield the entries of a log. Message n is of region n modulo 3 and has position n in every log."""
    for number in range(messages):
        origin = REGIONS[number % 3]
        metadata = pb.MessageMetadata(
            producer_name=f"shop-{origin}", sequence_id=number // 3, publish_time=int(START_MS) + number // 10
        )
        entry = build_entry(metadata, payload_of(number, size))
        yield entry if origin == region else with_replication(entry, origin, Position(1, number))


def _write_log(path: Path, region: str, entries: Iterator[bytes]) -> None:
    """docs/ARCHITECTURE.md, "What is on disk"."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        database.execute(
            "CREATE TABLE logs (log_id INTEGER PRIMARY KEY, name, first_entry_id, next_entry_id)"
        )
        database.execute("CREATE TABLE entry_groups (log_id, first_entry_id, entry_count, data)")
        database.executemany("INSERT INTO meta VALUES (?, ?)", [("format_version", "1"), ("region", region)])
        at = 0
        while group := list(islice(entries, GROUP_ENTRIES)):
            database.execute(
                "INSERT INTO entry_groups VALUES (1, ?, ?, ?)", (at, len(group), encode_group(group))
            )
            at += len(group)
        database.execute("INSERT INTO logs VALUES (1, ?, 0, ?)", (TOPIC, at))


def _line(at_ms: float, actor: str, op: str, outcome: str, rest: str) -> str:
    return f'{{"at_ms":{at_ms:.3f},"actor":"{actor}","op":"{op}","outcome":"{outcome}",{rest}}}\n'


def _told(actor: str, region: str, messages: int, size: int) -> Iterator[str]:
    place = f'"region":"{region}","topic":"{TOPIC}","producer":"{actor}","session":"{actor} 1"'
    yield _line(START_MS, actor, "connect", "ok", f'{place},"last_sequence_id":-1')
    for number in range(REGIONS.index(region), messages, 3):
        at_ms = START_MS + number / 10
        message = f'{place},"sequence_id":{number // 3}'
        digest = payload_digest(payload_of(number, size))
        yield _line(at_ms, actor, "publish", "asked", f'{message},"payload_digest":"{digest}"')
        yield _line(at_ms + 2, actor, "publish", "ok", f'{message},"message_id":"1:{number}:-1"')


def _received(messages: int) -> Iterator[str]:
    place = f'"region":"{REGIONS[1]}","topic":"{TOPIC}","subscription":"billing"'
    how = '"replicated":true,"initial":"earliest"'
    yield _line(START_MS, "billing", "subscribe", "asked", f"{place},{how}")
    yield _line(START_MS, "billing", "subscribe", "ok", f"{place},{how}")
    for number in range(messages):
        at_ms = START_MS + number / 10 + 20
        origin = REGIONS[number % 3]
        message = f'"origin_region":"{origin}","producer":"shop-{origin}","sequence_id":{number // 3}'
        there = f'{place},"message_id":"1:{number}:-1"'
        yield _line(at_ms, "billing", "receive", "ok", f"{there},{message}")
        yield _line(at_ms + 1, "billing", "acknowledge", "asked", f'{there},"how":"individual"')


def _write_history(path: Path, actor: str, lines: Iterable[str]) -> None:
    """With a head and an end that are right."""
    head, end = framed([], actor, "").splitlines()
    digest, count = hashlib.sha256(), 0
    with path.open("wb") as file:
        for line in (head + "\n", *()):
            file.write(line.encode())
            digest.update(line.encode())
            count += 1
        for line in lines:
            data = line.encode()
            file.write(data)
            digest.update(data)
            count += 1
        file.write(
            (json.dumps(json.loads(end) | {"lines": count, "digest": digest.hexdigest()}) + "\n").encode()
        )


if __name__ == "__main__":
    write_run(Path(sys.argv[1]), int(sys.argv[2]))
