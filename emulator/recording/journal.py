"""The history file of this program, shared by all clients that it records under one name.

The end of the history is written when the last of these clients is closed, at the latest when the program exits. A
killed program writes none; the user must seal its history.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from emulator.errors import GeoemuError, Refused
from emulator.run.directory import RunDirectory, find_run
from emulator.run.history import HistoryWriter, is_closed, seal_history
from emulator.run.history_events import Outcome

_journals: dict[tuple[str, str], ActorJournal] = {}
"""Open journals, by run and actor."""
_guard = threading.RLock()


class ActorJournal:
    """Writes the history of one actor. Errors end the recording, never the recorded program. Thread-safe."""

    def __init__(self, key: tuple[str, str], history: HistoryWriter) -> None:
        self._key = key
        self._history = history
        self._client_count = 0
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether events are still recorded."""
        return self._is_open

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        """Append an event, if the recording has not ended. If the write fails, the recording ends with an omission."""
        if not self._is_open:
            return
        try:
            self._history.write(op, outcome, **fields)
        except (OSError, ValueError) as problem:
            self.stop_recording(f"a {op} could not be recorded: {problem}")

    def stop_recording(self, why: str) -> None:
        """End the recording with an omission: later operations of the program are missing in the history."""
        with _guard:
            if not self._is_open:
                return
            self._is_open = False
            print(f"geoemu: {self._key[1]} is no longer recorded: {why}", file=sys.stderr)
            try:
                self._history.write("omission", "fact", detail=why)
                self._history.close()
            except OSError:
                self._abandon_history()

    def acquire(self) -> None:
        """Count a client that writes to the journal."""
        with _guard:
            self._client_count += 1

    def release(self) -> None:
        """Count a closed client; close the history after the last one."""
        with _guard:
            self._client_count -= 1
            if self._client_count <= 0:
                self._end()

    def _end(self) -> None:
        if _journals.get(self._key) is self:
            del _journals[self._key]
        if self._is_open:
            self._is_open = False
            try:
                self._history.close()
            except OSError as problem:
                self._abandon_history()
                actor = self._key[1]
                print(
                    f"geoemu: the history of {actor} could not be closed: {problem}: run `geoemu seal {actor}`",
                    file=sys.stderr,
                )

    def abandon(self) -> None:
        """Stop writing in a forked process: the history belongs to its parent."""
        self._is_open = False
        self._abandon_history()

    def _abandon_history(self) -> None:
        with contextlib.suppress(OSError):
            self._history.abandon()


def open_journal(directory: RunDirectory, actor: str, *, named: bool) -> ActorJournal:
    """Open or share the journal of an actor, and acquire it. If another process writes this history, open
    `<actor>-<pid>` instead, or raise Refused if the caller chose the name (`named`)."""
    with _guard:
        key = (str(directory.path.absolute()), actor)
        journal = _journals.get(key)
        if journal is None:
            journal = _open(directory, actor, named)
        journal.acquire()
        return journal


def _open(directory: RunDirectory, actor: str, named: bool) -> ActorJournal:
    for name in (actor, f"{actor}-{os.getpid()}"):
        key = (str(directory.path.absolute()), name)
        if key in _journals:
            return _journals[key]
        try:
            history = HistoryWriter.in_run(directory.path, name, program=" ".join(sys.argv)[:200])
        except BlockingIOError as busy:
            if named or name != actor:
                raise Refused(str(busy)) from None
        else:
            journal = _journals[key] = ActorJournal(key, history)
            return journal
    raise AssertionError("the second name is opened or refused")


def end_journals(run_dir: Path) -> None:
    """Close all journals of this process for a run."""
    with _guard:
        for (run, _), journal in list(_journals.items()):
            if run == str(run_dir.absolute()):
                journal._end()


def _end_all() -> None:
    with _guard:
        for journal in list(_journals.values()):
            journal._end()


def _abandon_all() -> None:
    global _guard
    _guard = threading.RLock()
    for journal in _journals.values():
        journal.abandon()
    _journals.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_abandon_all)


def seal_actors(run_dir: Path | None, actors: Iterable[str]) -> Iterator[str]:
    """Seal the histories of actors one after the other, and yield the result of each as a sentence. Raises Refused if
    an actor has no history (before any is sealed), or if a process still writes one (earlier ones stay sealed)."""
    folder = find_run(run_dir).path / "history"
    files = {actor: folder / f"{actor}.jsonl" for actor in actors}
    for actor, file in files.items():
        if not file.is_file():
            existing = ", ".join(sorted(one.stem for one in folder.glob("*.jsonl"))) or "none"
            raise Refused(f"{folder} has no history of {actor!r} (there are: {existing})")
    for actor, file in files.items():
        try:
            sealed = seal_history(file, "sealed: the program will not return")
        except BlockingIOError:
            raise Refused(f"{actor} is still running and writes its history: stop it first") from None
        yield f"{actor} is sealed" if sealed else f"{actor} was already sealed or complete"


def open_histories(run_dir: Path | None, prefix: str) -> list[str]:
    """Return the actors with this prefix whose history has no end and no seal; empty if there is no run. For completion
    in the shell."""
    try:
        files = (find_run(run_dir).path / "history").glob(f"{prefix}*.jsonl")
    except GeoemuError:
        return []
    return sorted(file.stem for file in files if not is_closed(file))
