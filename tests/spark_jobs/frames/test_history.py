"""The history's files: whether they are complete, the damages of their lines, and the rows that are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.run.history import HistoryWriter, seal_history
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.embedded.engine import EmbeddedEngine
from spark_jobs.frames.history import read_history
from spark_jobs.sources.history_files import SLICE_BYTES, digest_number, inspect_file, read_rows
from spark_jobs.sources.run_folder import open_run_folder
from spark_jobs.verify import evaluate_run
from tests.spark_jobs.sample_run import SampleRun

REGIONS = ("a", "b")
NAMESPACES = ("public/default",)
READ = b'{"op":"read","outcome":"ok","at_ms":1,"actor":"x","region":"a","topic":"orders",'
HEAD = b'{"op":"head","outcome":"fact","at_ms":1,"actor":"x","format":1,"run":"",'


def write(path: Path, messages: int = 3) -> Path:
    history = HistoryWriter(path, "shop", lambda: 12.25)
    producer = history.opened_producer("a", "orders", "shop", -1)
    for number in range(messages):
        producer.asked_publish(b"payload", replicate_to=["b"]).ok(f"1:{number}:-1")
    history.write("kill", "fact", region="b", detail='quote " and \\ and \n newline')
    history.close()
    return path


def damages_of(path: Path, run: str = "") -> list[str]:
    """Return the damages of the file and of its lines."""
    file = inspect_file(path, run, {path.stem})
    rows = [
        row
        for part in file.slices
        for batch in read_rows(part, REGIONS, NAMESPACES)
        for row in batch.to_pylist()
    ]
    return [damage.sentence for damage in file.damages] + [row["damage"] for row in rows if row["damage"]]


def rows_of(path: Path, regions: Sequence[str] = REGIONS) -> list[dict[str, Any]]:
    parts = inspect_file(path, "", {path.stem}).slices
    return [
        row for part in parts for batch in read_rows(part, regions, NAMESPACES) for row in batch.to_pylist()
    ]


def test_what_the_writer_writes_is_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "history" / "shop.jsonl", messages=1)
    assert damages_of(path) == []
    connect, request, ok, kill = rows_of(path)
    assert (connect["op"], connect["last_sequence_id"]) == ("connect", -1)
    assert (request["topic"], request["sequence_id"], request["replicate_to"]) == (
        "persistent://public/default/orders",
        0,
        ["b"],
    )
    assert (request["session"], request["attributes_digest"]) == (connect["session"], 0)
    assert (ok["ledger_id"], ok["entry_id"], ok["batch_index"], ok["payload_digest"]) == (1, 0, -1, None)
    assert kill["detail"] == 'quote " and \\ and \n newline'


def test_digests_are_signed_numbers() -> None:
    assert digest_number("0" * 15 + "f") == 15
    assert digest_number("f" * 16) == -1


Change = Callable[[list[str]], list[str]]


@pytest.mark.parametrize(
    ("change", "complaints"),
    [
        (lambda lines: lines[:-1], [" has no end"]),
        (lambda lines: lines[:4], [" has no end"]),
        (lambda lines: [*lines[:3], lines[3][:20]], [" has no end", ":4: cannot be parsed"]),
        (lambda lines: lines[1:], [":9: end without a head"]),
        (lambda lines: [*lines[:3], *lines[4:]], [":9: lines: is 9, but 8 lines precede it"]),
        (
            lambda lines: [*lines[:3], lines[3].replace("12.25", "12.26"), *lines[4:]],
            [":10: digest: differs from that"],
        ),
        (lambda lines: [*lines, lines[2]], [":11: continues after its end"]),
        (
            lambda lines: [*lines, lines[2], '{"op":"hire","file":"gone"}\n'],
            [":11: continues after its end", ":12: file: history/gone.jsonl is missing"],
        ),
        (lambda lines: [], [" has no end"]),
        (
            lambda lines: [lines[0].replace('"run":""', '"run":"other"'), *lines[1:]],
            [":1: run: is 'other'"],
        ),
        (
            lambda lines: [lines[0][:-2] + ',"others":["gone"]}\n', *lines[1:]],
            [":1: others: history/gone.jsonl"],
        ),
    ],
)
@pytest.mark.parametrize("slice_bytes", [1, 300, SLICE_BYTES])
def test_a_file_that_is_not_whole_is_named_with_line_and_rule(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    complaints: list[str],
    slice_bytes: int,
) -> None:
    monkeypatch.setattr("spark_jobs.sources.history_files.SLICE_BYTES", slice_bytes)
    path = write(tmp_path / "history" / "shop.jsonl")
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    found = damages_of(path)
    for complaint in complaints:
        assert any(one.startswith(f"history/shop.jsonl{complaint}") for one in found), found


def test_an_interrupted_file_that_was_sealed_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "history" / "shop.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:20])
    seal_history(path, "it was killed")
    assert damages_of(path) == []
    assert len(rows_of(path)) == 4
    write(path)
    assert damages_of(path) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"op": "publsh"}, ":3: op: must be one of"),
        ({"region": "atlantis"}, ':3: region: must be a region of this run (a, b), not "atlantis"'),
        ({"topic": "x/y/z"}, ":3: topic: must be in a namespace of this run (public/default), not x/y/z"),
        ({"origin_region": "b"}, ":3: origin_region: must be the region of the publish"),
        ({"sequence_id": "14"}, ":3: sequence_id: must be an integer"),
        ({"at_ms": 2**60 + 1}, ":3: at_ms: must be less than 2^53"),
        ({"at_ms": 10**400}, ":3: at_ms: must be less than 2^53"),
        ({"detail": "\ud800"}, ":3: cannot be parsed: a text has the lone surrogate '\\ud800'"),
        ({"producer": "\udfff"}, ":3: cannot be parsed: a text has the lone surrogate"),
        ({"replicate_to": ["\ud800"]}, ":3: cannot be parsed: a text has the lone surrogate"),
        ({"\ud800": 1}, ":3: cannot be parsed: a text has the lone surrogate"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: dict[str, object], complaint: str) -> None:
    path = write(tmp_path / "history" / "shop.jsonl")
    lines = path.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | line)
    path.write_text("\n".join(lines) + "\n")
    assert f"history/shop.jsonl{complaint}" in " ".join(damages_of(path))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"detail":"\xed\xa0\x80"}', ":3: cannot be parsed: a text has the lone surrogate"),
        (b"[" * 200_000, ":3: cannot be parsed: it is nested too deeply"),
        (READ + b'"message_id":"9223372036854775808:1:-1"}', ":3: message_id: must be a position that"),
        (READ + b'"message_id":"134217728:1:-1"}', ":3: message_id: must be a position that a log can have"),
        (READ + b'"message_id":"1:68719476736:0"}', ":3: message_id: must be a position that a log can have"),
        (b'[{"op":"end"}]', ":3: must be a JSON object"),
        (HEAD + b'"others":["\\ud800"]}', ":3: cannot be parsed: a text has"),
        (HEAD + b'"others":3}', ":3: others: must be a list of names"),
        (HEAD + b'"others":[[]]}', ":3: others: must be a list of names"),
        (b'{"op":"hire","outcome":"fact","at_ms":1,"actor":"x","file":[]}', ":3: file: must be a name"),
    ],
)
def test_a_line_that_no_writer_writes_is_named(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = write(tmp_path / "history" / "shop.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[2] = line
    path.write_bytes(b"\n".join(lines))
    assert f"history/shop.jsonl{complaint}" in " ".join(damages_of(path))


def test_a_line_with_a_lone_surrogate_makes_the_verdict_unknown(tmp_path: Path) -> None:
    run = SampleRun()
    run.publish("us-east", 1, 1.0)
    path = run.write(tmp_path / "run")
    file = min((path / "history").glob("*.jsonl"))
    lines = file.read_bytes().split(b"\n")
    lines[2] = lines[2][:-1] + rb',"detail":"\ud800"}'
    file.write_bytes(b"\n".join(lines))
    (path / "history" / "x\udcff.jsonl").write_bytes(b"")
    evaluation = evaluate_run(EmbeddedEngine(), path)
    assert evaluation.verdict == "unknown"
    sentences = " ".join(check.sentence for check in evaluation.checks)
    assert f"history/{file.name}:3: cannot be parsed: a text has the lone surrogate" in sentences
    assert r"history/x\udcff.jsonl cannot be read under that name" in sentences


def test_what_is_wrong_everywhere_is_named_a_few_times_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "history" / "shop.jsonl", messages=50)
    path.write_text(path.read_text().replace('"region":"a"', '"region":"c"'))
    damages = damages_of(path)
    assert len(damages) == 22
    assert damages[-1] == "history/shop.jsonl: 81 more lines are wrong"


def test_a_frame_has_every_line(engine: QueryEngine, tmp_path: Path) -> None:
    run = SampleRun()
    run.publish("us-east", 1, 1.0)
    # A name with a special meaning in file patterns.
    folder = open_run_folder(run.write(tmp_path / "run [1] {a,b} é"))
    frame, damages = read_history(folder)
    assert damages == []
    rows = [row for file in folder.history for row in rows_of(file, folder.regions)]
    assert sorted(map(str, rows)) == sorted(str(row.asDict()) for row in frame.collect())
