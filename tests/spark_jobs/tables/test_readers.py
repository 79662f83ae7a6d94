"""The public tables of a run: their rows, their schema, and filters that leave out parts, groups and rows."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emulator.model.stored_keys import CursorKey
from emulator.storage.sqlite.store import open_sqlite
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.frames.history import history_lines
from spark_jobs.sources.history_files import ROW_SCHEMA as HISTORY_SCHEMA
from spark_jobs.sources.region_log import ROW_SCHEMA, read_region_logs
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.tables.filters import Condition, RowFilter
from spark_jobs.tables.readers import EvidenceUnreadable, OnDamage, table_source
from spark_jobs.tables.schema import TABLES

from ..sample_run import TOPIC, SampleRun


def read_arrow(run: Path, name: str, *conditions: Condition, on_damage: OnDamage = "fail") -> pa.Table:
    source = table_source(open_run_folder(run), name, RowFilter(conditions), on_damage)
    batches = [batch for part in source.parts() for batch in source.read(part)]
    return pa.Table.from_batches(batches, source.schema)


def read_table(
    run: Path, name: str, *conditions: Condition, on_damage: OnDamage = "fail"
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_arrow(run, name, *conditions, on_damage=on_damage).to_pylist()
    return rows


@pytest.fixture
def run(drill_template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(drill_template, tmp_path / "run"))


def test_messages_and_markers_have_every_column_of_the_evidence() -> None:
    """An export of these tables is complete evidence."""
    renamed = {"producer_name": "producer"}
    columns = {renamed.get(name, name) for name in ROW_SCHEMA.names if name != "claim"}
    assert columns - {"marker_type", "marker"} == set(TABLES["messages"].schema.names)
    assert columns == set(TABLES["markers"].schema.names)
    assert set(HISTORY_SCHEMA.names) == set(TABLES["history"].schema.names)


def test_messages_are_the_rows_that_the_verdict_reads(run: Path) -> None:
    with use_engine(EmbeddedEngine()):
        rows = [row.asDict() for row in read_region_logs(open_run_folder(run)).collect()]
    for row in rows:
        row["producer"] = row.pop("producer_name")
        del row["marker"], row["marker_type"], row["claim"]
    key = lambda row: (row["region"], row["ledger_id"], row["entry_id"])  # noqa: E731
    assert sorted(read_table(run, "messages"), key=key) == sorted(rows, key=key)
    assert len(rows) > 500


def test_an_entry_is_a_message_a_batch_a_chunk_or_a_marker(tmp_path: Path) -> None:
    small = SampleRun({"one": ("a",)})
    small.publish("a", 0, 1.0)
    batch = pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=5, num_messages_in_batch=3)
    single = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
    payload = (len(single).to_bytes(4, "big") + single + b"x") * 3
    small.store("a", build_entry(batch, payload))
    for chunk in range(2):
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=9, publish_time=6, uuid="u", chunk_id=chunk, num_chunks_from_msg=2
        )
        small.store("a", build_entry(metadata, b"half"))
    small.end("a", (0, 3), 2.0, commit=True)
    changed = bytearray(small.logs["a"][0])
    changed[-1] ^= 1
    small.store("a", bytes(changed))
    run = small.write(tmp_path / "run")
    rows = read_table(run, "entries")
    names = ("entry_id", "messages", "chunk_id", "chunks", "is_sound")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, 1, None, None, True),
        (1, 3, None, None, True),
        (2, 0, 0, 2, True),
        (3, 1, 1, 2, True),
        (4, 0, None, None, True),
        (5, 1, None, None, False),
    ]
    assert [row["entry_bytes"] for row in rows] == [len(entry) for entry in small.logs["a"]]
    assert rows[4]["marker_type"] is not None
    assert rows[4]["transaction"] == "0,3"
    assert sorted(row["entry_id"] for row in read_table(run, "messages")) == [0, 1, 1, 1, 3, 5]
    assert [(row["entry_id"], row["transaction"]) for row in read_table(run, "markers")] == [(4, "0,3")]


def test_cursors_are_positions_and_ranges_after_them(run: Path) -> None:
    async def store() -> None:
        opened = await open_sqlite(run / "regions/us-east/log.sqlite", "us-east")
        for name, ranges in (("billing", [[5, 6], [8, 9]]), ("new", [])):
            head = {"format": 1, "mark_delete": 3 if ranges else -1, "ranges": ranges}
            await opened.put(CursorKey(TOPIC, name).text, json.dumps(head).encode())
        await opened.put(CursorKey(TOPIC, "odd").text, b"not json")
        await opened.close()

    asyncio.run(store())
    with pytest.raises(EvidenceUnreadable, match="the cursor of odd in us-east cannot be read"):
        read_table(run, "cursors")
    rows = read_table(run, "cursors", on_damage="rows")
    assert {(row["subscription"], row["mark_delete"], tuple(row["acknowledged"] or ())) for row in rows} == {
        ("billing", 3, ((5, 6), (8, 9))),
        ("new", -1, ()),
        (None, None, ()),
    }


def test_history_and_faults_are_lines_of_the_history(run: Path) -> None:
    lines, _ = history_lines(open_run_folder(run))
    written = sum(file.read_text().count("\n") for file in (run / "history").glob("*.jsonl"))
    frames = 2 * len({part.path for part in lines.parts()})
    assert len(read_table(run, "history")) == written - frames
    faults = read_table(run, "faults")
    assert [(row["op"], row["region"]) for row in faults] == [("kill", "us-east"), ("start", "us-east")]
    assert {row["history_file"] for row in faults} == {"scenario"}


def test_a_filter_leaves_out_parts_of_other_regions_and_files(run: Path) -> None:
    folder = open_run_folder(run)
    for name in ("messages", "cursors", "entries"):
        only = RowFilter((Condition("region", "=", "us-west"),))
        (part,) = table_source(folder, name, only).parts()
        assert "us-west" in str(part)
    only = RowFilter((Condition("history_file", "in", ("scenario", "nothing")),))
    assert [part.path.stem for part in table_source(folder, "history", only).parts()] == ["scenario"]


@pytest.mark.parametrize(
    ("condition", "is_kept"),
    [
        (Condition("entry_id", "<", 10), lambda row: row["entry_id"] < 10),
        (Condition("entry_id", "=", 700), lambda row: row["entry_id"] == 700),
        (Condition("entry_id", ">", 700), lambda row: row["entry_id"] > 700),
        (Condition("entry_id", "in", (3, 4)), lambda row: row["entry_id"] in (3, 4)),
        (Condition("entry_id", "in", ()), lambda row: False),
        (Condition("entry_id", "=", 3, negated=True), lambda row: row["entry_id"] != 3),
        (Condition("region", "=", "us-west", negated=True), lambda row: row["region"] != "us-west"),
        (Condition("topic", "=", TOPIC), lambda row: True),
        (Condition("topic", "starts with", "persistent://other/"), lambda row: False),
        (Condition("topic", "is null"), lambda row: False),
        (Condition("replicated_from", "is null"), lambda row: row["replicated_from"] is None),
        (
            Condition("replicated_from", "in", ("us-east",), negated=True),
            lambda row: row["replicated_from"] not in (None, "us-east"),
        ),
        (Condition("is_sound", "=", True), lambda row: True),
        (Condition("ledger_id", "<=", 5), lambda row: row["ledger_id"] <= 5),
    ],
)
def test_a_filter_leaves_out_rows(drill_template: Path, condition: Condition, is_kept: Any) -> None:
    assert condition.is_applicable(TABLES["messages"].schema)
    every = read_table(drill_template, "messages")
    assert read_table(drill_template, "messages", condition) == [row for row in every if is_kept(row)]


@pytest.mark.parametrize(
    "condition",
    [
        Condition("entry_id", "=", "7"),
        Condition("entry_id", "=", 2**63),
        Condition("entry_id", "=", 1.5),
        Condition("entry_id", "in", (1, None)),
        Condition("topic", "=", None),
        Condition("replicate_to", "is null"),
        Condition("nowhere", "=", 1),
    ],
)
def test_a_condition_that_needs_spark_s_rules_is_left_to_spark(condition: Condition) -> None:
    assert not condition.is_applicable(TABLES["messages"].schema)


def test_damage_fails_unless_its_rows_are_requested(run: Path) -> None:
    (run / "regions/us-west/log.sqlite").write_bytes(b"no database" * 1000)
    for name in ("messages", "markers", "entries", "cursors"):
        with pytest.raises(EvidenceUnreadable, match=r"regions/us-west/log\.sqlite cannot be read"):
            read_table(run, name)
        damaged = [row for row in read_table(run, name, on_damage="rows") if row["damage"]]
        assert [row["region"] for row in damaged] == ["us-west"]
        assert read_table(run, name, Condition("region", "=", "us-east")) == [
            row for row in read_table(run, name, on_damage="drop") if row["region"] == "us-east"
        ]
    with (run / "history/orders-us-east.jsonl").open("a") as file:
        file.write("{\n")
    with pytest.raises(EvidenceUnreadable, match=r"history/orders-us-east\.jsonl:\d+: cannot be parsed"):
        read_table(run, "history")
