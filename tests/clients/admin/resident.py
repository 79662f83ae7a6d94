"""Long-running programs with an admin client that answer each input line with one output line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Resident:
    """A running program that answers requests line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the program has ended"
        return answer.rstrip("\n")


@contextmanager
def resident(*command: str) -> Iterator[Resident]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield Resident(process)
    finally:
        process.kill()
        process.wait()
