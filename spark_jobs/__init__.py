"""The verdict: the stored logs of the regions, compared with the requests of clients and the responses to them.

verify.py      `python -m spark_jobs.verify RUN_DIR`: load, normalise, evaluate, render
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
engines/       Spark, or DuckDB in this process; tiny_run.py writes the run that warms an engine up

Imports follow the layers: checks and figures import frames, frames import sources, sources import an engine.
"""
