"""The verdict: the stored logs of the regions, compared with the requests of clients and the responses to them.

verify.py      `python -m spark_jobs.verify RUN_DIR`: load, normalise, evaluate, render
loading.py     reads a run directory and brings it into frames
evaluation.py  runs checks and figures on them
verdict.py     valid, invalid, unknown; the result of a check
sources/       what a run directory holds: logs of regions (SQLite, Kafka), policies, histories, stores of clusters
evidence/      readers of cursors, grants, journals and metadata: bytes in, values out
frames/        the evidence as DataFrames: messages, deliveries, history, faults, transactions
checks/        a module per invariant or two: DataFrames in, findings out, then a sentence
figures/       loss, lateness, ownership, timeline, journeys, limits, the headline
report/        report.json, report.html and its pictures, JUnit and Markdown for continuous integration
wording.py     counts, durations and hints, as all of them write them
engines/       Spark, or DuckDB in this process; tiny_run.py has the run that warms it up

Each imports only what is further down: checks and figures know frames, frames know sources, sources know an engine.
"""
