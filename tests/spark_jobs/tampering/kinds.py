"""A kind of tampering: the run that is changed, the change, and what the verdict reports."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spark_jobs.verdict import Verdict

from .runs import small_run

EVIDENCE_COMPLETE = "evidence-complete"


class WritableRun(Protocol):
    def write(self, run: Path) -> Path:
        """Write the run directory."""
        ...


@dataclass(frozen=True, slots=True)
class Tampering:
    """A change of the evidence of a run."""

    name: str
    """What is changed."""
    verdict: Verdict
    check: str
    """Invariant or name of the check that reports the change."""
    kind: str
    """Kind of the check's witness; empty if its witnesses have none."""
    sentence: str
    """Part of the check's sentence."""
    in_memory: Callable[[Any], object] | None = None
    """Change of the run before it is written."""
    on_disk: Callable[[Path], object] | None = None
    """Change of the run directory."""
    run: Callable[[], WritableRun] = small_run

    def write(self, path: Path) -> Path:
        """Write the run directory with the changed evidence."""
        run = self.run()
        if self.in_memory is not None:
            self.in_memory(run)
        run.write(path)
        if self.on_disk is not None:
            self.on_disk(path)
        return path


def invalid(check: str, name: str, kind: str, sentence: str, *changes: Any, **more: Any) -> Tampering:
    return Tampering(name, "invalid", check, kind, sentence, *changes, **more)


def unknown(check: str, name: str, kind: str, sentence: str, *changes: Any, **more: Any) -> Tampering:
    return Tampering(name, "unknown", check, kind, sentence, *changes, **more)


def incomplete(name: str, sentence: str, *changes: Any, **more: Any) -> Tampering:
    return unknown(EVIDENCE_COMPLETE, name, "", sentence, *changes, **more)


def in_sequence(*changes: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a change of the run directory that applies all of these."""

    def change(path: Path) -> None:
        for one in changes:
            one(path)

    return change


def edit(path: Path, region: str, statement: str, *values: object) -> None:
    """Execute a statement on the SQLite log of a region; it must change at least one row."""
    with closing(sqlite3.connect(path / "regions" / region / "log.sqlite")) as database, database:
        assert database.execute(statement, values).rowcount > 0, statement


def in_history(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    """Change the lines of a history file, without its end, and write an end that matches them."""

    def damage(path: Path) -> None:
        file = path / "history" / f"{name}.jsonl"
        *lines, end = file.read_text().splitlines(keepends=True)
        before = "".join(lines)
        body = change(before)
        assert body != before
        digest = hashlib.sha256(body.encode()).hexdigest()
        fields = {**json.loads(end), "digest": digest, "lines": body.count("\n")}
        file.write_text(f"{body}{json.dumps(fields)}\n")

    return damage


def edited(old: str, new: str, name: str = "orders-us-east") -> Callable[[Path], None]:
    """Replace a text in a history file, and write a matching end."""
    return in_history(name, lambda text: text.replace(old, new))


def in_json(file: str, change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Change a JSON file of the run directory; `change` modifies the parsed value."""

    def damage(path: Path) -> None:
        target = path / file
        value = json.loads(target.read_text())
        change(value)
        target.write_text(json.dumps(value))

    return damage


def removed(file: str) -> Callable[[Path], None]:
    return lambda path: (path / file).unlink()


def overwritten(file: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path / file).write_text(text)
