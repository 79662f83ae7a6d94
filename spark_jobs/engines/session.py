"""Start a Spark session fast and without log output, or explain why Spark cannot run.

The defaults of Spark are made for clusters that run for days. A verdict on ten thousand messages needs the
opposite: few partitions, no web page, no adaptive optimiser, and only the first tier of the JIT compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.engines.contract import EngineUnavailable
from spark_jobs.engines.java_lookups import cache_classes
from spark_jobs.engines.masters import ChosenMaster, MasterRefused, choose_master, is_local
from spark_jobs.engines.scratch import disk_full, scratch_folder
from spark_jobs.engines.shipped_code import CODE_HOME, ship_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
LARGE_BYTES = 32 * 1024 * 1024
"""Spark's own optimisations pay off for evidence of at least this size."""
OPTIMISED_BYTES = 256 * 1024 * 1024
"""Evidence of this size may exceed the memory as rows. The second tier of the JIT compiler pays off, too: it takes 35 s
of processor time, most of it for code that Spark generates for one stage."""
TASK_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS_MAX = 5.0
"""Time limit of a connection to the master of a cluster."""
EXECUTOR_SECONDS_MAX = 60.0
"""Time limit for jobs that wait in a cluster without an executor."""
_INSTALL = "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"

_UNATTENDED = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""Settings of sessions that no person watches. `spark-submit` leaves them to its user."""
_QUERIES = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    # Spark would sort instead of hash when it collects the copies of more than 128 messages.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark would format each plan for a web page that is disabled.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "0",
    # The default of five minutes fails on a busy machine.
    "spark.sql.broadcastTimeout": "3600",
    "spark.sql.debug.maxToStringFields": "0",
    # Plans of a verdict are large and their rows few. Inferring filters, validating the plan after each rule and
    # generating a second hash map for each aggregation take 5 % of the processor time of 25,000 messages.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}
_FIRST_TIER = "-XX:TieredStopAtLevel=1 -XX:Tier3BackEdgeThreshold=2000"
"""Only the first compiler tier, and loops are compiled after 2,000 iterations. By default it is 60,000: code that Spark
generates for a stage loops over its rows, and would be interpreted for most of them."""
_EVERY_JVM = "-Xss4m -XX:MetaspaceSize=256m"
"""Analysing plans needs deep stacks; loading Spark's classes would start a collection of the whole heap."""
_SMALL_JVM = f"{_EVERY_JVM} {_FIRST_TIER} -XX:+UseSerialGC"
"""JVM options for small evidence: its verdict ends before a second compiler tier or parallel collection pays off."""
_INITIAL_HEAP = "-Xms1g -Xmn640m"
"""Initial heap size, with which a small verdict runs almost without garbage collection."""
_LARGE_JVM = f"{_EVERY_JVM} -XX:+UseParallelGC"

EXCLUDED_JARS = (
    *("*kubernetes*", "vertx-*"),
    *("hive-*", "spark-hive*", "datanucleus-*", "derby*"),
    *("*mllib*", "breeze*", "spire*", "algebra*", "cats-kernel*", "*pack-*", "*pack_*", "JTransforms*"),
    *("scala-compiler*", "spark-repl*", "jline*", "spark-connect_*", "rocksdbjni*"),
    *("*-osx-*", "*-windows-*"),
)
"""Jars that no verdict needs: other cluster managers, Hive, machine learning, the shell, Spark Connect, stores for
streams, other systems. The image that computes verdicts excludes the same ones (compose/spark/leave-out). They take
half of the start time: Java searches the jars one by one for each class."""


class SparkUnavailable(EngineUnavailable):
    """Spark cannot run here; the message names the next step."""


def java_problem() -> str | None:
    """Return why there is no Java for Spark, as one sentence; None when there is one."""
    java = _java_program()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"in JAVA_HOME ({home})" if home else "on this machine"
        return f"Spark needs Java {JAVA_MIN} or newer and there is none {where}: {_INSTALL}."
    version = _java_version(java.resolve().parent.parent)
    if version is not None and version < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN} or newer and {java} is Java {version}: {_INSTALL}."
    return None


