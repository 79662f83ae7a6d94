"""Temporary folders of engines, for what does not fit into memory.

A folder is removed with its engine. If the engine's process was killed, the next engine of any process removes it: a
verdict on ten million messages has up to 20 GB there. The owner of a folder holds a lock on it while it runs, and the
operating system releases the lock of a process that ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "geoemu-scratch-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a folder that exists until the end of the block, and remove those of processes that were killed."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder, lock = _locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def space_warning(evidence_bytes: int, bytes_per_byte: float) -> str | None:
    """Return what to do before evidence is evaluated for which the free space may not suffice. `bytes_per_byte`:
    temporary data of the engine for one byte of evidence."""
    directory = Path(tempfile.gettempdir())
    needed, free = evidence_bytes * bytes_per_byte, shutil.disk_usage(directory).free
    if free >= needed:
        return None
    return (
        f"temporary data may need {needed / 1e9:.1f} GB in {directory}, which has {free / 1e9:.1f} GB free;"
        " set TMPDIR to a directory with more space"
    )


def disk_full(problem: BaseException) -> str | None:
    """Return how to continue if `problem` is the error of an engine whose temporary data fill the disk."""
    if os.strerror(errno.ENOSPC) not in str(problem):
        return None
    return f"the disk of {tempfile.gettempdir()} is full: set TMPDIR to a directory with more space"


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Until it is locked, another process may remove it.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, lock
            os.close(lock)


def _remove_abandoned(directory: Path) -> None:
    for folder in directory.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # removed meanwhile, or of another user
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
