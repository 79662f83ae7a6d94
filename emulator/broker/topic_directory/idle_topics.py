"""Unload topics that no client and no other region has used for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from emulator.errors import StorageError

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic

logger = logging.getLogger(__name__)


class SweptDirectory(Protocol):
    """The directory of topics, as the sweeper sees it."""

    @property
    def serving(self) -> Mapping[str, Topic]: ...

    def is_unused_since(self, topic: Topic, loop_time: float) -> bool:
        """Return whether a topic was not requested after that time, has no clients, and no work to do without them."""
        ...

    def unload(
        self, name: str, why: str, *, only_if: Callable[[Topic], bool] | None = None
    ) -> Awaitable[None]: ...


class IdleSweeper:
    """Checks all loaded topics twice per idle time, until it is closed."""

    def __init__(
        self,
        directory: SweptDirectory,
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        idle_seconds: float,
    ) -> None:
        """`idle_seconds`: how long an unused topic stays loaded; 0: for ever."""
        self._directory = directory
        self._spawn = spawn
        self._idle_seconds = idle_seconds
        self._closed = False

    def start(self) -> None:
        if self._idle_seconds > 0:
            asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._sweep)

    def close(self) -> None:
        self._closed = True

    def _sweep(self) -> None:
        if self._closed:
            return
        try:
            for name, topic in list(self._directory.serving.items()):
                if self._is_idle(topic):
                    self._spawn(self._unload(name))
        finally:
            self.start()

    def _is_idle(self, topic: Topic) -> bool:
        latest = asyncio.get_running_loop().time() - self._idle_seconds
        return self._directory.is_unused_since(topic, latest)

    async def _unload(self, name: str) -> None:
        try:
            await self._directory.unload(name, "it is inactive", only_if=self._is_idle)
        except StorageError as failure:
            logger.warning("topic %s is not unloaded: %s", name, failure)
