"""The run directory, which stores a run's state, so that any process may continue where another one stopped.

    .geoemu/                by default, in the current folder
        current -> runs/2   the latest run, the default of all commands
        runs/1, runs/2, …   one folder per run, kept as evidence (contract.py describes its content)

`run.json` is replaced as a whole under a lock, so that readers need no lock and no write is lost.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.model.suggestions import nearest
from emulator.run.record import RUN_VERSION, RunRecord

HOME = Path(".geoemu")
"""Default location of runs in a folder."""


def refuse_unknown(kind: str, name: str, known: Collection[str]) -> None:
    """Raise Refused, with a suggestion, if a name is not in the run."""
    if name not in known:
        guess = nearest(name, tuple(known))
        hint = f"did you mean {guess}? " if guess else ""
        raise Refused(f"no {kind} {name!r} in this run: {hint}{kind}s are {', '.join(known)}")


class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def region_dir(self, region: str) -> Path:
        return self.path / "regions" / region

    def configuration_dir(self, cluster: str) -> Path:
        """Return the folder of a cluster's configuration store, for regions that run as processes."""
        return self.path / "configuration" / cluster

    def read(self) -> RunRecord:
        """Read the run record. Raises Refused if there is none, or if this version cannot read it."""
        file = self.path / "run.json"
        try:
            text = file.read_text()
        except (FileNotFoundError, NotADirectoryError):
            raise Refused(
                f"no run in {self.path}: start one with `geoemu up`, or name another --run-dir"
            ) from None
        try:
            version = json.loads(text).get("version")
        except (ValueError, AttributeError):
            raise Refused(f"{file} is damaged: delete {self.path}, or name another --run-dir") from None
        if version != RUN_VERSION:
            raise Refused(
                f"{self.path} is a run of another version ({version}, this geoemu knows {RUN_VERSION}): "
                f"use the geoemu that made it, delete it, or name another --run-dir"
            )
        try:
            return RunRecord.from_json(text)
        except ValueError as problem:
            raise Refused(
                f"{file} is damaged ({problem}): delete {self.path}, or name another --run-dir"
            ) from None

    @contextmanager
    def edit(self) -> Iterator[RunRecord]:
        """Yield the run record for changes, and write it at the end unless an exception is raised. Other processes wait
        meanwhile, so the block must not contain `await`."""
        with _locked(self.path / "run.lock"):
            record = self.read()
            yield record
            self._write(record)

    def create(self, record: RunRecord, topology: Topology) -> None:
        """Create the folders, the topology and the record of a new run in an empty directory."""
        for region in record.regions:
            self.region_dir(region).mkdir(parents=True)
        (self.path / "history").mkdir()
        replace_file(self.path / "topology.json", topology.to_json())
        record.created_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write(record)

    def _write(self, record: RunRecord) -> None:
        replace_file(self.path / "run.json", record.to_json())


def find_run(run_dir: Path | None, folder: Path | None = None) -> RunDirectory:
    """Return the run in `run_dir`, or if it is None the latest run of the current folder. Raises Refused if there is
    none."""
    path = run_dir or (folder or Path.cwd()) / HOME / "current"
    if run_dir is None and not path.is_dir():
        raise Refused(f"no run in {path.parent.parent}: start one with `geoemu up`, or name a --run-dir")
    directory = RunDirectory(path.resolve())
    directory.read()
    return directory


@contextmanager
def claim_new_run(run_dir: Path | None, folder: Path | None = None) -> Iterator[RunDirectory]:
    """Claim an empty folder for a new run, which the caller fills with `create` in the `with` block; it is removed if
    the block fails and leaves it empty. Raises Refused if `run_dir` is not empty or unusable; if it is None, if a
    run of the current folder is up."""
    if run_dir is not None:
        yield from _yield_claimed(_claim_folder(run_dir.absolute()))
        return
    home = (folder or Path.cwd()).absolute() / HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise Refused(f"{home} cannot be made ({failure.strerror}): name a --run-dir") from failure
    with _locked(home / "lock"):
        _refuse_if_up(home / "current")
        (home / ".gitignore").write_text("*\n")
        path = _next_run(home / "runs")
        yield from _yield_claimed(path)
        _replace_symlink(home / "current", Path("runs") / path.name)


def _yield_claimed(path: Path) -> Iterator[RunDirectory]:
    try:
        yield RunDirectory(path)
    except BaseException:
        if not any(path.iterdir()):
            path.rmdir()
        raise


def _claim_folder(path: Path) -> Path:
    if (path / "run.json").exists():
        record = RunDirectory(path).read()
        if record.is_in_use():
            raise Refused(
                f"a run is up in {path}: end it with `geoemu down --run-dir {path}`, "
                f"or name another --run-dir"
            )
        raise Refused(f"{path} holds a run that has ended: delete it, or name another --run-dir")
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as failure:
        raise Refused(
            f"{path} cannot be a run directory ({failure.strerror}): name another --run-dir"
        ) from failure
    if not is_empty:
        raise Refused(f"{path} is not empty and holds no run: name another --run-dir")
    return path


def _refuse_if_up(current: Path) -> None:
    directory = RunDirectory(current.resolve())
    if (directory.path / "run.json").exists() and directory.read().is_in_use():
        raise Refused(
            f"a run is up in this folder already ({directory.path}): end it with `geoemu down`, "
            f"or give the new one a --run-dir"
        )


def _next_run(runs: Path) -> Path:
    runs.mkdir(exist_ok=True)
    path = runs / str(max((int(run.name) for run in runs.iterdir() if run.name.isdigit()), default=0) + 1)
    path.mkdir()
    return path


def _replace_symlink(link: Path, target: Path) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: readers see the old or the new text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file within the `with` block; block until it is free. Raises Refused if its folder
    does not exist."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        raise Refused(
            f"no run in {path.parent}: start one with `geoemu up`, or name another --run-dir"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
