"""CPU time of simulated runs by component.

    python -m benchmarks.simulation_profile [--seeds 60]

A sampling profiler: a signal, raised at intervals of CPU time, records which of our functions is running. Time in a
library counts for its caller. A deterministic profiler would distort the result: it adds a cost to each call, and the
simulator consists of short calls.
"""

from __future__ import annotations

import argparse
import signal
from collections import Counter
from collections.abc import Callable
from types import FrameType

from tests.swarm.runner import run_seed

LOOK_SECONDS = 0.001
COMPONENTS = {
    "our client": ("client/",),
    "broker": ("broker/", "core/"),
    "wire": ("wire/",),
    "simulated loop": tuple(
        f"simulation/{name}.py"
        for name in ("loop", "scheduler", "virtual_time", "trace", "determinism_guard", "host", "simulation")
    ),
    "simulated network": tuple(f"simulation/{name}.py" for name in ("connection", "network", "link")),
    "simulated disks": (
        *(f"simulation/{name}.py" for name in ("disk", "durable_media", "store", "remote_log")),
        "storage/",
    ),
    "workload, record, judges": ("",),
}
"""By component: how the paths of its files begin, within `emulator`. The first that fits."""


def component_of(frame: FrameType | None) -> str:
    while frame is not None:
        _, found, path = frame.f_code.co_filename.rpartition("/emulator/")
        if found:
            return next(name for name, starts in COMPONENTS.items() if path.startswith(starts))
        frame = frame.f_back
    return "elsewhere"


def profile(seeds: int, classify: Callable[[FrameType | None], str] = component_of) -> Counter[str]:
    """How often each component, or other class of the running frame, was found at work."""
    looks: Counter[str] = Counter()

    def look(_: int, frame: FrameType | None) -> None:
        looks[classify(frame)] += 1

    run_seed("failover", 0)
    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, LOOK_SECONDS, LOOK_SECONDS)
    try:
        for seed in range(1, seeds + 1):
            run_seed("failover", seed)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return looks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=60)
    looks = profile(parser.parse_args().seeds)
    for name, count in looks.most_common():
        print(f"{count / looks.total():6.1%}  {name}")


if __name__ == "__main__":
    main()
