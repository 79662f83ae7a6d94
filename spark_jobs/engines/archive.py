"""`python -m spark_jobs.engines.archive`: write Spark's classes to one archive, so that Java need not load them one by
one.

It takes about half a minute and 150 MB, once per version of Java and Spark, and replaces the archives of other
versions. With the archive a session starts in half the time and the first verdict takes two thirds of the time; the
archive has no other effect. Exit code 2, with a sentence on standard error: the archive could not be written.
"""

from __future__ import annotations

import os
import sys

from spark_jobs.engines.masters import DEFAULT_MASTER
from spark_jobs.engines.session import LARGE_BYTES, SparkUnavailable, class_archive, spark_session


def main() -> int:
    archive = class_archive()
    if archive.is_file():
        return 0
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(f".{os.getpid()}.partial")
    try:
        with spark_session(DEFAULT_MASTER, archive_to=partial) as spark:
            from spark_jobs.engines.spark import SparkEngine
            from spark_jobs.verify import warm_up

            warm_up(SparkEngine(spark))
            # Large evidence needs other classes: for generated code, adaptive plans and Python workers.
            warm_up(SparkEngine(spark, local_bytes=0, evidence_bytes_min=LARGE_BYTES))
            gateway = spark.sparkContext._gateway
            assert gateway is not None, "a live session has a gateway"
        # Java writes the file when it exits. Wait for it: Java is killed when this process exits.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        for old in archive.parent.glob("spark-*.jsa"):
            old.unlink()
        os.replace(partial, archive)
    except SparkUnavailable as problem:
        print(problem, file=sys.stderr)
        return 2
    except OSError as problem:
        print(f"no class archive was made: {problem}", file=sys.stderr)
        return 2
    finally:
        partial.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
