"""What an export has of a region's store besides the public tables: heads and ends of logs, stored values, and the
entries of transaction journals and of the metadata event topic (`StoredReader`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from emulator.storage.group import encode_group
from spark_jobs.sources.contract import Group, LogDamaged, LogHead, StoredValue
from spark_jobs.sources.export_folder import EVIDENCE, FileDamaged, read_export, read_file
from spark_jobs.sources.run_folder import RegionLog

GROUP_ENTRIES = 1000

SCHEMAS = {
    "heads": pa.schema([("topic", pa.string()), ("ledger_id", pa.int64()), ("first_entry_id", pa.int64())]),
    "ends": pa.schema([("topic", pa.string()), ("entry_id", pa.int64())]),
    "values": pa.schema([("key", pa.string()), ("value", pa.binary())]),
    "entries": pa.schema(
        [
            ("topic", pa.string()),
            ("ledger_id", pa.int64()),
            ("entry_id", pa.int64()),
            ("data", pa.binary()),
        ]
    ),
}
"""Schemas of the tables in `evidence/`. `entries` has those of internal topics only."""


def table_name(name: str) -> str:
    """Return the name of a table of `evidence/` in the manifest."""
    return f"{EVIDENCE}/{name}"


def read_topic(log: RegionLog, topic: str) -> Iterator[Group]:
    """Yield the entries of an internal topic, in the group codec."""
    of_topic = (row for row in _rows(log, "entries") if row["topic"] == topic)
    for ledger_id, rows in groupby(of_topic, key=lambda row: row["ledger_id"]):
        entries: list[bytes] = []
        first = 0
        for row in rows:
            if entries and (row["entry_id"] != first + len(entries) or len(entries) >= GROUP_ENTRIES):
                yield Group(topic, ledger_id, first, 0, bytes(encode_group(entries)))
                entries = []
            first = first if entries else row["entry_id"]
            entries.append(row["data"])
        if entries:
            yield Group(topic, ledger_id, first, 0, bytes(encode_group(entries)))


def read_heads(log: RegionLog) -> list[LogHead]:
    """Return the head of each topic's log."""
    return [LogHead(*row.values()) for row in _rows(log, "heads")]


def read_ends(log: RegionLog) -> dict[str, int]:
    """Return the highest entry id by topic, where it may be larger than that of the newest entry."""
    return {row["topic"]: row["entry_id"] for row in _rows(log, "ends")}


def read_values(log: RegionLog) -> list[tuple[str, StoredValue]]:
    """Return stored cursors and grants, by key."""
    return [(row["key"], row["value"]) for row in _rows(log, "values")]


def _rows(log: RegionLog, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one region. LogDamaged if they cannot be read now, or could not be read by the export."""
    folder = Path(log.path)
    export = read_export(folder)
    assert export is not None, f"{folder} was an export when the run was opened"
    for region, table, why in export.log_damages:
        if (region, table) == (log.region, name):
            raise LogDamaged(why)
    for file in export.of(table_name(name)):
        if file.value == log.region:
            try:
                for batch in read_file(folder, file, SCHEMAS[name]):
                    yield from batch.to_pylist()
            except FileDamaged as damage:
                raise LogDamaged(str(damage)) from damage
