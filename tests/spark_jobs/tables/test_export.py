"""Exports: their files, the verdict on them, and damage of every kind."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emulator.model.markers import Snapshot
from emulator.model.stored_keys import CursorKey
from emulator.model.values import Position
from emulator.storage.sqlite.store import open_sqlite
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.evaluation import Evaluation
from spark_jobs.sources.export_folder import MANIFEST, ExportUnreadable
from spark_jobs.sources.marker_claims import CLAIM, with_claims
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.tables.export import ExportRefused, export_run
from spark_jobs.tables.schema import TABLES
from spark_jobs.verify import evaluate_run, main

from ..sample_run import TOPIC, SampleRun, place
from ..tampering.runs import (
    EAST,
    WEST,
    both_granted,
    converged,
    coordinator,
    cursor_at,
    keyed,
    replicated_cursors,
    small_run,
    two_owners,
)
from .test_readers import read_table


@pytest.fixture
def run(drill_template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(drill_template, tmp_path / "run"))


@pytest.fixture
def export(run: Path, tmp_path: Path) -> Path:
    return export_run(run, tmp_path / "export").folder


def result(evaluation: Evaluation) -> dict[str, Any]:
    """Return the content of report.json, without the path of the run."""
    return {**evaluation.as_json(), "run": ""}


def verdict_on(run: Path) -> Evaluation:
    return evaluate_run(EmbeddedEngine(), run)


def store_cursor(run: Path, region: str, mark_delete: int) -> None:
    async def store() -> None:
        opened = await open_sqlite(run / "regions" / region / "log.sqlite", region)
        head = {"format": 1, "mark_delete": mark_delete, "ranges": []}
        await opened.put(CursorKey(TOPIC, "billing").text, json.dumps(head).encode())
        await opened.close()

    asyncio.run(store())


def impossible() -> SampleRun:
    run = small_run()
    run.mark(EAST, Snapshot("s", place(EAST, 1), ((WEST, Position(2**27, 1)),)), 20)
    return run


def in_transaction(tmp_path: Path) -> Path:
    run = SampleRun()
    run.publish("us-east", 0, 1.0, transaction=(0, 3))
    run.end("us-east", (0, 3), 1.5, commit=True)
    run.publish("us-east", 1, 2.0, transaction=(0, 4))
    run.end("us-east", (0, 4), 2.5, commit=False)
    return run.write(tmp_path / "transactional")


def test_the_verdict_on_an_export_is_that_on_the_run(
    run: Path, export: Path, engine: QueryEngine, tmp_path: Path
) -> None:
    assert result(evaluate_run(engine, export)) == result(evaluate_run(engine, run))
    store_cursor(run, "us-west", 10_000)
    lost = run / "regions/eu-central/log.sqlite"
    lost.write_bytes(lost.read_bytes()[:50_000])
    with (run / "history/orders-us-east.jsonl").open("a") as file:
        file.write("{\n")
    damaged = result(evaluate_run(engine, run))
    assert damaged["verdict"] == "invalid"
    again = export_run(run, tmp_path / "damaged").folder
    assert result(evaluate_run(engine, again)) == damaged


def test_the_verdict_on_transactions_is_the_same(tmp_path: Path) -> None:
    run = in_transaction(tmp_path)
    export = export_run(run, tmp_path / "export").folder
    assert result(verdict_on(export)) == result(verdict_on(run))


@pytest.mark.parametrize(
    ("make", "on_disk", "verdict"),
    [
        pytest.param(converged, replicated_cursors(), "valid", id="markers"),
        pytest.param(converged, replicated_cursors(us_west=7), "invalid", id="a cursor that lacks an update"),
        pytest.param(keyed, coordinator(), "valid", id="journals"),
        pytest.param(two_owners, both_granted, "valid", id="grants"),
        pytest.param(impossible, cursor_at(2), "unknown", id="an impossible position"),
    ],
)
def test_the_verdict_on_markers_and_stored_values_is_the_same(
    tmp_path: Path, make: Callable[[], SampleRun], on_disk: Callable[[Path], object], verdict: str
) -> None:
    run = make().write(tmp_path / "run")
    on_disk(run)
    expected = result(verdict_on(run))
    assert expected["verdict"] == verdict
    export = export_run(run, tmp_path / "export").folder
    assert result(verdict_on(export)) == expected


def test_markers_of_an_export_are_read_by_their_texts() -> None:
    """The exports of versions without the rule of impossible positions contain these texts."""
    texts = [
        None,
        '{"subscription": "s", "positions": [["b", [134217728, 1]]]}',
        "{}",
        '{"positions": 3}',
        "[",
    ]
    columns = {"marker": pa.array(texts), "claim": pa.nulls(len(texts), CLAIM)}
    rows = with_claims(pa.RecordBatch.from_pydict(columns))
    problems = [claim and claim["problem"] for claim in rows.column("claim").to_pylist()]
    assert problems[:2] == [None, "it has the position 134217728:1, which no log can have"]
    assert ["it is no marker of an export" in str(one) for one in problems[2:]] == [True] * 3


def test_an_export_has_every_table_with_the_rows_of_the_run(run: Path, export: Path) -> None:
    store_cursor(run, "us-west", 5)
    again = export_run(run, export.with_name("with-cursor")).folder
    for name in TABLES:
        order = lambda row: sorted(row.items(), key=str)  # noqa: E731
        rows = sorted(read_table(run, name), key=lambda row: str(order(row)))
        assert sorted(read_table(again, name), key=lambda row: str(order(row))) == rows
    assert len(read_table(again, "cursors")) == 1
    (file,) = (again / "tables/messages/region=us-west").iterdir()
    columns = [name for name in TABLES["messages"].schema.names if name != "region"]
    assert pq.read_schema(file).names == columns


def test_an_export_contains_no_payload(run: Path, export: Path) -> None:
    assert b"order 1 of us-east" in (run / "regions/us-east/log.sqlite").read_bytes()
    assert not [file for file in export.rglob("*.parquet") if b"order 1 of" in file.read_bytes()]
    assert not list(export.rglob("log.sqlite*"))


def change(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("table", ["messages", "history"])
def test_a_damaged_file_makes_the_verdict_unknown_and_is_named(export: Path, table: str) -> None:
    files = sorted((export / "tables" / table).rglob("*.parquet"))
    name = str(files[0].relative_to(export))
    changed = {}
    for at in (5, files[0].stat().st_size // 3, files[0].stat().st_size // 2, -20):
        original = files[0].read_bytes()
        change(files[0], at)
        changed[at] = verdict_on(export)
        files[0].write_bytes(original)
    files[0].write_bytes(files[0].read_bytes()[:-1000])
    changed["truncated"] = verdict_on(export)
    files[0].unlink()
    changed["missing"] = verdict_on(export)
    for what, evaluation in changed.items():
        assert evaluation.verdict == "unknown", what
        assert name in evaluation.checks[0].sentence, what


def test_every_changed_byte_of_a_file_is_detected_or_without_effect(tmp_path: Path) -> None:
    small = SampleRun({"one": ("a",)})
    small.subscribe("a", 0.5)
    small.publish("a", 0, 1.0)
    small.receive("a", "a", 0, 2.0)
    export = export_run(small.write(tmp_path / "run"), tmp_path / "export").folder
    expected = read_table(export, "messages")
    (file,) = (export / "tables/messages").rglob("*.parquet")
    original = file.read_bytes()
    for at in range(4, len(original), 7):
        change(file, at)
        rows = read_table(export, "messages", on_damage="rows")
        assert rows == expected or any(row["damage"] for row in rows), at
        file.write_bytes(original)


def test_stored_values_that_cannot_be_read_are_damage(run: Path, tmp_path: Path) -> None:
    store_cursor(run, "us-west", 5)
    export = export_run(run, tmp_path / "with-cursor").folder
    (file,) = (export / "evidence/values").rglob("*.parquet")
    file.unlink()
    evaluation = verdict_on(export)
    assert evaluation.verdict == "unknown"
    assert "evidence/values/region=us-west/part-00000.parquet is missing" in evaluation.checks[0].sentence


def complain(export: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([str(export), "--engine", "embedded"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_half_an_export_or_another_version_is_one_sentence(
    export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = export / MANIFEST
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "schema_version": 2}))
    assert "has schema version 2; this geoemu reads version 1" in complain(export, capsys)
    for text in ("{", "[]", "{}", json.dumps({**content, "files": [{"path": "x"}]})):
        manifest.write_text(text)
        assert f"{MANIFEST} cannot be read" in complain(export, capsys)
    outside = [{**one, "path": "../../etc/passwd"} for one in content["files"]]
    manifest.write_text(json.dumps({**content, "files": outside}))
    assert "is outside of the export" in complain(export, capsys)
    manifest.unlink()
    assert "is an incomplete export: export.json, which is written last, is missing" in complain(
        export, capsys
    )


def test_a_file_that_the_manifest_does_not_name_is_ignored(export: Path) -> None:
    before = result(verdict_on(export))
    files = sorted((export / "tables/messages").rglob("*.parquet"))
    shutil.copy(files[0], files[0].with_name("part-00009.parquet"))
    assert result(verdict_on(export)) == before


def test_a_region_s_name_is_encoded_in_paths(tmp_path: Path) -> None:
    small = SampleRun({"one": ("a b=c",)})
    small.publish("a b=c", 0, 1.0)
    export = export_run(small.write(tmp_path / "run"), tmp_path / "export").folder
    assert (export / "tables/messages/region=a%20b%3Dc").is_dir()
    assert [row["region"] for row in read_table(export, "messages")] == ["a b=c"]


def test_what_cannot_be_exported(run: Path, export: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match="nowhere is not a run directory"):
        export_run(tmp_path / "nowhere", tmp_path / "new")
    with pytest.raises(ExportRefused, match="export exists already"):
        export_run(run, export)
    with pytest.raises(ExportRefused, match="is an export already"):
        export_run(export, tmp_path / "new")
    with pytest.raises(OSError, match="Not a directory"):
        export_run(run, run / "run.json" / "x")
    (export / MANIFEST).unlink()
    with pytest.raises(ExportUnreadable):
        open_run_folder(export)
    assert not (tmp_path / "new").exists()


def test_an_export_deletes_no_directory_that_it_did_not_make(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the name of the new directory is that of the working directory."""
    (tmp_path / "new.partial").mkdir()
    (tmp_path / "new.partial" / "mine").touch()
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    done = export_run(run.resolve(), Path("."))
    assert (done.folder, (tmp_path / "new" / "export.json").is_file()) == (tmp_path / "new", True)
    assert (tmp_path / "new.partial" / "mine").exists()


def test_an_export_that_fails_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("spark_jobs.tables.export.Export.write", fail)
    with pytest.raises(OSError, match="no space left"):
        export_run(run, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_the_time_of_the_export_decides_what_was_on_the_way(tmp_path: Path) -> None:
    """A message that was not replicated yet when the run was exported stays on the way, however late the verdict is."""
    small = SampleRun()
    for number in range(3):
        small.publish("us-east", number, 1.0 + number, to=None if number < 2 else ())
    run = small.write(tmp_path / "run")
    assert verdict_on(run).verdict == "invalid"
    export = export_run(run, tmp_path / "export").folder
    assert verdict_on(export).verdict == "invalid"
    content = json.loads((export / MANIFEST).read_text())
    (export / MANIFEST).write_text(json.dumps({**content, "read_at_ms": small.time_ms(3.5)}))
    assert verdict_on(export).verdict == "unknown"
