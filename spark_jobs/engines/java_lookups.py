"""Look up Java's classes and their static methods once per session, instead of at each use.

PySpark asks Java for the class and then for the method each time that a query names a column or calls a function: 5,700
of the 18,600 calls into Java of a verdict. A class that is an attribute of py4j's view of Java is not asked for.
"""

from __future__ import annotations

from typing import Any

CLASSES = ("org.apache.spark.sql.functions", "functions", "PythonUtils")
"""The names by which PySpark accesses the classes whose methods construct expressions."""


class CachedClass:
    """A class of Java that asks for each static method once. The methods have no state, so threads may share them."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


def cache_classes(java: Any) -> None:
    """`java`: py4j's view of Java, whose attributes are classes and packages."""
    for name in CLASSES:
        if name not in vars(java):
            setattr(java, name, CachedClass(getattr(java, name)))
