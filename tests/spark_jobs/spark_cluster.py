"""A real standalone Spark cluster, master and workers from the pip package. All its processes end with the tests.

Its executors have a Python with the packages that docs/SPARK.md requires and nothing of ours, so that they can only
run what the driver sends them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pyspark

WORKERS = 2
EXECUTORS_NEED = ("pyarrow", "crc32c", "protobuf", "kafka-python")
READY_SECONDS_MAX = 90
LOOK_SECONDS = 0.05
_SPARK_HOME = Path(pyspark.__file__).parent
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_GUARD = '("$@"; kill -KILL -- "-$$") & cat; kill -KILL -- "-$$"'
"""Kill a whole process group when its command ends, and when no process holds the other end of its standard input any
more, for example because its parent was killed."""


@contextmanager
def guarded(
    command: Sequence[str], output: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with all its children; they are killed after the block, or when this process exits or is killed."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", _GUARD, "guard", *command],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()


class SparkCluster:
    """A master and its workers, each with one core."""

    def __init__(self, folder: Path, resources: ExitStack) -> None:
        self._folder = folder
        self._resources = resources
        self.python = _bare_python(folder)
        """The Python of the executors."""
        master = self._start("master", "master.Master")
        self.url = _wait_for(r"Starting Spark master at (spark://\S+)", *master)[0]
        for number in range(WORKERS):
            self._start(f"worker{number}", "worker.Worker", self.url, "--cores", "1", "--memory", "1g")
        _wait_for(r"Registering worker", *master, count=WORKERS)
        (folder / "spark-defaults.conf").write_text(
            f"spark.executor.memory 512m\nspark.executor.extraJavaOptions {_JAVA}\n"
        )

    def driver_environment(self) -> dict[str, str]:
        """Environment of programs that use the cluster, as users would set it."""
        ours = {
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_CONF_DIR": str(self._folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        return {**os.environ, **ours}

    def _start(self, name: str, what: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start the cluster in a folder from which geoemu cannot be imported."""
        folder, output = self._folder / name, self._folder / f"{name}.log"
        folder.mkdir()
        env = {
            **{key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "JAVA_HOME")},
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # by default it would use a fixed port
            "SPARK_WORKER_DIR": str(folder),
        }
        command = [str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        process = self._resources.enter_context(guarded(command, output, env, folder))
        return process, output


@contextmanager
def running_spark(folder: Path) -> Iterator[SparkCluster]:
    """Start a cluster and wait until it is ready; stop it after the block."""
    with ExitStack() as resources:
        yield SparkCluster(folder, resources)


def _wait_for(pattern: str, process: subprocess.Popen[bytes], log: Path, count: int = 1) -> list[str]:
    """Return the match of `pattern` in a log, once it occurs that often."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while len(found := re.findall(pattern, log.read_text(errors="replace"))) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no {pattern!r} in\n{log.read_text(errors='replace')}")
        time.sleep(LOOK_SECONDS)
    return found


def _bare_python(folder: Path) -> Path:
    """Return this Python with only a few packages. pyspark is not among them: Spark provides its own."""
    packages = folder / "packages"
    packages.mkdir()
    for name in EXECUTORS_NEED:
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            if not (packages / part).exists():
                (packages / part).symlink_to(str(found.locate_file(part)))
    program = folder / "python"
    # -S: without the site-packages folder, which includes ours.
    program.write_text(f'#!/bin/sh\nPYTHONPATH={packages}:"$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program
