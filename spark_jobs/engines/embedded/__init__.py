"""DuckDB in this process, in the words of PySpark: no Java, and no start worth the name.

columns.py     Column: a piece of SQL
functions.py   what `pyspark.sql.functions` has of what the checks use
windows.py     Window
types.py       Spark's names of types, as DuckDB's
frames.py      QueryFrame, a query with the names of its columns
engine.py      the engine: reads, keeps, collects

Only what the checks use is here; any other use fails at once, by name. The engines mean different things
by some words (what nulls do in arrays, in maxima and in sorting): here each means what Spark means by it, and
`tests/spark_jobs/engines/test_engines.py` asks both.
"""
