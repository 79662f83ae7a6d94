"""DuckDB in this process, with PySpark's API: it requires no Java and starts at once.

columns.py     Column, an SQL expression; Window; conversion of Spark's types to DuckDB's
functions.py   the functions of `pyspark.sql.functions` that the checks use
frames.py      QueryFrame, a query with the names of its columns
engine.py      the engine: reads sources, stores tables, runs queries

It contains only the API that the checks use; any other name raises an error. Where Spark and DuckDB differ (nulls in
arrays, in maxima and in sorting), each function has Spark's semantics: `tests/spark_jobs/engines/test_engines.py`
compares both.
"""
