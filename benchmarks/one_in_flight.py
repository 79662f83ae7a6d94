"""Latency of one message in flight, beside the sync of the disk alone, the least that a server in Python takes, and
pulsar-lite.

    python -m benchmarks.one_in_flight [--turns TURNS] [--sync-ms MS ...]

All run throughout and take short turns, in changing order, because other programs use the disk and the processors too.
pulsar-lite does not sync. With `--sync-ms`, the others are measured on disks whose syncs take that time
(`slow_sync.py`): what a region adds grows less than the time of a sync, so the ratio to the disk falls.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.brokers import RunningBroker, geoemu, pulsar_lite
from benchmarks.disk import synced_file
from benchmarks.load_generator import new_topic, publish
from benchmarks.slow_sync import output_of
from benchmarks.sync_server import sync_server

TURNS, TURN_MESSAGES = 25, 300
DISK, FLOOR, REGION, PEER = "`fdatasync` of a commit's bytes", "bare server", "geoemu", "pulsar-lite"
WHAT = {
    DISK: "the bytes of a commit are replaced and synced, no server",
    FLOOR: "asyncio, SEND read, the same sync, receipt written (`benchmarks/sync_server.py`)",
    REGION: "a region, SQLite",
    PEER: "does not sync",
}


SYNC_MS = (0.5, 1.0, 2.0, 5.0)
SLOW_TURNS, SLOW_TURN_MESSAGES = 12, 100
"""Fewer than of the machine's own disk, because syncs are longer, and other programs disturb them less."""


def _p50_ms(broker: RunningBroker, messages: int) -> float:
    return publish(broker, new_topic(), messages, window=1).p50_us / 1000


def _measured(turns: int, messages: int, *, with_peer: bool) -> dict[str, list[float]]:
    """Return the median of each turn, in ms."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="geoemu-bench-"))
        measured: dict[str, Callable[[], float]] = {
            DISK: partial(stack.enter_context(synced_file(folder)).sync_ms, messages),
            FLOOR: partial(_p50_ms, stack.enter_context(sync_server()), messages),
            REGION: partial(_p50_ms, stack.enter_context(geoemu()), messages),
        }
        if with_peer:
            measured[PEER] = partial(_p50_ms, stack.enter_context(pulsar_lite()), messages)
        names, took = list(measured), {name: list[float]() for name in measured}
        for turn in range(turns):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                took[name].append(measured[name]())
    return took


def _undisturbed(took: dict[str, list[float]]) -> dict[str, float]:
    """Return the tenth percentile of the turns' medians, which is that of an undisturbed machine."""
    return {
        name: statistics.quantiles(of_name, n=10, method="inclusive")[0] for name, of_name in took.items()
    }


def table(turns: int = TURNS) -> str:
    """As Markdown."""
    took = _measured(turns, TURN_MESSAGES, with_peer=True)
    least = _undisturbed(took)
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


def table_of_slow_disks(turns: int = SLOW_TURNS, sync_ms: Sequence[float] = SYNC_MS) -> str:
    """As Markdown, a row per disk: that of the machine (0 ms), and others."""
    rows = [
        "| a sync takes (ms) | written and synced (ms) | bare server (ms) | geoemu (ms) | ÷ disk | ÷ bare server |",
        "|---|---|---|---|---|---|",
    ]
    for slowest in (0.0, *sync_ms):
        least = json.loads(
            output_of("benchmarks.one_in_flight", "--figures", f"--turns={turns}", sync_ms=slowest)
        )
        disk, floor, region = (least[name] for name in (DISK, FLOOR, REGION))
        rows.append(
            f"| {f'{slowest:g}' if slowest else 'this disk'} | {disk:.3f} | {floor:.3f} | {region:.3f} "
            f"| {region / disk:.2f} | {region / floor:.2f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, help=f"default {TURNS}, and {SLOW_TURNS} with --sync-ms")
    parser.add_argument(
        "--sync-ms", type=float, nargs="+", help="measure on disks whose syncs take this time"
    )
    parser.add_argument("--figures", action="store_true", help="print the figures of one row as JSON")
    given = parser.parse_args()
    if given.figures:
        print(
            json.dumps(
                _undisturbed(_measured(given.turns or SLOW_TURNS, SLOW_TURN_MESSAGES, with_peer=False))
            )
        )
    elif given.sync_ms:
        print(table_of_slow_disks(given.turns or SLOW_TURNS, given.sync_ms))
    else:
        print(table(given.turns or TURNS))


if __name__ == "__main__":
    main()
