"""A Spark with fewer jars, because Java searches the jars one by one for each class.

A verdict does not need a quarter of PySpark's 280 jars, and they take half of Spark's start time: machine learning
registers itself in every session. The remaining jars are links in one fixed folder of the cache, because a class
archive (`engines/archive.py`) is valid for one path only.
"""

from __future__ import annotations

import os
import secrets
from fnmatch import fnmatch
from pathlib import Path

LEFT_OUT = (
    *("*kubernetes*", "vertx-*"),
    *("hive-*", "spark-hive*", "datanucleus-*", "derby*"),
    *("*mllib*", "breeze*", "spire*", "algebra*", "cats-kernel*", "*pack-*", "*pack_*", "JTransforms*"),
    *("scala-compiler*", "spark-repl*", "jline*", "spark-connect_*", "rocksdbjni*"),
    *("*-osx-*", "*-windows-*"),
)
"""Other cluster managers, Hive, machine learning, the shell, Spark Connect, stores for streams, other systems. The
image that computes verdicts leaves out the same (compose/spark/leave-out)."""


def lean_home(spark_home: Path, home: Path) -> Path:
    """`home`, with the jars that are needed; `spark_home` itself where nothing can be made there."""
    if home.is_dir():
        return home
    partial = home.with_name(f"{home.name}.{secrets.token_hex(4)}.partial")
    try:
        (partial / "jars").mkdir(parents=True)
        (partial / "bin").symlink_to(spark_home / "bin")
        for jar in (spark_home / "jars").iterdir():
            if not any(fnmatch(jar.name, pattern) for pattern in LEFT_OUT):
                (partial / "jars" / jar.name).symlink_to(jar)
        os.rename(partial, home)
    except OSError:
        # Nothing can be written there, or another process was faster.
        return home if home.is_dir() else spark_home
    return home
