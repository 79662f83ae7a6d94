"""What publishing and replicating cost in this version, as ratios to another one, interleaved.

    git worktree add ../other COMMIT
    python -m benchmarks.against_version ../other [ROUNDS]

Figures are processor time per message, which other programs on the machine disturb less than rates. Each round runs
both loads once with each version, in fresh processes; the order is reversed every round. Both versions run with this
one's Python environment.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
ROUND_SECONDS_MAX = 1200
ROUND = """
import asyncio, json
from benchmarks import replicated_load
from benchmarks.brokers import geoemu
from benchmarks.load_generator import new_topic, publish
with geoemu(deduplication=True) as broker:
    published = publish(broker, new_topic(), 100_000).broker_us
print(json.dumps([published, *asyncio.run(replicated_load.one_round())[1:]]))
"""
"""Prints the processor time per message, in µs: publish, replication in the source, in the busier target."""
TITLES = (
    "publish entries of 100 B",
    "replicate to two others, in the region that was published to",
    "the same in the busier of the others",
)


def one_round(version: Path, program: str = ROUND) -> list[float]:
    """Run a program with a version of the packages; return the figures of the JSON list in its last line."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=version,
        env=os.environ | {"PYTHONPATH": str(version)},
        capture_output=True,
        text=True,
        timeout=ROUND_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{version}: {done.stderr.strip()[-2000:]}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def table(other: Path, rounds: int = 7) -> str:
    """All figures as a Markdown table."""
    results: dict[Path, list[list[float]]] = {other: [], HERE: []}
    for number in range(rounds):
        for version in results if number % 2 == 0 else reversed(results):
            results[version].append(one_round(version))
    rows = [
        "| processor time per message | other version (µs) | this version (µs) | ratio |",
        "|---|---|---|---|",
    ]
    for column, title in enumerate(TITLES):
        was, is_now = (statistics.median(row[column] for row in results[one]) for one in (other, HERE))
        rows.append(f"| {title} | {was:.1f} | {is_now:.1f} | {is_now / was:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    print(table(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 7))
