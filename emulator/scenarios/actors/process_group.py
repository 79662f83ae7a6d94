"""A program in a process group of its own: started, signalled and awaited together with its children."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol


class ProcessGroup(Protocol):
    """A started program and the processes of its group."""

    @property
    def returncode(self) -> int | None:
        """Exit code of the program; a signal's number is negative. None: it runs."""
        ...

    @property
    def has_members(self) -> bool:
        """Whether any process of the group exists, the program's children included."""
        ...

    async def wait(self) -> int:
        """Return the exit code of the program when it has ended."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; without an effect on one that has ended."""
        ...


StartProgram = Callable[[Sequence[str], Mapping[str, str], Path], Awaitable[ProcessGroup]]
"""(command, variables added to the environment, log file) -> the started program. OSError when it cannot be started."""


class _RealGroup:
    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def has_members(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def wait(self) -> int:
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


async def start_program(command: Sequence[str], variables: Mapping[str, str], log: Path) -> ProcessGroup:
    """Start it without input; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    return _RealGroup(process)
