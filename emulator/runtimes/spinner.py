"""Print progress while a long operation runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

LINE_SECONDS = 2.0
"""Interval between lines if the output is not a terminal. On a terminal, one line is rewritten every
REWRITE_SECONDS."""
REWRITE_SECONDS = 0.5


@contextmanager
def spinner(text: str | Callable[[], str], stream: IO[str]) -> Iterator[None]:
    """Print `text` and the elapsed seconds on `stream` until the end of the block."""
    over = threading.Event()
    thread = threading.Thread(target=_repeat, args=(text, stream, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _repeat(text: str | Callable[[], str], stream: IO[str], over: threading.Event) -> None:
    rewrites, started = stream.isatty(), time.monotonic()
    with suppress(OSError, ValueError):  # the output is closed
        while not over.wait(REWRITE_SECONDS if rewrites else LINE_SECONDS):
            line = f"{text() if callable(text) else text}, {time.monotonic() - started:.0f} s"
            stream.write(f"\r\x1b[K{line}" if rewrites else f"{line}\n")
            stream.flush()
        if rewrites:
            stream.write("\r\x1b[K")
            stream.flush()
