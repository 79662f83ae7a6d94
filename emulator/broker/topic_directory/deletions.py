"""Topics that a user deleted here while other regions still have them (docs/components/life.md, L6).

A replicator that opens a producer for such a topic would create it again unnoticed. It is rejected, with the reason,
until a client uses the topic here again or the topic is deleted there, too. The deletion of an inactive topic by its
policy does not count.
"""

from __future__ import annotations

from typing import Final

from emulator.errors import ProtocolError, ServerError
from emulator.model.stored_keys import DeletedKey
from emulator.storage.contract import Store

REMEMBERED_MAX: Final = 10_000
"""Above this number the oldest deletions are forgotten."""


class Deletions:
    """Deletions of one region, in its own store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __contains__(self, name: str) -> bool:
        return self._store.get(DeletedKey(name).text) is not None

    async def remember(self, name: str, now_ms: int) -> None:
        """Record a deletion, before anything of the topic is removed. StorageError."""
        rows = self._store.scan(DeletedKey.prefix())
        if len(rows) >= REMEMBERED_MAX:
            oldest = min(rows, key=lambda row: row[1].value)
            await self._store.delete(oldest[0])
        key = DeletedKey(name).text
        self._store.get(key)  # after a failed put the store rejects the key until it is read (S5)
        await self._store.put(key, f"{now_ms:020d}".encode())

    async def forget(self, name: str) -> None:
        """Forget a deletion: the name is used here again. StorageError."""
        if name in self:
            await self._store.delete(DeletedKey(name).text)


def refusal(name: str, region: str, peer: str) -> ProtocolError:
    """Return the error for the replicator of another region."""
    return ProtocolError(
        ServerError.TopicNotFound,
        f"{name} was deleted in {region}: delete it in {peer}, too, or create it in {region} again",
    )
