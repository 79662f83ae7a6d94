"""Engines that compute frames. The checks are written once, in the language of `frames.py`; only an engine knows how
frames are read, cached and collected.

contract.py     what an engine offers
frames.py       the language: Column, DataFrame, Window and functions, of the engine that is bound
starting.py     chooses an engine, starts it, and warms it up until there is a run
spark.py        Spark through PySpark: the default, for any amount of evidence
session.py      how a Spark session starts; archive.py makes it start faster
embedded/       DuckDB in this process: starts at once, needs no Java
"""
