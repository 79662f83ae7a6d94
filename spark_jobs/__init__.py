"""The verdict: what the regions really stored, held against what clients asked and were told.

verify.py      `python -m spark_jobs.verify RUN_DIR`
evaluation.py  from a run directory to a verdict
verdict.py     valid, invalid, unknown; the result of a check
questions.py   all figures that a verdict asks of the evidence, in few queries
sources/       what a run directory holds: logs of regions (SQLite, Kafka), histories of clients, stores of clusters
frames/        the evidence as DataFrames: entries, messages, deliveries, faults, policy changes
checks/        one module per invariant: DataFrames in, findings out, then a sentence
figures/       loss, fail-over, lateness, ownership, timeline, journeys, limits
report/        report.json, report.html and its pictures, JUnit and Markdown for continuous integration
engines/       Spark, or DuckDB in this process; starting and warming up
"""
