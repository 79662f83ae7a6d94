"""Run a real Kafka as a process, from its jars: for regions whose topology names no Kafka, and for tests.

    jars = fetch_jars()                     # 44 MB, once, 20 s; needs Maven
    server = KafkaServer(folder, jars)
    server.start()                          # returns when it is ready, after 1 to 4 s
    ... server.bootstrap_servers ...
    server.stop()

Its data is stored in `folder` and survives restarts; the port stays the same. `compose/kafka/` defines jars and
settings, for this process and for the container.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from emulator.errors import RuntimeFailure
from emulator.runtimes.listening import WantedPort, choose_ports

KAFKA_VERSION = "4.3.1"
"""Version of Kafka; the same as in compose/kafka/pom.xml."""
SETTINGS = Path(__file__).parents[2] / "compose" / "kafka"
ARCHIVE = "classes.jsa"
"""File beside the jars: Java's archive of loaded classes, with which Kafka starts in a third of the time."""
FORMATTED = "formatted"
"""Folder beside the jars: a data folder that Kafka's StorageTool formatted. Copying it saves a start of Java."""
READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30

_JVM = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
_CLUSTER_ID = "Z2VvZW11Z2VvZW11Z2VvZQ"
_API_VERSIONS = struct.pack(">ihhih4s", 14, 18, 0, 1, 4, b"rdy?")
"""An ApiVersions request, to which Kafka responds only when it is ready; an open port is not enough."""


def jars_folder() -> Path:
    """Return the folder for the jars: $GEOEMU_KAFKA_JARS, or a folder in the user's cache."""
    if configured := os.environ.get("GEOEMU_KAFKA_JARS"):
        return Path(configured)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "geoemu" / f"kafka-{KAFKA_VERSION}"


def find_jars() -> Path | None:
    """Return the folder with the jars; None if the jars are missing."""
    folder = jars_folder()
    return folder if any(folder.glob(f"kafka_*-{KAFKA_VERSION}.jar")) else None


def fetch_jars() -> Path:
    """Return the folder with the jars. Maven downloads missing jars; RuntimeFailure is raised if it cannot. A missing
    archive, which speeds up Kafka's start, is created if possible."""
    folder = find_jars() or _download_jars()
    if not (folder / ARCHIVE).exists():
        prepare_quick_starts(folder)
    return folder


