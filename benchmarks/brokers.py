"""The two brokers that are compared: one region of ours, durable on disk, and pulsar-lite from the package registry."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator.config.broker_settings import BrokerSettings
from emulator.config.region import LogConfig, NamespaceConfig, RegionConfig

READY_SECONDS_MAX = 15


@dataclass(frozen=True)
class RunningBroker:
    name: str
    service_url: str
    pid: int


def resident_bytes(pid: int) -> int:
    """Memory a process holds now (proportional set size)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def processor_seconds(pid: int) -> float:
    """Return the CPU time of a process so far: user and system, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes], output_path: str) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(
                f"broker exited with {process.returncode}: {Path(output_path).read_text()[-2000:]}"
            )
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            return
        time.sleep(0.01)
    raise RuntimeError("broker did not listen in time")


@contextlib.contextmanager
def _process(name: str, command: list[str], port: int, cwd: str) -> Iterator[RunningBroker]:
    with open(os.path.join(cwd, f"{name}.out"), "wb") as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output)
    try:
        wait_for_port(port, process, os.path.join(cwd, f"{name}.out"))
        yield RunningBroker(name, f"pulsar://127.0.0.1:{port}", process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def geoemu(
    *,
    deduplication: bool = False,
    backend: str = "sqlite",
    bootstrap_servers: str = "",
    folder: str | None = None,
    settings: BrokerSettings | None = None,
) -> Iterator[RunningBroker]:
    """One region alone, with its log in `folder`; without one, in a folder that ends with it."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="geoemu-bench-"))
        port = free_port()
        config = RegionConfig(
            region="bench",
            cluster="bench",
            service_port=port,
            log=LogConfig(backend, os.path.join(folder, "log.sqlite"), bootstrap_servers),
            namespaces=(NamespaceConfig("public/default", ("bench",), deduplication),),
            settings=settings or BrokerSettings(),
        )
        path = Path(folder, "region.json")
        path.write_text(config.to_json())
        command = [sys.executable, "-m", "emulator.broker", str(path)]
        with _process("geoemu", command, port, folder) as broker:
            yield broker


@contextlib.contextmanager
def pulsar_lite() -> Iterator[RunningBroker]:
    """The peer."""
    import pulsar_lite

    binary = str(Path(pulsar_lite.__file__).parent / "bin" / "pulsar-lite")
    with tempfile.TemporaryDirectory(prefix="peer-bench-") as folder:
        port = free_port()
        command = [binary, "--addr", f"127.0.0.1:{port}", "--db-path", os.path.join(folder, "db"),
                   "--log-level", "error"]  # fmt: skip
        with _process("pulsar-lite", command, port, folder) as broker:
            yield broker
