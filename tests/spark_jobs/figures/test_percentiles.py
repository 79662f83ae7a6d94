"""Percentiles are exact with either engine, also of more durations than an estimating aggregate keeps."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest

from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import schema, small_frame
from spark_jobs.figures.percentiles import PERCENTILES, exact_percentiles, seconds_of

SCHEMA = schema("name string, took_ms double")


def measured(durations: list[tuple[str, float]]) -> dict[str, dict[str, float]]:
    rows = exact_percentiles(small_frame(durations, SCHEMA), ["name"], "took_ms").collect()
    return {
        row["name"]: {"n": row["n"], **{name: seconds_of(row[name]) for name in (*PERCENTILES, "max")}}
        for row in rows
    }


@pytest.mark.parametrize("number", [1, 2, 99, 100, 101, 30_000])
def test_a_percentile_is_the_smallest_duration_that_its_share_does_not_exceed(
    engine: QueryEngine, number: int
) -> None:
    random = Random(number)
    durations = [random.lognormvariate(3, 2) for _ in range(number)]
    ordered = sorted(durations)
    expected = {
        name: round(ordered[ceil(number * percentage / 100) - 1] / 1000, 4)
        for name, percentage in PERCENTILES.items()
    }
    found = measured([("a", one) for one in durations] + [("b", 5.0)])
    assert found["a"] == {"n": number, **expected, "max": round(ordered[-1] / 1000, 4)}
    assert found["b"] == {"n": 1, "p50": 0.005, "p99": 0.005, "max": 0.005}


def test_without_a_duration_there_is_no_percentile(engine: QueryEngine) -> None:
    assert measured([]) == {}


def test_the_histogram_of_many_durations_is_as_fine_as_the_report(engine: QueryEngine) -> None:
    found = measured([("a", 0.04), ("a", 0.05), ("a", 0.06), ("a", 0.14)])
    assert found["a"] == {"n": 4, "p50": 0.0001, "p99": 0.0001, "max": 0.0001}
