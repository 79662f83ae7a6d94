"""Events of a run that is followed, as text or as JSON lines (docs/SPARK.md, "Follow a run").

On a terminal, the block with the progress is updated in place. Other output has one line per step, and a line for each
link that is behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, Protocol

from spark_jobs.live.progress import FollowedLink, LiveViolation, RunProgress
from spark_jobs.wording import count

COLUMNS = 80
LINKS_SHOWN_MAX = 12
INDENT = " " * 10


class FollowOutput(Protocol):
    """Receives the events of a run in order."""

    def started(self, run: str, engine: str) -> None: ...
    def progress(self, progress: RunProgress) -> None: ...
    def violation(self, violation: LiveViolation) -> None: ...
    def ended(self, why: str) -> None: ...


class JsonOutput:
    """Writes one JSON object per line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def started(self, run: str, engine: str) -> None:
        self._write("started", {"run": run, "engine": engine})

    def progress(self, progress: RunProgress) -> None:
        self._write("progress", progress.as_json())

    def violation(self, violation: LiveViolation) -> None:
        self._write("violation", violation.as_json())

    def ended(self, why: str) -> None:
        self._write("ended", {"why": why})

    def _write(self, event: str, fields: Mapping[str, Any]) -> None:
        print(json.dumps({"event": event, **fields}), file=self._stream, flush=True)


def verdict_event(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last event of JSON output. `report`: content of report.json."""
    return {"event": "verdict", "report": report}


class TextOutput:
    """Writes lines of at most COLUMNS characters, except sentences of findings."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._drawn = 0
        """Number of lines of the block at the end of the terminal."""
        self._latest = ""

    def started(self, run: str, engine: str) -> None:
        self._print(
            [f"following {run}", f"engine {engine}; Ctrl-C stops, and prints the verdict on the run so far"]
        )

    def progress(self, progress: RunProgress) -> None:
        lines = [_summary(progress), *_link_lines(progress, all_links=self._is_terminal)]
        if self._is_terminal:
            self._print(lines, is_block=True)
        elif "\n".join(lines)[len(INDENT) :] != self._latest[len(INDENT) :]:
            self._latest = "\n".join(lines)
            self._print(lines)

    def violation(self, violation: LiveViolation) -> None:
        check = violation.result
        self._print([f"INVALID   {check.invariant} {check.title}", f"{INDENT}{check.sentence}"])
        place = ", ".join(f"{name} {value}" for name, value in violation.witness.items() if name != "kind")
        self._print([f"{INDENT}{place}"] if place else [])

    def ended(self, why: str) -> None:
        self._print([f"{why}; computing the verdict …"])

    def _print(self, lines: list[str], *, is_block: bool = False) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
        self._stream.write("".join(f"{line.encode(errors='backslashreplace').decode()}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(lines) if is_block else 0


def _summary(progress: RunProgress) -> str:
    missing = sum(link.missing for link in progress.links)
    state = f"{count(missing, 'copy')} missing" if missing else "all copies are stored"
    wrong = f"; {count(len(progress.violations), 'check')} invalid" if progress.violations else ""
    return f"{progress.at_s:7.1f} s {progress.acknowledged:,} acknowledged, {state}{wrong}"[:COLUMNS]


def _link_lines(progress: RunProgress, *, all_links: bool) -> list[str]:
    used = [link for link in progress.links if link.acknowledged]
    behind = sorted((link for link in used if link.missing), key=lambda link: -link.lag_s)
    if not all_links:
        return [_link_line(link) for link in behind[:LINKS_SHOWN_MAX]]
    ordered = [*behind, *(link for link in used if not link.missing)]
    more = len(ordered) - LINKS_SHOWN_MAX
    lines = [_link_line(link) for link in ordered[:LINKS_SHOWN_MAX]]
    return [*lines, f"{INDENT}{count(more, 'link')} more"] if more > 0 else lines


def _link_line(link: FollowedLink) -> str:
    name = f"{link.source} > {link.target}"
    numbers = f"lag {link.lag_s:.1f} s, highest {link.lag_max_s:.1f} s, {link.missing:,} missing"
    room = COLUMNS - len(INDENT) - len(numbers) - 2
    return f"{INDENT}{name if len(name) <= room else name[: room - 1] + '…':{min(room, 30)}}  {numbers}"
