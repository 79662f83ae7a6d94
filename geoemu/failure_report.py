"""What the report of a failed test shows of its run: the verdict, and the end of the history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path

from emulator.errors import GeoemuError
from emulator.run.history_events import HistoryEvent, read_events
from geoemu.run import Geo


def sections(run: Geo, lines: int) -> list[tuple[str, str]]:
    """Return the sections of a test report, as title and content. The verdict is that on all that the run recorded so
    far; its regions keep running. `lines`: number of the events that are shown."""
    return [
        ("geoemu verdict", _verdict(run)),
        (f"geoemu history, last {lines} events", "\n".join(_history_end(run.run_dir, lines))),
    ]


def _verdict(run: Geo) -> str:
    try:
        return str(run.verify(stop=False, engine="embedded"))
    except GeoemuError as problem:
        return f"no verdict: {problem}\nrun directory: {run.run_dir}"


def _history_end(run_dir: Path, lines: int) -> Iterator[str]:
    events: list[HistoryEvent] = []
    for file in (run_dir / "history").glob("*.jsonl"):
        try:
            events += nlargest(lines, read_events(file), key=_time)
        except (OSError, ValueError) as problem:
            yield str(problem)
    yield from map(_line, sorted(nlargest(lines, events, key=_time), key=_time))


def _time(event: HistoryEvent) -> float:
    return event.at_ms


def _line(event: HistoryEvent) -> str:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).time().isoformat("milliseconds")
    words = (
        *(at, event.actor, event.op, "" if event.outcome == "fact" else event.outcome),
        *(event.region, event.other_region, event.topic, event.subscription, event.message_id),
        *(event.detail, event.error),
    )
    return " ".join(filter(None, words))
