"""The language of the checks: DataFrames, as PySpark has them, whoever works them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Window
    from pyspark.sql import functions as F
else:
    from spark_jobs.engines.current import current

    class _Of:
        """What the engine has under this name."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(getattr(current(), self._name), attribute)

    Column = DataFrame = Any
    F = _Of("functions")
    Window = _Of("window")

__all__ = ["Column", "DataFrame", "F", "Window"]
