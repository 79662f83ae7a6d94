"""Asynchronous work done for synchronous callers, wherever they are: also inside of an event loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="geoemu", daemon=True).start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it. Interrupted (Ctrl-C), it is cancelled, and has undone what it does undo when this raises."""
        over = threading.Event()

        async def watched() -> T:
            try:
                return await work
            finally:
                over.set()

        future: Future[T] = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                over.wait()
            raise
