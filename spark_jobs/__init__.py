"""The verdict: what the regions really stored, held against what clients asked and were told.

run_folder.py     what is in a run directory, and what ought to be
engines/          who works the frames of all these out: Spark, or a database in this process
source.py         what regions stored, as rows; source_sqlite.py reads one backend,
                  entry_columns.py turns entries into columns
history.py        history/*.jsonl as a DataFrame
evidence.py       both together: what every check starts from; origins.py, messages.py and deliveries.py bring it about
checks/           one file per promise: DataFrames in, findings out, then a sentence
verdict.py        valid, invalid, unknown; a check's result
faults.py         what was done to regions and links, from when to when; causes.py puts it beside what broke
story.py          what was played: the report's head, and the steps with what became of them
timeline.py       figures over time; timeline_drawing.py and timeline_strips.py draw them out of picture.py
report.py         report.json and report.html; report_words.py has the page's short texts
session.py        Spark, quiet and quick to start; warm_up.py wakes an engine before it is needed
verify.py         `python -m spark_jobs.verify RUN_DIR`
    archive.py        makes Spark start faster from then on
"""
