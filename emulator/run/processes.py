"""Other processes, distinguished from later ones with the same pid.

A process is identified by its pid and its start time: pids are reused, pairs are not. Every function asks the operating
system; a zombie counts as gone.
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
    """One process, for good."""

    pid: int
    started: str
    """When, in the form of the operating system. Only ever compared."""


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this number now. None: there is none."""
    seen = _look_up(pid)
    return ProcessIdentity(pid, seen[1]) if seen else None


def state_of(process: ProcessIdentity) -> ProcessState:
    """What the process is doing now."""
    seen = _look_up(process.pid)
    if seen is None or seen[1] != process.started or seen[0] in "ZX":
        return "gone"
    return "paused" if seen[0] in "Tt" else "running"


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Return whether the process still existed. Never signals a later process with the same pid."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):  # not Linux, or forbidden here: the check and the signal are two steps
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
    """(state letter, start) of the process with this number."""
    return _look_up_in_proc(pid) if (_PROC / "self" / "stat").exists() else _look_up_with_ps(pid)


def _look_up_in_proc(pid: int) -> tuple[str, str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): `pid (name) state …`; the name may hold anything. Field 3 is the state, field 22 the start.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], fields[19]


def _look_up_with_ps(pid: int) -> tuple[str, str] | None:
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    state, _, start = subprocess.run(command, capture_output=True, text=True).stdout.strip().partition(" ")
    return (state[0], start.strip()) if state else None
