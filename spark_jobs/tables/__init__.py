"""Public tables of a run: entries, messages, markers, cursors, history, metadata events, faults.

schema.py       names, types and meanings of the columns
filters.py      filters that a query pushes down
readers.py      reads each table from a run directory or an export, in parts
export.py       writes all tables as Parquet (`geoemu export`); sources/export_folder.py reads them
data_source.py  the Spark data source `geoemu` (`spark_jobs.register`)
"""
