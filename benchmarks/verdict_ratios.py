"""The processor time of verdicts, as ratios to bare PySpark programs on the same machine.

    python -m benchmarks.verdict_ratios [--rounds 3] [--messages 3000] [NAME …]

Programs run in turn, so that other work on the machine affects all of them alike. Processor time is that of the program
and of all processes that it started, Java included. NAME selects programs; the ratio is that to `bare`, or, of rows a
second, to `parquet`.

    bare      a PySpark program: a session, one aggregate, stop
    parquet   a PySpark program that reads the same rows from Parquet and groups them three times
    embedded  `geoemu verify --engine embedded`
    spark     `geoemu verify --engine spark`
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.judged_run import REGIONS, write_run
from spark_jobs.engines.contract import PartitionedSource
from spark_jobs.frames.history import HistoryLines
from spark_jobs.sources.history_files import inspect_file
from spark_jobs.sources.region_log import RegionLogs
from spark_jobs.sources.run_folder import open_run_folder

_SESSION = """
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.master("local[2]").getOrCreate()
"""
BARE = f"{_SESSION}spark.range(10_000).agg(F.sum('id')).collect()\nspark.stop()"
GROUPED = f"""{_SESSION}
entries, lines = (spark.read.parquet(f"{{folder}}/{{name}}") for name in ("entries", "lines"))
COUNT = F.count("*").alias("n")
origin = ("topic", "origin_region", "producer_name", "sequence_id")
for grouped in (
    entries.groupBy(*origin).agg(COUNT, F.max("bytes_digest").alias("most")),
    lines.groupBy("topic", "region", "producer", "sequence_id").agg(COUNT, F.min("at_ms").alias("most")),
    lines.groupBy("subscription", "ledger_id", "entry_id").agg(COUNT, F.max("at_ms").alias("most")),
):
    grouped.agg(F.sum("n"), F.max("most")).collect()
spark.stop()
"""
SUBREAPER = 36
"""Option of prctl(2): orphaned descendants become children of this process, which waits for them."""


def processor_seconds(command: Sequence[str]) -> float:
    """Run a command in a process of its own; return the processor time of it and of all its descendants."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(writer, f"{used.ru_utime + used.ru_stime}".encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"{' '.join(command)} failed"
    return float(text)


def write_parquet(run: Path, folder: Path) -> int:
    """Write the rows that a verdict reads as Parquet; return their number."""
    evidence = open_run_folder(run)
    files = [
        inspect_file(file, run.name, {one.stem for one in evidence.history}) for file in evidence.history
    ]
    lines = HistoryLines(
        tuple(part for file in files for part in file.slices), evidence.regions, tuple(evidence.namespaces)
    )
    rows = 0
    sources: dict[str, PartitionedSource] = {"entries": RegionLogs(evidence.logs), "lines": lines}
    for name, source in sources.items():
        (folder / name).mkdir(parents=True)
        for number, part in enumerate(source.parts()):
            table = pa.Table.from_batches(source.read(part), source.schema)
            pq.write_table(table, folder / name / f"{number}.parquet")
            rows += len(table)
    return rows


def measure(names: Sequence[str], messages: int, rounds: int) -> str:
    """Return a table of medians."""
    with tempfile.TemporaryDirectory(prefix="geoemu-ratios-") as folder:
        run = write_run(Path(folder) / "run", messages)
        rows = write_parquet(run, Path(folder) / "parquet")
        verify = [sys.executable, "-m", "spark_jobs.verify", str(run), "--engine"]
        commands = {
            "bare": [sys.executable, "-c", BARE],
            "parquet": [sys.executable, "-c", f"folder = {str(Path(folder) / 'parquet')!r}\n{GROUPED}"],
            "embedded": [*verify, "embedded"],
            "spark": [*verify, "spark"],
        }
        taken: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                taken[name].append(processor_seconds(commands[name]))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    lines_ = [
        "| program | processor time (s) | to bare | rows a second and core | to parquet |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in medians.items():
        ratio = f"{seconds / medians['bare']:.2f}" if "bare" in medians else ""
        rate = "" if name == "bare" else f"{rows / seconds:,.0f}"
        others = f"{medians['parquet'] / seconds:.2f}" if rate and "parquet" in medians else ""
        lines_.append(f"| {name} | {seconds:.1f} | {ratio} | {rate} | {others} |")
    return "\n".join([f"{messages:,} messages in {len(REGIONS)} regions, {rows:,} rows", "", *lines_])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", default=["bare", "parquet", "embedded", "spark"])
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(measure(given.names, given.messages, given.rounds))
