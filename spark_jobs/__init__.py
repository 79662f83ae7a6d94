"""The verdict: the stored logs of the regions, compared with the requests of clients and the responses to them.

verify.py      `python -m spark_jobs.verify RUN_DIR`: load, normalise, evaluate, render
sweep.py       `python -m spark_jobs.sweep DIR…`: the verdicts on many runs
export.py      `python -m spark_jobs.export RUN_DIR --to DIR`: the tables of a run as Parquet, written by executors
pack.py        `python -m spark_jobs.pack DIR`: what spark-submit needs; submit.py is the program that it starts
loading.py     reads a run directory into frames
evaluation.py  runs checks and figures on them
verdict.py     valid, invalid, unknown; the result of a check
sources/       readers of a run directory: region logs (SQLite, Kafka), policies, histories, stores of clusters
evidence/      decoders of stored cursors, grants, transaction journals and metadata
frames/        the evidence as DataFrames: messages, deliveries, history, faults, transactions
checks/        a module for one or two invariants: a query for findings, then a verdict and a sentence
figures/       loss, lateness, ownership, timeline, journeys, limits, the headline
report/        report.json, report.html and its pictures, JUnit and Markdown for continuous integration
wording.py     texts of counts, durations and hints
tables/        the public tables of a run, as a Spark data source
engines/       Spark, or DuckDB in this process; tiny_run.py writes the run that warms an engine up

Imports follow the layers: checks and figures import frames, frames import sources, sources import an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the tables of runs available in a Spark session as the format `geoemu` (docs/SPARK.md)."""
    from spark_jobs.tables.data_source import register as register_format

    register_format(spark)
