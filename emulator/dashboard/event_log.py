"""The newest events of a run: facts in the histories of operator, scenario and chaos, and observed changes of state."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from emulator.run.history_schema import FRAME

HISTORIES: Final = ("operator", "scenario", "chaos")
TAIL_BYTES: Final = 131_072
"""Number of bytes at the end of each history that are read."""
EVENTS_MAX: Final = 100
_SHOWN: Final = ("op", "region", "other_region", "topic", "subscription", "detail", "error")


class ObservedStates:
    """Changes of the states of regions from one status to the next."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._states: dict[str, str] = {}
        self._changes: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)

    def compare(self, status: Mapping[str, Any]) -> None:
        """Add the differences between a status, as JSON, and the one before."""
        states = {region["name"]: region["state"] for region in status["regions"]}
        for name, state in states.items():
            before = self._states.get(name, state)
            if before != state:
                detail = f"{before} -> {state}"
                at_ms = round(self._now_ms())
                event = {"at_ms": at_ms, "actor": "observed", "op": "state", "region": name, "detail": detail}
                self._changes.append(event)
        self._states = states

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._changes)


def newest_events(run_dir: Path, observed: ObservedStates) -> list[dict[str, Any]]:
    """Return up to EVENTS_MAX events, the newest first: `at_ms`, `actor` and the fields of the fact. Lines that cannot
    be read are omitted."""
    facts = [fact for name in HISTORIES for fact in _facts_in(run_dir / "history" / f"{name}.jsonl")]
    return sorted([*facts, *observed], key=lambda event: event["at_ms"], reverse=True)[:EVENTS_MAX]


def _facts_in(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the facts at the end of a history, which another process may be writing."""
    for line in _last_lines(file):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("outcome") == "fact" and event.get("op") not in FRAME:
            at_ms = event.get("at_ms")
            if isinstance(at_ms, int | float) and not isinstance(at_ms, bool):
                shown = {name: str(event[name]) for name in _SHOWN if event.get(name) is not None}
                yield {"at_ms": at_ms, "actor": str(event.get("actor", "")), **shown}


def _last_lines(file: Path) -> list[bytes]:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - TAIL_BYTES))
            return opened.read().splitlines()
    except OSError:
        return []
