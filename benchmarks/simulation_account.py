"""What one simulated run of region-failover consists of, and which subsystem takes its CPU time.

    python -m benchmarks.simulation_account [--seeds 20]

The first table counts events per seed: callbacks, segments, commands, writes, messages. The second one is by subsystem:
code that several subsystems share (`wire`, `core`, `model`) counts for its caller. `benchmarks.simulation_profile`
instead counts each function for its own component.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any
from unittest.mock import patch

from benchmarks.simulation_profile import profile
from emulator.simulation.connection import Endpoint, SimulatedTransport
from emulator.simulation.durable_media import DurableLog, Medium
from emulator.simulation.history import SimulatedHistory
from emulator.simulation.link import Segment
from emulator.simulation.loop import HostLoop
from emulator.simulation.scheduler import LoopHandle, ProgramScheduler, TimerHandle
from emulator.simulation.trace import callback_name
from emulator.simulation.virtual_time import VirtualTime
from emulator.wire.command_types import CommandType
from emulator.wire.frames import Frame, FrameBuffer
from emulator.wire.message_metadata import scan_entry
from tests.swarm.runner import run_seed

SUBSYSTEMS = {
    "replication of entries, links between regions": (
        "emulator/broker/replication/",
        "emulator/broker/links/",
    ),
    "snapshots, markers, updates of subscriptions": tuple(
        f"emulator/broker/subscription/{name}"
        for name in ("snapshot", "replicated", "received", "update", "blocked", "log_search", "individual")
    ),
    "topics: publish, append, cache, receipts": ("emulator/broker/topic/",),
    "subscriptions: dispatch, cursors": ("emulator/broker/subscription/",),
    "writes of cursors and positions": ("emulator/broker/debounced_writer.py",),
    "connections: frames, commands": ("emulator/broker/connection/",),
    "other parts of regions": ("emulator/broker/",),
    "client": ("emulator/client/",),
    "simulated disks": (
        *(f"emulator/simulation/{name}.py" for name in ("disk", "durable_media", "store", "remote_log")),
        "emulator/storage/",
    ),
    "simulated network": tuple(
        f"emulator/simulation/{name}.py" for name in ("connection", "network", "link")
    ),
    "checks and what they read": (
        *(
            f"emulator/simulation/{name}.py"
            for name in (
                "log_checkers",
                "consumer_checkers",
                "invariant_check",
                "watch",
                "stored_messages",
                "outcome",
            )
        ),
        "spark_jobs/",
        "tests/swarm/checkers/",
        "tests/swarm/workloads/",
    ),
    "programs of clients, history": (
        "tests/swarm/",
        "emulator/simulation/history.py",
        "emulator/simulation/evidence.py",
    ),
    "simulated loop": ("emulator/simulation/",),
}
"""By subsystem: how the paths of its files begin. The first that fits."""
_COMMANDS = {number: name for name, number in vars(CommandType).items() if name.isupper()}


def subsystem_of(frame: FrameType | None) -> str:
    """Return the subsystem of the innermost frame that belongs to one."""
    while frame is not None:
        path = frame.f_code.co_filename
        for root in ("/emulator/", "/tests/", "/spark_jobs/"):
            place = path.rpartition(root)
            if place[1]:
                inner = root[1:] + place[2]
                found = next((name for name, begins in SUBSYSTEMS.items() if inner.startswith(begins)), None)
                if found is not None:
                    return found
        frame = frame.f_back
    return "elsewhere"


class Account:
    """Counts events of the simulations that run within its `with` block."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._patches: list[Any] = []

    def __enter__(self) -> Account:
        self._count(VirtualTime, "_jump", lambda *_, **__: "jumps of time")
        self._count(LoopHandle, "__init__", lambda *_, **__: "callbacks scheduled")
        self._count(TimerHandle, "__init__", lambda *_, **__: "timers set")
        self._count(VirtualTime, "timer_cancelled", lambda *_, **__: "timers cancelled")
        self._count(HostLoop, "create_task", lambda *_, **__: "tasks")
        self._count(HostLoop, "create_future", lambda *_, **__: "futures")
        self._count(
            ProgramScheduler, "call_later", lambda _, __, callback, *___: f"timer {callback_name(callback)}"
        )
        self._count(SimulatedTransport, "write", lambda *_, **__: "writes to connections")
        self._count(Endpoint, "segment_arrived", self._segment)
        self._count(Medium, "apply", lambda *_, **__: "commits")
        self._count(Medium, "put", lambda _, key, *__: f"put of {key.partition('/')[0]}")
        self._count(DurableLog, "append_by", self._append)
        self._count(SimulatedHistory, "note", lambda _, __, op, outcome, **___: f"history: {op} {outcome}")
        self._replace(FrameBuffer, "feed", self._frames())
        return self

    def _frames(self) -> Any:
        """Return a replacement of `FrameBuffer.feed` that counts the received commands by type."""
        original = FrameBuffer.feed

        def feed(buffer: FrameBuffer, data: bytes) -> list[Frame]:
            frames = original(buffer, data)
            self.counts.update(f"command {_COMMANDS.get(type_, type_)}" for type_, _, _ in frames)
            return frames

        return feed

    def __exit__(self, *_: object) -> None:
        while self._patches:
            self._patches.pop().stop()

    def _count(self, owner: Any, name: str, event_of: Callable[..., str]) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.counts[event_of(*args, **kwargs)] += 1
            return original(*args, **kwargs)

        self._replace(owner, name, counted)

    def _replace(self, owner: Any, name: str, function: Any) -> None:
        replacement = patch.object(owner, name, function)
        replacement.start()
        self._patches.append(replacement)

    def _segment(self, _: Endpoint, segment: Segment) -> str:
        self.counts["bytes that arrive"] += segment.size_bytes
        return "segments that arrive"

    def _append(self, log: DurableLog, _: int, __: int, entries: list[bytes]) -> str:
        for entry in entries:
            info = scan_entry(entry)
            kind = "message" if info.marker_type is None else f"marker of type {info.marker_type}"
            self.counts[f"entry: {kind}, {'replicated' if info.replicated_from else 'of the region'}"] += 1
        return "appends"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    with Account() as account:
        for seed in range(1, seeds + 1):
            outcome = run_seed("failover", seed)
            assert outcome.violation is None, outcome.violation
    for event, count in sorted(account.counts.items()):
        print(f"{count / seeds:9.1f}  {event}")
    looks = profile(seeds, subsystem_of)
    for name, count in looks.most_common():
        print(f"{count / looks.total():6.1%}  {name}")


if __name__ == "__main__":
    main()
