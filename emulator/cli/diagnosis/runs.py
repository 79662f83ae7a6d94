"""Checks of the runs in a folder: which are up, which were not ended, and which left processes behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from emulator.cli.diagnosis.finding import Finding
from emulator.errors import Refused
from emulator.run.directory import HOME, RunDirectory
from emulator.run.processes import state_of
from emulator.run.record import RunRecord


def check_runs(folder: Path) -> Iterator[Finding]:
    """Yield a finding for each run in the folder that has not ended completely, and one that the others have."""
    directories = sorted((folder / HOME / "runs").glob("*/"), key=lambda path: (len(path.name), path.name))
    found = [finding for path in directories if (finding := _check_run(path)) is not None]
    yield from found
    if not found:
        yield Finding("runs", "ok", f"{len(directories)} runs in {folder / HOME / 'runs'}, all ended")


def is_up(folder: Path) -> bool:
    """Return whether the latest run of the folder is up: then it uses the ports of its topology."""
    try:
        return RunDirectory((folder / HOME / "current").resolve()).read().is_in_use()
    except Refused:
        return False


def _check_run(path: Path) -> Finding | None:
    try:
        record = RunDirectory(path).read()
    except Refused as refusal:
        reason, _, fix = str(refusal).partition(": ")
        return Finding("runs", "note", reason, fix or f"delete {path}")
    living = _living(record)
    down = f"`geoemu down --run-dir {quote(str(path))}`"
    if record.runtime == "compose":
        return None if record.ended else Finding("runs", "ok", f"{path} runs in containers; {down} ends it")
    if record.ended:
        sentence = f"{path} has ended, but {', '.join(living)} still run"
        return Finding("runs", "problem", sentence, down) if living else None
    if state_of(record.owner) != "gone" or (record.detached and living):
        return Finding("runs", "ok", f"{path} is up: {', '.join(living) or 'no region runs'}; {down} ends it")
    if living:
        sentence = f"the program that started {path} is gone, but {', '.join(living)} still run"
        return Finding("runs", "problem", sentence, down)
    return Finding("runs", "note", f"{path} was not ended, and its processes are gone", down)


def _living(record: RunRecord) -> list[str]:
    """Return the regions whose processes exist, each with its process id."""
    return [
        f"{name} (process {region.process.pid})"
        for name, region in record.regions.items()
        if region.process is not None and state_of(region.process) != "gone"
    ]
