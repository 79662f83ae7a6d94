"""A run directory that tasks read on other machines: is it the directory that the driver sees?

Executors need the run directory under the same path, on a volume that all of them share. Without this check a task
would report the logs as missing from the run.
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from emulator.run.history import run_name

_FIXED = ("topology.json", "export.json")
"""Files of a run or of an export that never change."""


class RunNotShared(Exception):
    """A process cannot read the run directory of the driver; the message is a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A run directory as the driver sees it. Can be pickled."""

    path: Path
    identity: str
    """Digest of the run's creation time and of its files that never change."""

    @classmethod
    def seen_here(cls, path: Path) -> SharedFolder:
        """Return what the driver sees. A file that it cannot read has no content."""
        return cls(path, _identity(path))

    def require(self) -> None:
        """Raise RunNotShared unless this process sees the same directory."""
        where = f"an executor on {socket.gethostname()}, as user {os.getuid()}, "
        rule = "the directory must be on a volume that the driver and all executors mount under this path"
        try:
            os.listdir(self.path)
        except OSError as problem:
            raise RunNotShared(f"{where}cannot read {self.path} ({problem.strerror}): {rule}") from None
        if _identity(self.path) != self.identity:
            raise RunNotShared(f"{where}sees another run in {self.path}: {rule}")


def _identity(path: Path) -> str:
    digest = hashlib.sha256(run_name(path).encode())
    for name in _FIXED:
        digest.update(b"\0" + _content(path / name))
    return digest.hexdigest()


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
