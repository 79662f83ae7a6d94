"""Publish, drain and latency through the real client: one region of ours against pulsar-lite, interleaved.

    python -m benchmarks.against_peer [ROUNDS]

Prints a table of medians and of their ratio (ours / peer). Both brokers run the whole time; each figure is taken in a
fresh client process, ours and the peer's in turn, the order reversed every round.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.brokers import RunningBroker, geoemu, pulsar_lite

LOADS = {
    "publish": (20_000, "publish, unbatched with callbacks (messages/s)", "at least 0.6"),
    "publish-batched": (100_000, "publish, batched (messages/s)", "at least 0.65"),
    "drain": (50_000, "drain a backlog (messages/s)", "at least 2.0"),
    "latency": (500, "one message in flight, p50 (ms)", "at most 0.7"),
}


def measure(what: str, broker: RunningBroker) -> float:
    command = [sys.executable, "-m", "benchmarks.client_load", what, broker.service_url, str(LOADS[what][0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{what} on {broker.name}: {done.stderr[-2000:]}")
    figure: float = json.loads(done.stdout.splitlines()[-1])["figure"]
    return figure


def table(rounds: int = 3) -> str:
    """All figures as a Markdown table."""
    figures: dict[str, dict[str, list[float]]] = {what: {} for what in LOADS}
    with geoemu() as ours, pulsar_lite() as peer:
        for number in range(rounds):
            for what in LOADS:
                for broker in (ours, peer) if number % 2 == 0 else (peer, ours):
                    figures[what].setdefault(broker.name, []).append(measure(what, broker))
    rows = ["| load | geoemu | pulsar-lite | ratio | goal |", "|---|---|---|---|---|"]
    for what, (_, title, goal) in LOADS.items():
        here = statistics.median(figures[what]["geoemu"])
        there = statistics.median(figures[what]["pulsar-lite"])
        rows.append(f"| {title} | {here:,.2f} | {there:,.2f} | {here / there:.2f} | {goal} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
