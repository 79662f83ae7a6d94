"""Exact percentiles of durations, from histograms.

A percentile is the smallest duration that at least so large a share of all durations does not exceed. Durations are
rounded to tenths of a millisecond, the precision of reports. So a histogram has a bounded number of rows, however many
messages a run has, and both engines return the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.engines.frames import Column, DataFrame, F, Window

PER_MS = 10
"""Number of steps of a histogram in a millisecond."""
PERCENTILES: Mapping[str, int] = {"p50": 50, "p99": 99}
"""Percentiles of reports: name -> percentage."""


def exact_percentiles(durations: DataFrame, keys: Sequence[str], took_ms: str, *further: Column) -> DataFrame:
    """Return one row per combination of `keys`: `n`, the number of durations, and in steps of a histogram PERCENTILES
    and `max`. `took_ms`: the column of the durations, none of which is null. `further`: aggregates of the histogram,
    which has the columns `step` and `times`."""
    step = F.floor(F.col(took_ms) * PER_MS + 0.5).cast("bigint").alias("step")
    histogram = durations.groupBy(*keys, step).agg(F.count("*").alias("times"))
    group = Window.partitionBy(*keys)
    upto = group.orderBy("step").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = histogram.withColumn("rank", F.sum("times").over(upto))
    counted = ranked.withColumn("of", F.sum("times").over(group))
    return counted.groupBy(*keys).agg(
        F.max("of").cast("bigint").alias("n"),
        *(_first_of_rank(percentage).alias(name) for name, percentage in PERCENTILES.items()),
        F.max("step").alias("max"),
        *further,
    )


def _first_of_rank(percentage: int) -> Column:
    return F.min(F.when(F.col("rank") * 100 >= F.col("of") * percentage, F.col("step")))


def seconds_of(step: int) -> float:
    """Return the duration of a step of a histogram."""
    return round(step / PER_MS / 1000, 4)
