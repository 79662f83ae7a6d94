"""The delay between attempts to connect to another region."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices


class Reconnection:
    """Connects again after a back-off, which doubles with each attempt until the link is established."""

    def __init__(self, region: RegionServices, connect: Callable[[], None]) -> None:
        self._region = region
        self._connect = connect
        self._backoff_ms = region.config.settings.peer_reconnect_backoff_ms
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def schedule(self) -> None:
        """Call `connect` after the back-off. No effect if that is scheduled already, or after `close`."""
        if self._closed or self._timer is not None:
            return
        settings = self._region.config.settings
        jitter = self._region.environment.random.uniform(0.8, 1.2)
        self._timer = asyncio.get_running_loop().call_later(self._backoff_ms / 1000 * jitter, self._fire)
        self._backoff_ms = min(self._backoff_ms * 2, settings.peer_reconnect_backoff_ms_max)

    def _fire(self) -> None:
        self._timer = None
        self._connect()

    def established(self) -> None:
        """Begin with the shortest back-off again."""
        self._backoff_ms = self._region.config.settings.peer_reconnect_backoff_ms

    def close(self) -> None:
        """End a wait, and never connect again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
