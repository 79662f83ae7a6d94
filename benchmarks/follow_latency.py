"""Time from the receipt of a message that violates a guarantee to the line of `geoemu verify --follow` that reports it.

    python -m benchmarks.follow_latency [ROUNDS] [ENGINE …]

Each round starts regions as processes. A recorded program publishes, and the verifier follows the run until it knows
that message. Then an unrecorded program publishes under the same producer name: INV-3 is violated when the region has
stored the message, which is durable when the program receives the receipt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pulsar  # type: ignore[import-untyped]

import geoemu

ROOT = Path(__file__).parents[1]
ROUNDS = 5
ENGINES = ("embedded", "spark")
DEADLINE_S = 600.0
NAME = "shop"
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


class FollowedRun:
    """`geoemu verify --follow --json` as a process, and the times at which its lines arrived."""

    def __init__(self, run: Path, engine: str) -> None:
        command = [sys.executable, "-m", "emulator.cli", "verify", str(run), "--follow", "--json"]
        self.process = subprocess.Popen(
            [*command, "--engine", engine],
            cwd=run.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: Queue[tuple[float, dict[str, Any]] | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put((time.monotonic(), json.loads(line)))
        self._lines.put(None)

    def events(self) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield each line with the time at which it arrived."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                found = self._lines.get(timeout=max(deadline - time.monotonic(), 0.01))
            except Empty:
                raise TimeoutError(f"no violation within {DEADLINE_S:.0f} s") from None
            if found is None:
                raise EOFError("the verifier ended")
            yield found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(topology: Path, run: Path, engine: str) -> tuple[float, dict[str, Any]]:
    """Return the seconds from the receipt to the report of the violation, and its event."""
    with geoemu.up(topology, run_dir=run) as geo:
        region = geo.regions[0]
        plain = pulsar.Client(geo.url(region), logger=QUIET)
        recorded = geo.recorded(pulsar.Client(geo.url(region), logger=QUIET), actor=NAME)
        producer = recorded.create_producer("orders", producer_name=NAME)
        producer.send(b"recorded")
        producer.close()
        followed = FollowedRun(run, engine)
        try:
            for _, event in followed.events():
                if event["event"] == "progress" and event["acknowledged"] == 1 and event["converged"]:
                    break
            plain.create_producer("orders", producer_name=NAME).send(b"not recorded")
            durable_at = time.monotonic()
            for at, event in followed.events():
                if event["event"] == "violation":
                    return at - durable_at, event
        finally:
            followed.end()
            recorded.close()
            plain.close()
    raise AssertionError("events end with an exception or a violation")


def main(arguments: list[str]) -> None:
    rounds = int(arguments[0]) if arguments else ROUNDS
    for engine in arguments[1:] or ENGINES:
        found = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="geoemu-follow-") as folder:
                seconds, event = measure(ROOT / "topology.yaml", Path(folder) / "run", engine)
                assert event["invariant"] == "INV-3", event
                found.append(seconds)
                load = os.getloadavg()[0]
                print(f"{engine}: {seconds:.1f} s at load {load:.0f}", file=sys.stderr, flush=True)
        found.sort()
        print(
            f"{engine}: median {found[len(found) // 2]:.1f} s, highest {found[-1]:.1f} s of {rounds} rounds"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
