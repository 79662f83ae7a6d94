"""Run one load of `load_generator.c` against a broker.

The generator is in C, so that the benchmark measures the broker: an entry costs the generator well under a microsecond,
and each result includes its own CPU time. `cc` builds it on first use.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.brokers import RunningBroker, processor_seconds
from benchmarks.c_programs import built

SOURCE = Path(__file__).with_suffix(".c")
RUN_SECONDS_MAX = 600


@dataclass(frozen=True)
class Result:
    """What one load gave."""

    rate: float
    """Messages per second, from the first send to the last answer."""
    broker_us: float
    """Processor time of the broker per message, all threads, user and system."""
    generator_us: float
    """The same of the generator."""
    p50_us: int
    """From a send to its receipt; 0 for a drain."""
    p99_us: int


def new_topic() -> str:
    return f"persistent://public/default/load-{uuid.uuid4().hex}"


def publish(
    broker: RunningBroker,
    topic: str,
    messages: int,
    *,
    payload_bytes: int = 100,
    window: int = 1_000,
    connections: int = 1,
    topics: int = 1,
) -> Result:
    """Every connection has up to `window` messages in flight; with several topics they are `topic`-0, `topic`-1 …"""
    return _run(broker, "publish", topic, messages, payload_bytes, window, connections, topics)


def drain(broker: RunningBroker, topic: str, messages: int) -> Result:
    """Read from the beginning, with an ACK for each message."""
    return _run(broker, "drain", topic, messages)


def _run(broker: RunningBroker, load: str, *arguments: object) -> Result:
    address = urlsplit(broker.service_url)
    command = [
        str(built(SOURCE, "load_generator")),
        load,
        str(address.hostname),
        str(address.port),
        *map(str, arguments),
    ]
    before = processor_seconds(broker.pid)
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    used = processor_seconds(broker.pid) - before
    if done.returncode != 0:
        raise RuntimeError(f"{load} on {broker.name}: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    messages = said["messages"]
    return Result(
        rate=messages / said["seconds"],
        broker_us=used * 1e6 / messages,
        generator_us=said["own_processor_seconds"] * 1e6 / messages,
        p50_us=said["p50_us"],
        p99_us=said["p99_us"],
    )
