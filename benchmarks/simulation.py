"""How fast simulated worlds are, on one core.

    python -m benchmarks.simulation [--seeds 20]

quiet   three regions, a message every ten seconds, nothing goes wrong: virtual seconds per second
drill   three regions, 30 virtual seconds, 300 messages, one kill, one cut, checks included: seeds per second
swarm   whatever seeds decide: seeds per second

Processor time, not wall time: the figures are those of a core that does nothing else.
"""

from __future__ import annotations

import argparse
import time

from emulator.simulation.swarm import run_seed

GOALS = {"quiet": "500 times real time", "drill": "10 seeds a second", "swarm": "none"}


def measure(kind: str, seeds: int) -> str:
    """One line."""
    run_seed(kind, 0)
    began = time.process_time()
    outcomes = [run_seed(kind, seed) for seed in range(1, seeds + 1)]
    seconds = time.process_time() - began
    virtual_seconds = sum(outcome.virtual_seconds for outcome in outcomes)
    failed = sum(outcome.violation is not None for outcome in outcomes)
    return (
        f"{kind:6} {seeds / seconds:8.1f} seeds/s {virtual_seconds / seconds:10,.0f} x real time"
        f" {failed:4} failed   (goal: {GOALS[kind]})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    for kind in GOALS:
        print(measure(kind, seeds), flush=True)


if __name__ == "__main__":
    main()
