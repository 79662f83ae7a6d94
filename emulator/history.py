"""What clients asked and what they were told: `history.jsonl`, one JSON object per line.

Written as it happens, one write per line, so that a crash of the writer loses at most a torn last line
(which readers ignore, and which makes the operation it spoke of *unknown*).

Several programs write at once, each to a file of its own: `history/<actor>.jsonl` in the run directory.
Time is the wall clock of the machine that drives the run, never a region's: regions may have skewed clocks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["asked", "ok", "failed", "unknown", "fact"]
"""asked: the operation began. ok: it certainly happened. failed: it certainly did not.
unknown: it may have. fact: something that simply happened (a kill, a phase of the story)."""


@dataclass(slots=True)
class Event:
    """One line. Fields that do not apply are None and left out of the line.

    Nobody changes one; it is not frozen because making a frozen one takes three times as long, and a simulated drill
    makes 1300 of them in a tenth of a second.
    """

    at_ms: float
    actor: str
    """Who writes: `producer-us-east`, `consumer-orders`, `scenario`."""
    op: str
    """publish, receive, acknowledge, subscribe, connect; or a fact: step, kill, start, stop, pause, resume, cut,
    heal, hold, latency, phase."""
    outcome: Outcome
    region: str | None = None
    """The region talked to, or the one the fact is about."""
    other_region: str | None = None
    """Second end of a link fact."""
    topic: str | None = None
    subscription: str | None = None
    origin_region: str | None = None
    """With `producer` and `sequence_id`: the message's origin, its identity everywhere."""
    producer: str | None = None
    sequence_id: int | None = None
    message_id: str | None = None
    """`ledger:entry:batch_index` in `region`."""
    error: str | None = None
    detail: str | None = None

    def to_line(self) -> str:
        """The line, without its newline."""
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        return json.dumps({name: value for name, value in fields if value is not None}, separators=(",", ":"))


def latency_detail(milliseconds: float, *, one_way: bool) -> str:
    """`detail` of a `latency` fact."""
    return f"{milliseconds:g} ms {'one way' if one_way else 'both ways'}"


def latency_in(detail: str) -> float:
    """Milliseconds in the `detail` of a `latency` fact. ValueError when it is none."""
    return float(detail.partition(" ms ")[0])


class HistoryWriter:
    """Appends events of one actor."""

    def __init__(self, path: Path, actor: str, wall_clock_ms: Callable[[], float] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._actor = actor
        self._now_ms = wall_clock_ms or (lambda: time.time() * 1000)

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        """Append one event, stamped now. Survives a crash of this process as soon as it returns."""
        event = Event(at_ms=round(self._now_ms(), 3), actor=self._actor, op=op, outcome=outcome, **fields)
        os.write(self._file, event.to_line().encode() + b"\n")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_events(path: Path) -> Iterator[Event]:
    """Events of one file in order. A torn last line is skipped; any other bad line is a ValueError with its
    number."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield Event(**json.loads(line))
        except (ValueError, TypeError) as problem:
            if number == len(lines):
                return
            raise ValueError(f"{path}:{number}: not a history event: {problem}") from problem
