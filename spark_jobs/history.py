"""`history/*.jsonl` as a DataFrame: what clients asked and what they were told.

A torn last line of a file is passed over: its writer was killed while writing, and the operation it spoke of
stays unknown. Any other line that is no event is a damage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.evidence import small_frame
from spark_jobs.run_folder import Damage

EVENT_SCHEMA = T.StructType(
    [
        T.StructField("at_ms", T.DoubleType()),
        T.StructField("actor", T.StringType()),
        T.StructField("op", T.StringType()),
        T.StructField("outcome", T.StringType()),
        T.StructField("region", T.StringType()),
        T.StructField("other_region", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("subscription", T.StringType()),
        T.StructField("origin_region", T.StringType()),
        T.StructField("producer", T.StringType()),
        T.StructField("sequence_id", T.LongType()),
        T.StructField("message_id", T.StringType()),
        T.StructField("error", T.StringType()),
        T.StructField("detail", T.StringType()),
    ]
)
"""Field for field `emulator.history.Event`; a test compares them."""

REQUIRED = ("at_ms", "actor", "op", "outcome")
OUTCOMES = ("asked", "ok", "failed", "unknown", "fact")
_BAD_LINE = "bad_line"
_TAIL_BYTES = 1 << 20
"""More than any line; only the end of a file is looked at."""


def read_history(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Every line as an event, plus `bad_line`: null, or the text of a line that is no event. Topics are in their full
    form, so that they compare with the names of logs."""
    schema = T.StructType([*EVENT_SCHEMA.fields, T.StructField(_BAD_LINE, T.StringType())])
    if not files:
        return small_frame(spark, [], schema)
    lines = (
        spark.read.schema(schema)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _BAD_LINE)
        .json([_spark_path(file) for file in files])
    )
    bad = F.coalesce(_BAD_LINE, F.when(~_is_event(), F.to_json(F.struct("*"))))
    return lines.withColumns({_BAD_LINE: bad, "topic": full_topic("topic")})


def events_of(lines: DataFrame) -> DataFrame:
    """The good ones."""
    return lines.where(F.col(_BAD_LINE).isNull()).drop(_BAD_LINE)


def is_damage(files: Sequence[Path]) -> Column:
    """Which lines are neither events nor the torn last line of one of the `files`."""
    torn = [tail for tail in map(torn_tail, files) if tail]
    bad = F.col(_BAD_LINE).isNotNull()
    return bad & ~F.col(_BAD_LINE).isin(torn) if torn else bad


def torn_tail(file: Path) -> str:
    """What follows the last newline: nothing in a file whose writer was not interrupted."""
    with file.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - _TAIL_BYTES))
        return stream.read().rpartition(b"\n")[2].decode(errors="replace")


def bad_line_damages(files: Sequence[Path], limit: int = 3) -> list[Damage]:
    """Name the bad lines of `files`; called once Spark has found that there are some."""
    damages: list[Damage] = []
    for file in files:
        torn = torn_tail(file)
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not _is_good(line) and line.decode(errors="replace") != torn:
                    damages.append(Damage(f"history/{file.name}:{number} is not a history event"))
                if len(damages) == limit:
                    return damages
    return damages


def full_topic(column: str) -> Column:
    """`topic`, `tenant/ns/topic` and the full form become the full form, as clients understand them."""
    topic = F.col(column)
    return (
        F.when(topic.contains("://"), topic)
        .when(topic.contains("/"), F.concat(F.lit("persistent://"), topic))
        .otherwise(F.concat(F.lit("persistent://public/default/"), topic))
    )


def _is_event() -> Column:
    known = F.col("outcome").isin(*OUTCOMES)
    for name in REQUIRED:
        known = known & F.col(name).isNotNull()
    return F.coalesce(known, F.lit(False))


def _is_good(line: bytes) -> bool:
    if not line.strip():
        return True
    try:
        event = json.loads(line)
        return all(event.get(name) is not None for name in REQUIRED) and event["outcome"] in OUTCOMES
    except (ValueError, AttributeError):
        return False


def _spark_path(file: Path) -> str:
    """Spark reads patterns; a run directory may be called anything."""
    return "file:" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(file.absolute()))
