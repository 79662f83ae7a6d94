"""Closing the history of programs that cannot do it themselves any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from emulator.errors import GeoemuError, Refused
from emulator.run.directory import find_run
from emulator.run.history import is_closed, seal_history


def seal_actors(run_dir: Path | None, actors: Iterable[str]) -> Iterator[str]:
    """A sentence for each. Refused, before anything is done, when one has no history or still writes it."""
    folder = find_run(run_dir).path / "history"
    files = {actor: folder / f"{actor}.jsonl" for actor in actors}
    for actor, file in files.items():
        if not file.is_file():
            there = ", ".join(sorted(one.stem for one in folder.glob("*.jsonl"))) or "none"
            raise Refused(f"{folder} has no history of {actor!r} (there are: {there})")
    for actor, file in files.items():
        try:
            sealed = seal_history(file, "sealed: the program will not return")
        except BlockingIOError:
            raise Refused(f"{actor} is still running and writes its history: stop it first") from None
        yield f"{actor} is sealed" if sealed else f"{actor} was already sealed or complete"


def unsealed(run_dir: Path | None, begins: str) -> list[str]:
    """Names of histories without an end; for the shell's completion, which must not fail."""
    try:
        files = (find_run(run_dir).path / "history").glob(f"{begins}*.jsonl")
    except GeoemuError:
        return []
    return sorted(file.stem for file in files if not is_closed(file))
