"""Ctrl-C, `kill` and a closed terminal, as something one can wait for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED_EXIT_CODE = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The signals that asked this process to end."""

    def __init__(self) -> None:
        self._times = 0
        self._changed = asyncio.Event()

    @property
    def happened(self) -> bool:
        return self._times > 0

    async def wait(self, times: int = 1) -> None:
        """Wait until the process received `times` signals."""
        while self._times < times:
            self._changed.clear()
            await self._changed.wait()

    def note(self) -> None:
        self._times += 1
        self._changed.set()


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Inside, signals that would end this process are noted instead."""
    loop = asyncio.get_running_loop()
    signals = Interruption()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.note)
    try:
        yield signals
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
