"""A Spark with fewer jars: Java looks for each of its classes in one after the other.

What a verdict does not need of PySpark's 280 jars is a quarter of their number and half of the time that Spark takes to
start: machine learning registers itself in every session. The jars that are left are links in a folder of the
cache, always the same, because a class archive (`engines/archive.py`) holds good for one place only.
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
image that judges leaves out the same (compose/spark/leave-out)."""


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
