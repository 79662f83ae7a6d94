"""Who works the frames out. The checks are written once, in the language of `frames.py`; an engine is the one place
that knows how they are read in, kept and collected.

contract.py   what an engine is asked for
frames.py     the language: Column, DataFrame, Window and functions, as PySpark has them
current.py    which engine works now, and what differs between them
starting.py   which engine somebody asked for, and whether it can work here
spark.py      Spark through PySpark: the default, for any amount of evidence
embedded/     DuckDB in this process: starts at once, needs no Java
"""
