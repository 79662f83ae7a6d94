"""Speed of simulated runs on one core.

    python -m benchmarks.simulation [--seeds 20]

quiet   three regions, a message every ten seconds, no faults: virtual seconds per second
drill   three regions, 30 virtual seconds, 300 messages, one kill, one cut, checks included: seeds per second
swarm   random runs, drawn from the seeds: seeds per second

All rates are per CPU second, not wall time: those of an otherwise idle core.
"""

from __future__ import annotations

import argparse
import time

from tests.swarm.runner import run_seed

SEEDS = 20
GOALS = {"no-faults": "500 times real time", "failover": "10 seeds a second", "swarm": ""}


def measure(kind: str, seeds: int) -> tuple[float, float]:
    """Seeds per second, and virtual seconds per second. AssertionError when a seed fails: it would be no figure."""
    run_seed(kind, 0)
    began = time.process_time()
    outcomes = [run_seed(kind, seed) for seed in range(1, seeds + 1)]
    seconds = time.process_time() - began
    failed = [outcome.plan.seed for outcome in outcomes if outcome.violation is not None]
    assert not failed, f"seeds {failed} of {kind} violate an invariant"
    return seeds / seconds, sum(outcome.virtual_seconds for outcome in outcomes) / seconds


def table(seeds: int = SEEDS) -> str:
    """All figures as a Markdown table."""
    rows = ["| workload | seeds per second | times real time | goal |", "|---|---|---|---|"]
    for kind, goal in GOALS.items():
        rate, speed = measure(kind, seeds)
        rows.append(f"| {kind} | {rate:.1f} | {speed:,.0f} | {goal} |")
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    print(table(parser.parse_args().seeds))
