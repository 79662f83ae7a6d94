"""Identify, query and signal processes, safely against reuse of pids.

A process is identified by its pid and its start time: pids are reused, pairs are not. Every function queries the
operating system; for `state_of` and `send_signal` a zombie is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_PROC = Path("/proc")

ProcessState = Literal["running", "paused", "gone"]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of one process, which no other process has until the machine restarts."""

    pid: int
    started: str
    """Start time in the format of the operating system; only compared for equality."""


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has this pid now; None if there is none."""
    found = _look_up(pid)
    return ProcessIdentity(pid, found[1]) if found else None


def state_of(process: ProcessIdentity) -> ProcessState:
    """Return the current state of a process."""
    found = _look_up(process.pid)
    if found is None or found[1] != process.started or found[0] in "ZX":
        return "gone"
    return "paused" if found[0] in "Tt" else "running"


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to a process; return False if it has ended. A later process with the same pid is not signalled (for
    certain only on Linux)."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):  # not Linux, or forbidden: check and signal are not atomic then
        return _send_by_number(process, number)
    try:
        if state_of(process) == "gone":
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _send_by_number(process: ProcessIdentity, number: signal.Signals) -> bool:
    if state_of(process) == "gone":
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _look_up(pid: int) -> tuple[str, str] | None:
    """Return (state letter, start time) of the process with this pid; None if there is none."""
    return _look_up_in_proc(pid) if (_PROC / "self" / "stat").exists() else _look_up_with_ps(pid)


def _look_up_in_proc(pid: int) -> tuple[str, str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): `pid (name) state …`; the name may contain any character. Field 3 is the state, field 22 the start.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], fields[19]


def _look_up_with_ps(pid: int) -> tuple[str, str] | None:
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    state, _, start = subprocess.run(command, capture_output=True, text=True).stdout.strip().partition(" ")
    return (state[0], start.strip()) if state else None
