"""Topics whose stored state is damaged: requests fail for a while without reading the store again."""

from __future__ import annotations

import asyncio
import logging

from emulator.errors import StorageDamaged

logger = logging.getLogger(__name__)

DAMAGED_SECONDS = 30.0
"""How long requests for a damaged topic fail without reading the store: clients and other regions retry often."""


class DamagedTopics:
    """The damaged topics of one region, by full name."""

    def __init__(self) -> None:
        self._damaged: dict[str, tuple[StorageDamaged, float]] = {}
        """Why a topic could not be loaded, and the loop time after which the store is read again."""

    def check(self, name: str) -> None:
        """StorageDamaged while the store is not to be read again."""
        if not self._damaged or name not in self._damaged:
            return
        damage, until = self._damaged[name]
        if asyncio.get_running_loop().time() < until:
            raise StorageDamaged(str(damage))
        del self._damaged[name]

    def add(self, name: str, damage: StorageDamaged) -> None:
        logger.error("topic %s cannot be loaded: %s", name, damage)
        self._damaged[name] = damage, asyncio.get_running_loop().time() + DAMAGED_SECONDS
