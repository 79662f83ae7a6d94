"""Latency of one message in flight, beside the sync of the disk alone, the least that a server in Python takes, and
pulsar-lite.

    python -m benchmarks.one_in_flight [TURNS]

All run throughout and take short turns, in changing order, because other programs use the disk and the processors too.
pulsar-lite does not sync.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial

from benchmarks.brokers import RunningBroker, geoemu, pulsar_lite
from benchmarks.disk import synced_file
from benchmarks.load_generator import new_topic, publish
from benchmarks.sync_server import sync_server

TURNS, TURN_MESSAGES = 25, 300
DISK, FLOOR, REGION, PEER = "`fdatasync` of a commit's bytes", "bare server", "geoemu", "pulsar-lite"
WHAT = {
    DISK: "the bytes of a commit are replaced and synced, no server",
    FLOOR: "asyncio, SEND read, the same sync, receipt written (`benchmarks/sync_server.py`)",
    REGION: "a region, SQLite",
    PEER: "does not sync",
}


def _p50_ms(broker: RunningBroker) -> float:
    return publish(broker, new_topic(), TURN_MESSAGES, window=1).p50_us / 1000


def _measured(turns: int) -> dict[str, list[float]]:
    """The median of each turn, in ms."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="geoemu-bench-"))
        measured: dict[str, Callable[[], float]] = {
            DISK: partial(stack.enter_context(synced_file(folder)).sync_ms, TURN_MESSAGES),
            FLOOR: partial(_p50_ms, stack.enter_context(sync_server())),
            REGION: partial(_p50_ms, stack.enter_context(geoemu())),
            PEER: partial(_p50_ms, stack.enter_context(pulsar_lite())),
        }
        names, took = list(measured), {name: list[float]() for name in measured}
        for turn in range(turns):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                took[name].append(measured[name]())
    return took


def table(turns: int = TURNS) -> str:
    """As Markdown. The tenth percentile of the turns' medians is that of an undisturbed machine."""
    took = _measured(turns)
    least = {name: statistics.quantiles(of_name, n=10)[0] for name, of_name in took.items()}
    rows = [
        "| one message in flight | p50 (ms) | all turns (ms) | ÷ disk | ÷ bare server | |",
        "|---|---|---|---|---|---|",
    ]
    for name, ms in least.items():
        rows.append(
            f"| {name} | {ms:.3f} | {statistics.median(took[name]):.3f} | {ms / least[DISK]:.1f} "
            f"| {ms / least[FLOOR]:.1f} | {WHAT[name]} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS))