def _java_program() -> Path | None:
    """Return the Java executable that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    return Path(found) if found else None


def _java_version(home: Path) -> int | None:
    """Return the major version from the file that every Java since 9 has, None if unknown. Running `java` would take
    as long as the whole start of geoemu."""
    try:
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


@contextlib.contextmanager
def spark_session(
    master: str | None = None, *, evidence_bytes: int = 0, archive_to: Path | None = None
) -> Iterator[SparkSession]:
    """Start a session that ends with the block. The output of Spark and its Java is written to a file, from which
    the reason of a failed start is taken. `master`: see `masters.choose_master`. `archive_to`: Java writes a class
    archive there. Raises SparkUnavailable if Spark does not start, or from the block if the cluster provides no
    executor."""
    chosen = _usable(master)
    with scratch_folder() as scratch:
        session = _start(chosen, scratch, _java_options(evidence_bytes, archive_to))
        used = str(session.sparkContext.master)
        try:
            if chosen.is_submitted or not is_local(used):
                ship_code(session, scratch)
            with contextlib.nullcontext() if is_local(used) else _cancel_without_executor(session, used):
                yield session
        finally:
            with _output_to(scratch / "spark.log"):
                session.stop()


def _usable(master: str | None) -> ChosenMaster:
    """Return the master to use. Raises SparkUnavailable if there is no Java, or no master at its address."""
    try:
        chosen = choose_master(master)
    except MasterRefused as problem:
        raise SparkUnavailable(str(problem)) from None
    if chosen.url is not None and (found := java_problem() or cluster_problem(chosen.url)):
        raise SparkUnavailable(found)
    return chosen


def cluster_problem(master: str) -> str | None:
    """Return why a standalone cluster cannot be used, as one sentence. None if any of its addresses accepts a
    connection, or `master` is no standalone cluster. Spark itself would retry for a minute and then report
    another problem."""
    if not master.startswith("spark://"):
        return None
    refusals = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            return f"{master} is not the address of a Spark cluster: spark://HOST:PORT[,HOST:PORT...]"
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX).close()
        except OSError as problem:
            refusals.append(f"{address}: {problem.strerror or problem}")
        else:
            return None
    return f"no Spark master answers at {master} ({'; '.join(refusals)})"


@contextlib.contextmanager
def _cancel_without_executor(session: SparkSession, master: str) -> Iterator[None]:
    """Cancel all jobs if they wait in vain for an executor, and raise SparkUnavailable instead of their error: Spark
    itself would wait forever."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    ended, timed_out = threading.Event(), threading.Event()

    def watch() -> None:
        context = session.sparkContext
        waiting_since = time.monotonic()
        while not ended.wait(1.0):
            # The driver counts as an executor.
            if context._jsc.sc().getExecutorMemoryStatus().size() > 1 or not _active_jobs(session):
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since > EXECUTOR_SECONDS_MAX:
                timed_out.set()
                context.cancelAllJobs()

    def watch_while_java_runs() -> None:
        # The thread that waits for a result receives the same error and reports it.
        with contextlib.suppress(Py4JError, OSError):
            watch()

    watcher = threading.Thread(target=watch_while_java_runs, daemon=True)
    watcher.start()
    try:
        yield
    except Exception as problem:
        if timed_out.is_set():
            raise SparkUnavailable(
                f"the Spark cluster at {master} provided no executor within {EXECUTOR_SECONDS_MAX:g} s: it has no"
                " worker with a free core and enough memory, or its workers cannot start one (see their logs)"
            ) from problem
        raise
    finally:
        ended.set()
        watcher.join()


def _active_jobs(session: SparkSession) -> list[int]:
    return list(session.sparkContext.statusTracker().getActiveJobsIds())


def in_a_sentence(problem: Exception) -> str:
    """Return the error as one sentence, without stack traces."""
    if "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(problem):
        return "the cluster lost an executor and its results; run the verification again"
    if full := disk_full(problem):
        return f"{full} (on the workers of a cluster: spark.local.dir)"
    if not_shared := _NOT_SHARED.search(str(problem)):
        return not_shared[1]
    lines = [line.strip() for line in str(problem).strip().splitlines()]
    if not lines:
        return type(problem).__name__
    # py4j prints the called method, and in the next line the exception of Java.
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    if thrown:
        return thrown[0]
    # An error of Python in a task or a planner: Spark's message, a traceback, and the exception of Python.
    first = lines[0].removesuffix("Traceback (most recent call last):").rstrip(": ")
    raised = [line for line in lines[1:] if _RAISED.match(line)]
    return f"{first}: {raised[-1]}" if raised else first


_NOT_SHARED = re.compile(r"\bRunNotShared: (.+)")
_RAISED = re.compile(r"([\w$]+\.)*\w*(Error|Exception)\w*: \S")


