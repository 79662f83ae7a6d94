"""The same region on Kafka and on SQLite, through the real client, interleaved.

    python -m benchmarks.kafka [ROUNDS]

Prints a table of medians and of their ratio (Kafka / SQLite). Kafka is a real one, from its jars, on this machine and
with the settings of `compose/kafka`: it does not sync before it acknowledges, SQLite does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.against_peer import LOADS, measure
from benchmarks.brokers import geoemu, resident_bytes
from emulator.runtimes.kafka_server import KafkaServer, fetch_jars

GOALS = {"publish": "at least 0.8", "publish-batched": "at least 0.8"}


def table(rounds: int = 3) -> str:
    """All figures as a Markdown table."""
    figures: dict[str, dict[str, list[float]]] = {what: {} for what in LOADS}
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as folder:
        server = KafkaServer(Path(folder), fetch_jars())
        try:
            server.start()
            with (
                geoemu() as on_sqlite,
                geoemu(backend="kafka", bootstrap_servers=server.bootstrap_servers) as on_kafka,
            ):
                for number in range(rounds):
                    for what in LOADS:
                        both = [("kafka", on_kafka), ("sqlite", on_sqlite)]
                        for backend, broker in both if number % 2 == 0 else both[::-1]:
                            figures[what].setdefault(backend, []).append(measure(what, broker))
                assert server.pid is not None
                memory = [resident_bytes(pid) // 2**20 for pid in (on_kafka.pid, server.pid, on_sqlite.pid)]
        finally:
            server.stop()
    rows = ["| load | Kafka | SQLite | ratio | goal |", "|---|---|---|---|---|"]
    for what, (_, title, _) in LOADS.items():
        here, there = (statistics.median(figures[what][backend]) for backend in ("kafka", "sqlite"))
        goal = GOALS.get(what, "")
        rows.append(f"| {title} | {here:,.2f} | {there:,.2f} | {here / there:.2f} | {goal} |")
    broker, kafka, alone = memory
    rows.append(f"| memory at the end (MB) | {broker} and {kafka} for Kafka | {alone} | | |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
