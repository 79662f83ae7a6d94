"""The findings of the checks: one frame for all checks, so that one Spark job computes all of them.

A row is one violation, or another object that a check reports; `kind` distinguishes the rows of a check. Rows with
equal `GROUP` columns form a `FindingGroup`. The number of checked objects is a group without examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.engines.frames import Column, DataFrame, F, Window, coalesced, selected
from spark_jobs.verdict import Witness

COLUMNS: Mapping[str, str] = {
    "kind": "string",
    "region": "string",
    "other_region": "string",
    "namespace": "string",
    "subscription": "string",
    "topic": "string",
    "origin_region": "string",
    "producer": "string",
    "sequence_id": "bigint",
    "position": "string",
    "origin_position": "string",
    "other_position": "string",
    "at_ms": "double",
    "until_ms": "double",
    "times": "int",
    "epoch": "bigint",
    "owner": "string",
    "transaction": "string",
    "transaction_key": "string",
}
"""Name and SQL type of each column of a finding."""

GROUP = ("kind", "region", "other_region", "namespace", "subscription", "origin_region")
WITNESS = (
    "topic",
    "origin_region",
    "producer",
    "sequence_id",
    "position",
    "origin_position",
    "other_position",
    "at_ms",
    "until_ms",
    "times",
    "epoch",
    "owner",
    "transaction",
    "transaction_key",
)
EXAMPLES = f"ARRAY<STRUCT<rank: INT, {', '.join(f'{name}: {COLUMNS[name]}' for name in WITNESS)}>>"
WITNESSES_MAX = 5
"""Maximum number of examples per group; enough to see a pattern."""


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """The findings of one check with equal `GROUP` columns."""

    kind: str
    n: int
    region: str | None = None
    other_region: str | None = None
    namespace: str | None = None
    subscription: str | None = None
    origin_region: str | None = None
    first_ms: float | None = None
    last_ms: float | None = None
    examples: tuple[Witness, ...] = ()
    """The first few findings in order of time, without the fields that do not apply."""


def finding(frame: DataFrame, kind: str | Column, **columns: str | Column | int) -> DataFrame:
    """Return `frame` in the schema `COLUMNS`. Keyword arguments are SQL text, columns or integers; other columns are
    taken from `frame`, or null if `frame` lacks them."""
    values = {"kind": _literal(kind) if isinstance(kind, str) else kind, **columns}
    present = set(frame.columns)
    return selected(
        frame,
        {
            name: _cast(values.get(name, name if name in present else "NULL"), type_name)
            for name, type_name in COLUMNS.items()
        },
    )


def _literal(text: str) -> str | Column:
    """Return SQL text unless it would contain a quote, which the engines write differently."""
    return F.lit(text) if "'" in text else f"'{text}'"


def _cast(value: str | Column | int, type_name: str) -> str | Column:
    """Return SQL text where possible: each part of a column expression costs Spark a call to Java."""
    return f"CAST({value} AS {type_name})" if isinstance(value, str | int) else value.cast(type_name)


def all_of(frames: Iterable[DataFrame]) -> DataFrame:
    """Return the union of at least one frame, built by halves: engines analyse the whole plan at each union, so most
    plans should be short."""
    frames = list(frames)
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return all_of(frames[:half]).union(all_of(frames[half:]))


def group_findings(findings: DataFrame) -> DataFrame:
    """Return one row per check and group: number, first and last time, examples. Requires a column `check`."""
    keys = ["check", *GROUP]
    order = Window.partitionBy(*keys).orderBy("at_ms", "topic", "producer", "sequence_id", "position")
    example = F.when(F.col("rank") <= WITNESSES_MAX, F.struct("rank", *WITNESS))
    return (
        coalesced(findings)
        .withColumn("rank", F.row_number().over(order))
        .groupBy(*keys)
        .agg(
            F.count("*").alias("n"),
            F.min("at_ms").alias("first_ms"),
            F.max("at_ms").alias("last_ms"),
            F.sort_array(F.collect_list(example)).alias("examples"),
        )
    )


def finding_group(row: Mapping[str, Any]) -> FindingGroup:
    """Convert a collected row of `group_findings`."""
    shared = {name: row[name] for name in ("region", "other_region", "subscription") if row[name] is not None}
    examples = tuple(
        {"kind": row["kind"], **shared} | {name: one[name] for name in WITNESS if one[name] is not None}
        for one in row["examples"]
    )
    return FindingGroup(
        **{name: row[name] for name in GROUP},
        n=row["n"] or 0,
        first_ms=row["first_ms"],
        last_ms=row["last_ms"],
        examples=examples,
    )
