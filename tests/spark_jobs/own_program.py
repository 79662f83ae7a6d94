"""A program of a user for `spark-submit`: reads tables of a run, as batches and as streams, and prints JSON.

spark-submit --py-files geoemu.zip own_program.py RUN_DIR
"""

from __future__ import annotations

import json
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_jobs

STREAMED = ("messages", "history")


def main(run: str, network: str = "host") -> None:
    spark = SparkSession.builder.getOrCreate()
    spark_jobs.register(spark)
    options = {"run": run, "network": network}

    def load(name: str) -> DataFrame:
        return spark.read.format("geoemu").options(**options, table=name).load()

    messages = load("messages")
    by_region = messages.groupBy("region").agg(
        F.count("*").alias("rows"), F.sum("payload_bytes").alias("bytes")
    )
    found = {
        "master": spark.sparkContext.master,
        "stored": {row["region"]: [row["rows"], row["bytes"]] for row in by_region.collect()},
        "tables": {name: load(name).count() for name in ("entries", "cursors", "history", "faults")},
        "streamed": {name: streamed(spark, options, name) for name in STREAMED},
    }
    print(json.dumps(found))
    spark.stop()


def streamed(spark: SparkSession, options: dict[str, str], name: str) -> list[int]:
    """Return the number of rows of each of two runs of one stream, of which the second continues at the checkpoint."""
    counts = []
    with tempfile.TemporaryDirectory() as checkpoint:
        for _ in range(2):
            rows: list[int] = []
            stream = spark.readStream.format("geoemu").options(**options, table=name).load()
            writer = stream.writeStream.foreachBatch(lambda batch, _, to=rows: to.append(batch.count()))
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            counts.append(sum(rows))
    return counts


if __name__ == "__main__":
    main(*sys.argv[1:])