def _download_jars() -> Path:
    folder = jars_folder()
    if shutil.which("mvn") is None:
        raise RuntimeFailure(
            f"Kafka's jars are not in {folder}, and Maven (mvn), which downloads them, is not installed: install it "
            "(`sudo apt-get install maven`)"
        )
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(SETTINGS / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeFailure(f"Maven could not download Kafka's jars: {(done.stdout + done.stderr)[-500:]}")
    try:
        fresh.rename(folder)  # atomic
    except OSError:  # another process was faster
        shutil.rmtree(fresh)
    return folder


def prepare_quick_starts(jars: Path) -> None:
    """Start Kafka once, to store its formatted data folder and Java's archive of the loaded classes.

    This is an optimisation: if it fails, Kafka starts as usual, and no error is reported.
    """
    # The archive is valid only for its class path, so the jars must be in their final folder.
    fresh = jars / f"{ARCHIVE}.{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="geoemu-kafka-") as folder, contextlib.suppress(RuntimeFailure):
        server = KafkaServer(Path(folder), jars)
        server.prepare()
        _store_formatted(Path(folder) / "data", jars)
        server._java_arguments = [f"-XX:ArchiveClassesAtExit={fresh}"]
        try:
            server.start()
        finally:
            server.stop()
        if fresh.exists():
            fresh.replace(jars / ARCHIVE)


def _store_formatted(data: Path, jars: Path) -> None:
    fresh = jars / f"{FORMATTED}.{os.getpid()}"
    shutil.copytree(data, fresh)
    try:
        fresh.rename(jars / FORMATTED)
    except OSError:  # another process created it
        shutil.rmtree(fresh)


class KafkaServer:
    """A Kafka cluster of one broker, on this machine."""

    def __init__(
        self,
        folder: Path,
        jars: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> None:
        """`port` 0: any free port. `settings` override the default settings and those in common.properties;
        `format_arguments` are passed to Kafka's StorageTool, for example initial users."""
        wanted = [("kafka", port), ("kafka_controller", 0)]
        host = "127.0.0.1"
        self.port, self.controller_port = choose_ports(
            WantedPort("kafka", key, host, number) for key, number in wanted
        )
        self.bootstrap_servers = f"{host}:{self.port}"
        self.output = folder / "kafka.out"
        self._folder = folder
        self._format_arguments = format_arguments
        self._class_path = ":".join(sorted(map(str, jars.glob("*.jar"))))
        self._archive = jars / ARCHIVE
        self._formatted = jars / FORMATTED
        self._is_plain = not settings and not format_arguments
        self._java_arguments: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            "listeners": f"CLIENT://{host}:{self.port},CONTROLLER://{host}:{self.controller_port}",
            "advertised.listeners": f"CLIENT://{host}:{self.port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "controller.quorum.voters": f"1@{host}:{self.controller_port}",
            "log.dirs": str(folder / "data"),
            **(settings or {}),
        }

    @property
    def pid(self) -> int | None:
        """Process id; None if Kafka does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start Kafka and wait until it is ready. Raises RuntimeFailure after READY_SECONDS_MAX, if it ends, or without
        Java."""
        properties = self.prepare()
        with self.output.open("ab") as output:
            command = [*self._java("kafka.Kafka"), str(properties)]
            try:
                self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder)
            except FileNotFoundError as error:
                raise _missing_java() from error
        self._wait_until_ready()

    def prepare(self) -> Path:
        """Format the data folder if necessary and write the settings, without a start. Return the file of settings."""
        self._folder.mkdir(parents=True, exist_ok=True)
        properties, data = self._folder / "kafka.properties", self._folder / "data"
        own = "".join(f"{key}={value}\n" for key, value in self._settings.items())
        # The last value of a key is valid, so these settings override those of common.properties.
        properties.write_text((SETTINGS / "common.properties").read_text() + own)
        if not (data / "meta.properties").exists():
            if self._is_plain and self._formatted.is_dir():
                fresh = self._folder / "data.new"
                shutil.rmtree(fresh, ignore_errors=True)
                shutil.copytree(self._formatted, fresh)
                fresh.replace(data)
            else:
                self._format(properties)
        return properties

    def stop(self) -> None:
        """Stop Kafka gracefully; kill it after STOP_SECONDS_MAX. No effect if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill Kafka with SIGKILL. No effect if it does not run."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze Kafka with SIGSTOP: its connections stay open. When this returns, all its threads have stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a paused Kafka."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _java(self, main_class: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={SETTINGS / 'log4j2.properties'}"
        archive = [f"-XX:SharedArchiveFile={self._archive}"] if self._archive.exists() else []
        return ["java", *_JVM, *archive, logging, *self._java_arguments, "-cp", self._class_path, main_class]

    def _format(self, properties: Path) -> None:
        command = [*self._java("kafka.tools.StorageTool"), "format", "--cluster-id", _CLUSTER_ID]
        command += [*self._format_arguments, "-c", str(properties)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise _missing_java() from error
        if done.returncode:
            raise RuntimeFailure(f"Kafka could not prepare its folder: {(done.stdout + done.stderr)[-500:]}")

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not is_ready("127.0.0.1", self.port):
            if self._process.poll() is not None:
                last_output = self.output.read_text(errors="replace")[-1000:]
                raise RuntimeFailure(
                    f"Kafka stopped with exit code {self._process.returncode}: {last_output}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeFailure(f"Kafka was not ready within {READY_SECONDS_MAX} s: see {self.output}")
            time.sleep(0.02)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _missing_java() -> RuntimeFailure:
    return RuntimeFailure("Kafka needs Java 17 or newer, and there is no `java` in PATH: install it")


def is_ready(host: str, port: int) -> bool:
    """Return whether a Kafka at this address responds to an ApiVersions request without an error."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(_API_VERSIONS)
            answer = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 10 and answer[8:] == b"\0\0"
