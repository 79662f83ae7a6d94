"""Engines that compute frames. The checks use only the query API of `frames.py`; an engine implements how frames are
read, cached and collected.

contract.py     the interface of an engine
frames.py       the query API: Column, DataFrame, Window and functions of the bound engine
starting.py     chooses an engine, starts it, and warms it up until there is a run
spark.py        Spark through PySpark: the default, for any amount of evidence
session.py      how a Spark session starts; archive.py makes it start faster
embedded/       DuckDB in this process: starts at once, needs no Java
"""
