"""Run a program and print its progress.

The program's output is shown only if the program fails. On a terminal, one line is updated in place; otherwise, for
example in CI, a new line is printed every SILENCE_SECONDS. Uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

SILENCE_SECONDS = 2.0
REWRITE_SECONDS = 0.2
PATIENCE_SECONDS = 10.0
"""Time that a program may take to end after SIGTERM."""

POLL_SECONDS = 0.2
_told_to_end = threading.Event()
_said_at = time.monotonic()
"""Time of the last printed line, of any program."""

Reader = Callable[[str], str | None]
"""Converts a line of the program's output to the progress text to show from now on; None: unchanged."""


def listen() -> None:
    """Record Ctrl-C and SIGTERM from now on; `obey` acts on them at safe points. Otherwise, a program that is just
    being started would not be ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _told_to_end.set())


def obey() -> None:
    """Raise KeyboardInterrupt if Ctrl-C or SIGTERM was received."""
    if _told_to_end.is_set():
        raise KeyboardInterrupt


def say(text: str) -> None:
    global _said_at
    print(text, flush=True)
    _said_at = time.monotonic()


class Done(NamedTuple):
    """The outcome of a program."""

    returncode: int
    """Exit code of the program; 127: it could not be started."""
    output: str
    """Standard output and standard error of the program."""


class Line:
    """A progress line: the current operation and its elapsed seconds."""

    def __init__(self, prefix: str, text: str) -> None:
        self.text = text
        self._prefix = prefix
        self._started = self._shown = time.monotonic()
        self._rewrites = sys.stdout.isatty()

    def show(self) -> None:
        now = time.monotonic()
        line = f"{self._prefix}{self.text}, {now - self._started:.0f} s"
        if not self._rewrites:
            # The interval counts from the last line of any operation, so that several short ones also show progress.
            if now - _said_at >= SILENCE_SECONDS:
                say(line)
        elif now - self._shown >= REWRITE_SECONDS:
            self._shown = now
            print(f"\r\x1b[K{line[: _columns() - 1]}", end="", flush=True)

    def end(self) -> None:
        if self._rewrites:
            print("\r\x1b[K", end="", flush=True)


def watch(
    command: list[str], *, prefix: str, text: str, reader: Reader = lambda line: None, **more: str
) -> Done:
    """Run `command` with progress; `more` are additional environment variables. The program is ended if this function
    is interrupted."""
    obey()
    try:
        program = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C must reach this process only
        )
    except OSError as error:
        return Done(127, str(error))
    line = Line(prefix, text)
    try:
        output = _read(program, line, reader)
        obey()
        return Done(program.wait(), output)
    finally:
        line.end()
        _end(program)


def _read(program: subprocess.Popen[bytes], line: Line, reader: Reader) -> str:
    assert program.stdout is not None
    output, tail = [], ""
    with selectors.DefaultSelector() as selector, program.stdout as pipe:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            obey()
            if selector.select(timeout=POLL_SECONDS):
                piece = os.read(pipe.fileno(), 65536).decode(errors="replace")
                if not piece:
                    return "".join(output)
                output.append(piece)
                *whole, tail = (tail + piece).split("\n")
                for each in whole:
                    line.text = reader(each) or line.text
            line.show()


def _end(program: subprocess.Popen[bytes]) -> None:
    """End the program, and its children, if it still runs after an interruption."""
    if program.poll() is not None:
        return
    os.killpg(program.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(PATIENCE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


def _columns() -> int:
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80
