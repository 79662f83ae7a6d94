"""Topics that a user deleted here while other regions still have them (docs/components/life.md, L6).

A replicator that opens a producer for such a topic would create it again unnoticed. It is refused, with the reason,
until a client uses the topic here again or the topic is deleted there, too. The deletion of an inactive topic by its
policy does not count.
"""

from __future__ import annotations

from typing import Final

from emulator.errors import ProtocolError, ServerError
from emulator.model.stored_keys import DeletedKey
from emulator.storage.contract import Store

REMEMBERED_MAX: Final = 10_000
"""More than that, and those deleted longest ago are forgotten."""


class Deletions:
    """Of one region, in its own store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __contains__(self, name: str) -> bool:
        return self._store.get(DeletedKey(name).text) is not None

    async def remember(self, name: str, now_ms: int) -> None:
        """Before anything of the topic is removed. StorageError."""
        rows = self._store.scan(DeletedKey.prefix())
        if len(rows) >= REMEMBERED_MAX:
            oldest = min(rows, key=lambda row: row[1].value)
            await self._store.delete(oldest[0])
        key = DeletedKey(name).text
        self._store.get(key)  # a key whose last put failed is refused until somebody looked (S5)
        await self._store.put(key, f"{now_ms:020d}".encode())

    async def forget(self, name: str) -> None:
        """Somebody uses the name here again. StorageError."""
        if name in self:
            await self._store.delete(DeletedKey(name).text)


def refusal(name: str, region: str, peer: str) -> ProtocolError:
    """What the replicator of another region is told."""
    return ProtocolError(
        ServerError.TopicNotFound,
        f"{name} was deleted in {region}: delete it in {peer}, too, or create it in {region} again",
    )
