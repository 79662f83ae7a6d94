"""What the broker itself takes and gives, through a generator that is no bottleneck: ours against pulsar-lite.

    python -m benchmarks.raw_load [ROUNDS] [LOAD …]

Deduplication is on. As in `against_peer` both brokers run the whole time, each load runs on ours and on the peer in
turn, and the order is reversed every round; figures are medians. Processor time per message counts all threads of the
broker's process: on a machine that does other things too it says more than a rate.

A backlog is drained from memory right after it was published, and from the disk by a region that was restarted (the
peer drains a fresh backlog both times).
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.brokers import RunningBroker, geoemu, pulsar_lite
from benchmarks.load_generator import Result, drain, new_topic, publish

BACKLOG = 50_000

Load = Callable[[RunningBroker], Result]


def _publish(messages: int, payload_bytes: int, **how: int) -> Load:
    return lambda broker: publish(broker, new_topic(), messages, payload_bytes=payload_bytes, **how)


def _drain(broker: RunningBroker) -> Result:
    topic = new_topic()
    publish(broker, topic, BACKLOG)
    return drain(broker, topic, BACKLOG)


def _drain_after_restart(broker: RunningBroker) -> Result:
    if broker.name != "geoemu":
        return _drain(broker)
    topic = new_topic()
    with tempfile.TemporaryDirectory(prefix="geoemu-bench-") as folder:
        with geoemu(deduplication=True, folder=folder) as before:
            publish(before, topic, BACKLOG)
        with geoemu(deduplication=True, folder=folder) as after:
            return drain(after, topic, BACKLOG)


@dataclass(frozen=True)
class Row:
    title: str
    load: Load
    goal: str
    """Of the ratio of rates."""


LOADS = {
    "100": Row("publish entries of 100 B", _publish(100_000, 100), "at least 0.7"),
    "1024": Row("publish entries of 1 KiB", _publish(60_000, 1_024), "at least 0.65"),
    "110592": Row("publish entries of 108 KB", _publish(3_000, 110_592), "at least 0.8"),
    "connections-10": Row(
        "10 connections, one in flight each",
        _publish(10_000, 100, window=1, connections=10),
        "at least 0.5",
    ),
    "connections": Row(
        "100 connections, one in flight each",
        _publish(30_000, 100, window=1, connections=100),
        "at least 0.5",
    ),
    "connections-500": Row(
        "500 connections, one in flight each",
        _publish(50_000, 100, window=1, connections=500),
        "at least 0.5",
    ),
    "window-10": Row(
        "10 connections, 100 in flight each",
        _publish(100_000, 100, window=100, connections=10),
        "at least 0.5",
    ),
    "window-100": Row(
        "100 connections, 10 in flight each",
        _publish(60_000, 100, window=10, connections=100),
        "at least 0.5",
    ),
    "drain": Row("drain a backlog from memory", _drain, "at least 5"),
    "drain-disk": Row("drain a backlog from the disk", _drain_after_restart, "at least 3"),
}


def measure(
    rounds: int, names: list[str], brokers: list[RunningBroker]
) -> dict[str, dict[str, list[Result]]]:
    """Load -> broker -> what each round gave."""
    results: dict[str, dict[str, list[Result]]] = {name: {} for name in names}
    for number in range(rounds):
        for name in names:
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                results[name].setdefault(broker.name, []).append(LOADS[name].load(broker))
    return results


def table(rounds: int = 5, names: list[str] | None = None) -> str:
    """All figures as a Markdown table."""
    with geoemu(deduplication=True) as ours, pulsar_lite() as peer:
        results = measure(rounds, names or [*LOADS], [ours, peer])
    rows = [
        "| load | geoemu, messages/s (µs of processor) | pulsar-lite | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    for name, of_brokers in results.items():
        here, there = of_brokers[ours.name], of_brokers[peer.name]
        ratio = _median(here, "rate") / _median(there, "rate")
        row = LOADS[name]
        rows.append(f"| {row.title} | {_cell(here)} | {_cell(there)} | {ratio:.2f} | {row.goal} |")
    return "\n".join(rows)


def _cell(results: list[Result]) -> str:
    return f"{_median(results, 'rate'):,.0f} ({_median(results, 'broker_us'):.1f})"


def _median(results: list[Result], field: str) -> float:
    return statistics.median(getattr(result, field) for result in results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:] or None))