def class_archive() -> Path:
    """Return the path of the class archive for this Java and this Spark (`engines/archive.py`)."""
    import pyspark

    java = _java_program()
    release = java.resolve().parent.parent / "release" if java else Path()
    version = release.read_text() if release.is_file() else str(java)
    key = hashlib.sha256(f"{version}\n{pyspark.__file__}\n{pyspark.__version__}".encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "geoemu" / f"spark-{key}.jsa"


def _java_options(evidence_bytes: int, archive_to: Path | None) -> str:
    """Return the options of the JVM that is started here: a whole local Spark, or the driver of a cluster."""
    options = _SMALL_JVM
    if evidence_bytes >= LARGE_BYTES:
        options = _LARGE_JVM if evidence_bytes >= OPTIMISED_BYTES else f"{_LARGE_JVM} {_FIRST_TIER}"
    if archive_to is not None:
        return f'{options} "-XX:ArchiveClassesAtExit={archive_to}"'
    archive = class_archive()
    return f'{options} "-XX:SharedArchiveFile={archive}"' if archive.is_file() else options


def tune(session: SparkSession, evidence_bytes: int) -> None:
    """Set options for this much evidence. For ten thousand messages code generation takes longer than the
    evaluation."""
    large = evidence_bytes >= LARGE_BYTES
    settings = {
        "spark.sql.shuffle.partitions": str(1 + evidence_bytes // TASK_BYTES if large else 1),
        "spark.sql.adaptive.enabled": str(large).lower(),
        "spark.sql.codegen.wholeStage": str(large).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if large else "NO_CODEGEN",
        # Hints avoid sorts. A hash map of a million messages may exceed the memory; a sort can spill.
        "spark.sql.optimizer.disableHints": str(evidence_bytes >= OPTIMISED_BYTES).lower(),
    }
    for key, value in settings.items():
        session.conf.set(key, value)


def _start(chosen: ChosenMaster, scratch: Path, driver_java_options: str) -> SparkSession:
    # Python workers take `python3` from the PATH by default, and do not have this process's import path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    log = scratch / "spark.log"
    builder = SparkSession.Builder().appName("geoemu verify")
    if chosen.is_set_here:
        builder = builder.master(str(chosen.url))
    for key, value in _settings(chosen, scratch, driver_java_options).items():
        builder = builder.config(key, value)
    try:
        with _output_to(log), _lean_spark() if chosen.is_local else contextlib.nullcontext():
            session = builder.getOrCreate()
    except Exception as problem:  # any error of Java, Spark or the network
        where = f"master {chosen.url}" if chosen.url is not None else "the master of spark-submit"
        raise SparkUnavailable(f"Spark did not start with {where}: {_reason(log, problem)}") from problem
    if not chosen.is_submitted:
        session.sparkContext.setLogLevel("ERROR")
    cache_classes(session.sparkContext._jvm)
    return session


def _settings(chosen: ChosenMaster, scratch: Path, driver_java_options: str) -> dict[str, str]:
    settings = {**_QUERIES, "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    if chosen.is_submitted:
        return settings  # Java runs already, with the settings of spark-submit
    # Java would leave Spark's folder of artifacts in /tmp.
    java_options = (
        f'"-Djava.io.tmpdir={scratch}" -Dlog4j2.configurationFile={_logging_file(scratch).as_uri()}'
        f" {driver_java_options}"
    )
    if chosen.is_local:
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(CODE_HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {**_LOCAL, "spark.local.dir": str(scratch)}
        java_options += f" {_INITIAL_HEAP}"
    return settings | _UNATTENDED | {"spark.driver.extraJavaOptions": java_options}


def lean_home(spark_home: Path, home: Path) -> Path:
    """Return `home`, which is created with links to the required jars if it does not exist; `spark_home` if that fails.
    The path is fixed because a class archive (`engines/archive.py`) is valid for one path only."""
    if home.is_dir():
        return home
    partial = home.with_name(f"{home.name}.{secrets.token_hex(4)}.partial")
    try:
        (partial / "jars").mkdir(parents=True)
        (partial / "bin").symlink_to(spark_home / "bin")
        for jar in (spark_home / "jars").iterdir():
            if not any(fnmatch(jar.name, pattern) for pattern in EXCLUDED_JARS):
                (partial / "jars" / jar.name).symlink_to(jar)
        os.rename(partial, home)
    except OSError:
        # The folder is not writable, or another process created it first.
        return home if home.is_dir() else spark_home
    return home


@contextlib.contextmanager
def _lean_spark() -> Iterator[None]:
    """Let Spark start with fewer jars until the end of the block, unless SPARK_HOME is set."""
    import pyspark

    if "SPARK_HOME" in os.environ:
        yield
        return
    home = lean_home(Path(pyspark.__file__).parent, class_archive().with_suffix(""))
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _reason(log: Path, problem: Exception) -> str:
    """Return the last error in Spark's log, else the last output of a Java that did not start, else the exception."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    errors = [found[1] for line in lines if (found := re.search(r" ERROR [\w.$]+: (.+)", line))]
    if errors:
        return errors[-1]
    if lines and "JAVA_GATEWAY_EXITED" in str(problem):
        return " | ".join(lines[-3:])
    return in_a_sentence(problem)


def _logging_file(scratch: Path) -> Path:
    path = scratch / "log4j2.properties"
    path.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\nappender.stderr.type = Console\n"
        "appender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %d %p %c: %m%n%ex\n"
    )
    return path


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect the output of this process and of children started meanwhile to `log`. A JVM stays redirected."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        for target, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, target)
            os.close(saved)
        os.close(file)
