"""DuckDB in this process, with PySpark's API: no Java, and a start that takes no time.

columns.py     Column: a piece of SQL; Window; Spark's types as DuckDB's
functions.py   what `pyspark.sql.functions` has of what the checks use
frames.py      QueryFrame, a query with the names of its columns
engine.py      the engine: reads sources, stores tables, runs queries

It contains only what the checks use; any other use fails at once, by name. Where Spark and DuckDB differ (nulls in
arrays, in maxima and in sorting), each function means what Spark means by it:
`tests/spark_jobs/engines/test_engines.py` compares both.
"""
