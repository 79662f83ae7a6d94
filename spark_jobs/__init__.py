"""The verdict: what the regions really stored, held against what clients asked and were told.

run_folder.py     what is in a run directory, and what ought to be
source.py         the Spark data source `region_log`; source_sqlite.py reads one backend,
                  entry_columns.py turns entries into columns
history.py        history/*.jsonl as a DataFrame
evidence.py       both together: what every check starts from
checks/           one file per promise: DataFrames in, findings out, then a sentence
verdict.py        valid, invalid, unknown; a check's result
timeline.py       figures over time; timeline_drawing.py draws them
report.py         report.json and report.html
session.py        Spark, quiet and quick to start; warm_up.py wakes it before it is needed
verify.py         `python -m spark_jobs.verify RUN_DIR`
    archive.py        makes Spark start faster from then on
"""
