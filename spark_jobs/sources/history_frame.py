"""The frame of a history file: whether its head, ends and seals are those of this run, and prove that it is complete.

A file is read in blocks of complete lines, so that its size is not limited by memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from typing import Any

from emulator.run.json_text import parse_json

_FRAMING = re.compile(rb'"op"\s*:\s*"(?:head|end|seal|hire)"')
_NO_END = (
    " has no end: its program still runs, or was killed and the file was not sealed"
    " (use `geoemu seal` when the program has ended)"
)


class HistoryFrame:
    """Checks the blocks of a file in their order. `run`: `emulator.run.history.run_name`; `present`: names of the run's
    history files, without suffix."""

    def __init__(self, run: str, present: Collection[str]) -> None:
        self._run = run
        self._present = present
        self._problems: list[str] = []
        self.torn: set[int] = set()
        """Numbers of lines that a seal declares torn."""
        self._digest = hashlib.sha256()
        self._bytes = self._lines = 0
        """Size of the previous blocks."""
        self._is_open = False
        self._closed_at = -1
        """Offset of the last byte of the newest end or seal, with its line break."""
        self._closed_lines = 0
        """Number of line breaks up to that byte."""

    def add(self, block: bytes) -> None:
        counted, hashed = CountedLines(block), 0
        for found in _FRAMING.finditer(block):
            at, line = line_around(block, found.start())
            self._digest.update(memoryview(block)[hashed:at])
            hashed = at
            try:
                fields = parse_json(line)
            except ValueError:
                continue  # reported when the lines are read
            if isinstance(fields, dict):  # likewise
                is_broken = at + len(line) < len(block)
                self._add(
                    fields, self._bytes + at, self._lines + counted.before(at) + 1, len(line), is_broken
                )
        self._digest.update(memoryview(block)[hashed:])
        self._bytes += len(block)
        self._lines += counted.before(len(block))

    def _add(self, fields: dict[str, Any], at: int, number: int, size: int, is_broken: bool) -> None:
        """Check a line at byte `at` of the file. `is_broken`: whether a line break follows it."""
        match fields.get("op"):
            case "head":
                self._problems += [f":{number}: {problem}" for problem in self._head_problems(fields, at)]
                self._is_open = True
            case "end" | "seal" as op:
                self._problems += [
                    f":{number}: {problem}" for problem in self._end_problems(fields, number, op)
                ]
                self._is_open, self._closed_at = False, at + size
                self._closed_lines = number - 1 + is_broken
                if fields.get("torn") is True:
                    self.torn.add(number - 1)
            case "hire":
                file = fields.get("file")
                if isinstance(file, str) and file not in self._present:
                    self._problems.append(f":{number}: file: history/{file}.jsonl is missing")

    def _head_problems(self, fields: dict[str, Any], at: int) -> Iterator[str]:
        if self._is_open:
            yield "a head before the end of the previous writer: two writers, or a missing end"
        elif at != self._closed_at + 1:
            yield "the lines before it have no head"
        if fields.get("run") != self._run:
            yield (
                f"run: is {fields.get('run')!r}, but this is run {self._run!r}: the file belongs to another run"
            )
        others = fields.get("others")
        for other in others if isinstance(others, list) else ():
            if isinstance(other, str) and other not in self._present:
                yield f"others: history/{other}.jsonl is missing"

    def _end_problems(self, fields: dict[str, Any], number: int, op: str) -> Iterator[str]:
        if not self._is_open:
            yield f"{op} without a head"
        if fields.get("lines") != number - 1:
            yield f"lines: is {fields.get('lines')}, but {number - 1} lines precede it"
        elif fields.get("digest") != self._digest.hexdigest():
            yield "digest: differs from that of the lines before it; they were changed"

    def problems(self) -> list[str]:
        """Return the problems of the whole file."""
        if self._is_open or not self._bytes:
            return [*self._problems, _NO_END]
        if self._closed_at == self._bytes - 1:
            return self._problems
        what = "has no head" if self._closed_at < 0 else "continues after its end"
        return [*self._problems, f":{self._closed_lines + 1}: {what}"]


class CountedLines:
    """Line numbers of byte offsets, which must be queried in ascending order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = self._lines = 0

    def before(self, at: int) -> int:
        """Return the number of lines that end before byte `at`."""
        self._lines += self._data.count(b"\n", self._at, at)
        self._at = at
        return self._lines


def line_around(data: bytes, at: int) -> tuple[int, bytes]:
    """Return the offset and the content of the line that contains byte `at`."""
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    return start, data[start : len(data) if end < 0 else end]
