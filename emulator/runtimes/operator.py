"""What a person, or a program of theirs, does to a run by hand, as facts of its history: the verdict takes them into
account."""

from __future__ import annotations

from emulator.run.history import HistoryWriter
from emulator.runtimes.contract import Runtime

TURN_SECONDS = 10.0
"""How long a verb waits for its turn to write."""


def operator_history(run: Runtime) -> HistoryWriter:
    """To be closed as soon as the fact is written: another terminal may be writing its own."""
    path = run.run_dir / "history" / "operator.jsonl"
    return HistoryWriter(path, "operator", program="geoemu", wait_seconds=TURN_SECONDS)
