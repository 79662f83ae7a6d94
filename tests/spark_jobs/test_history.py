"""The history as a DataFrame: its schema, its torn ends, its damages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from emulator.history import Event, HistoryWriter, read_events
from spark_jobs import history

GOOD = Event(1.5, "p", "publish", "asked", topic="t", sequence_id=3).to_line() + "\n"


def test_the_schema_is_the_event() -> None:
    spark_types: dict[Any, T.DataType] = {str: T.StringType(), int: T.LongType(), float: T.DoubleType()}
    hints = get_type_hints(Event)
    assert history.EVENT_SCHEMA.names == list(Event.__slots__)
    for field in history.EVENT_SCHEMA.fields:
        hint = hints[field.name]
        plain = next((one for one in (float, int) if hint in (one, one | None)), str)
        assert field.dataType == spark_types[plain], field.name


def test_the_outcomes_are_the_events() -> None:
    from emulator.history import Outcome

    assert Outcome.__args__ == history.OUTCOMES  # type: ignore[attr-defined]


def read(spark: SparkSession, *files: Path) -> tuple[list[Any], int]:
    lines = history.read_history(spark, files)
    return history.events_of(lines).collect(), lines.where(history.is_damage(files)).count()


def test_what_the_writer_writes_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    # A name that means something to Spark's file patterns.
    path = tmp_path / "run [1] {a,b} é" / "producer-*.jsonl"
    writer = HistoryWriter(path, "producer", lambda: 12.25)
    writer.write("publish", "ok", region="a", topic="persistent://x/y/z", producer="p", sequence_id=2**40)
    writer.write("kill", "fact", region="b", detail='quote " and \\ and \n newline')
    writer.close()
    events, bad = read(spark, path)
    assert bad == 0
    assert [Event(**row.asDict()) for row in events] == list(read_events(path))


def test_a_torn_last_line_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(GOOD + GOOD[: len(GOOD) // 2])
    events, bad = read(spark, path)
    assert (len(events), bad) == (1, 0)


@pytest.mark.parametrize(
    "line",
    [
        '{"at_ms":1,"actor"',
        '{"at_ms":1,"actor":"p","op":"publish"}',
        GOOD.strip().replace("asked", "maybe"),
        "\0\0",
    ],
)
def test_any_other_bad_line_is_named(spark: SparkSession, tmp_path: Path, line: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(GOOD + line + "\n" + GOOD)
    events, bad = read(spark, path)
    assert (len(events), bad) == (2, 1)
    assert [damage.sentence for damage in history.bad_line_damages([path])] == [
        "history/p.jsonl:2 is not a history event"
    ]


def test_no_files_are_no_events(spark: SparkSession) -> None:
    assert read(spark) == ([], 0)


def test_a_topic_is_the_same_topic_however_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    names = ("t", "public/default/t", "persistent://public/default/t")
    path = tmp_path / "p.jsonl"
    path.write_text(
        "".join(Event(1.0, "p", "publish", "asked", topic=name).to_line() + "\n" for name in names)
    )
    events, _ = read(spark, path)
    assert {row["topic"] for row in events} == {"persistent://public/default/t"}
